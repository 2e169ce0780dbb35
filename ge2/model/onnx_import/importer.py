"""From an ONNX model to a graph: known values are computed, the other nodes are translated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, helper

from ...compiler.ir.dim import Extent, symbol
from ...compiler.ir.nodes import Graph, TensorType
from ...compiler.passes.editor import is_float
from ...contract import numpy_dtype
from ...errors import Ge2Error, ModelError
from ..data import free_symbols
from ..node_writer import (
    FixedExtent,
    Imported,
    NodeWriter,
    Problems,
    SameExtent,
    Unmapped,
    dimension_name,
)
from . import shape_rules
from .call import Call, NotKnown
from .proto import STANDARD, inlined, opset_of
from .rules import RULES
from .tensors import TensorReader
from .values import Broken, Known, Tensor, Undecided, Value, known, type_name

Array = npt.NDArray[Any]
_MAX_RANK = 8


def import_model(model: onnx.ModelProto, source: str = "model", folder: Path | None = None, *,
                 constants: Mapping[str, Array] | None = None,
                 dims: Mapping[str, int] | None = None) -> Imported:
    """Import a model.

    Args:
        model: its external data not loaded, or loaded.
        source: what messages call it.
        folder: where its external data lies.
        constants: inputs that have these elements in every run.
        dims: named dimensions that have these extents in every run.

    Raises:
        ModelError: the model is broken, or uses what ge2 cannot express; lists all of it.
    """
    opset = opset_of(model, source)
    model = inlined(model, frozenset(RULES))
    reader = TensorReader(source, folder)
    names: dict[str, str] = {}
    fixed = dict(dims or {})
    notes: list[str] = []
    while True:
        importer = _Importer(source, opset, reader, names, fixed, constants or {})
        try:
            made = importer.run(model.graph)
            return replace(made, notes=(*made.notes, *notes))
        except FixedExtent as found:
            fixed[found.name] = found.extent
            notes.append(f"the model was traced with {found.name} = {found.extent}, which it needs")
        except SameExtent as found:
            names = {k: found.first if v == found.second else v for k, v in names.items()}
            names[found.second] = found.first


class _Importer:
    def __init__(self, source: str, opset: int, reader: TensorReader, same_names: dict[str, str],
                 dims: Mapping[str, int], constants: Mapping[str, Array]) -> None:
        self.source, self.opset, self.reader = source, opset, reader
        self.same_names, self.dims, self.constants = same_names, dims, constants
        self.graph = Graph()
        self.writer = NodeWriter(self.graph)
        self.scope: dict[str, Value] = {}
        self.problems = Problems()
        self.notes: list[str] = []
        self.dim_names: dict[str, str] = {}

    def run(self, proto: onnx.GraphProto) -> Imported:
        self.graph.name = proto.name or "model"
        self._initializers(proto)
        self._unknown_operators(proto.node)
        self._inputs(proto)
        self._nodes(proto.node)
        self.problems.report(self.source)
        self._outputs(proto)
        self._drop_unused()
        self.notes += [f"dimension {second} is taken to equal {first}"
                       for second, first in self.same_names.items()]
        return Imported(self.graph, tuple(self.notes))

    def fail(self, message: str, **details: Any) -> ModelError:
        return ModelError(f"{self.source}: {message}", **details)

    # -- values -------------------------------------------------------------------------------

    def _initializers(self, proto: onnx.GraphProto) -> None:
        for tensor in proto.initializer:
            try:
                self.scope[tensor.name] = known(self.reader.read(tensor), name=tensor.name)
            except Unmapped as reason:
                self.scope[tensor.name] = Broken()
                self.problems.add("initializer", str(reason), tensor.name)
        for sparse in proto.sparse_initializer:
            self.scope[sparse.values.name] = Broken()
            self.problems.add("initializer", "sparse tensors", sparse.values.name)

    def _inputs(self, proto: onnx.GraphProto) -> None:
        for info in proto.input:
            if info.name in self.scope:
                continue  # before IR version 4 weights were inputs, too
            if info.name in self.constants:
                self.scope[info.name] = known(self.constants[info.name], name=info.name)
                continue
            try:
                self.graph.types[info.name] = self._declared(info)
            except Unmapped as reason:
                self.scope[info.name] = Broken()
                self.problems.add("input", str(reason), info.name)
                continue
            self.graph.inputs.append(info.name)
            self.scope[info.name] = Tensor(info.name)

    def _declared(self, info: onnx.ValueInfoProto) -> TensorType:
        if not info.type.HasField("tensor_type"):
            raise Unmapped("not a tensor")
        kind = info.type.tensor_type
        try:
            dtype = type_name(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        except KeyError:
            raise Unmapped(f"element type {kind.elem_type}") from None
        if not kind.HasField("shape"):
            raise Unmapped("a tensor of unknown rank")
        dims = kind.shape.dim
        if len(dims) > _MAX_RANK:
            raise Unmapped(f"rank {len(dims)}")
        stem = dimension_name(info.name)
        return TensorType(dtype, tuple(self._extent(d, f"{stem}_{i}")
                                       for i, d in enumerate(dims)))

    def _extent(self, dim: Any, unnamed: str) -> Extent:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return int(dim.dim_value)
        text = dim.dim_param
        if text in self.dims:
            return self.dims[text]
        if not any(c.isalnum() for c in text):  # "?" stands for any extent, another one each time
            text = unnamed
        name = self._dimension(text)
        name = self.same_names.get(name, name)
        return self.dims[name] if name in self.dims else symbol(name)

    def _dimension(self, text: str) -> str:
        """Return a foreign name as an identifier of its own."""
        if text not in self.dim_names:
            name = dimension_name(text)
            while name in self.dim_names.values():
                name += "_"
            self.dim_names[text] = name
        return self.dim_names[text]

    def _outputs(self, proto: onnx.GraphProto) -> None:
        outputs: dict[str, str] = {}
        for info in proto.output:
            value = self.scope.get(info.name)
            if value is None:
                raise self.fail(f"output {info.name!r} is made by no node",
                                hint="The file may be truncated")
            call = Call("output", self.opset, info.name, [value], [info.name], [True],  # type: ignore[list-item]
                        self.writer)
            self.writer.stem = info.name
            outputs[info.name] = call.value(0)
        if not outputs:
            raise self.fail("the graph has no output", hint="The file may be truncated")
        self.writer.finish(outputs)

    def _drop_unused(self) -> None:
        """Leave out inputs and weights that nothing reads."""
        graph = self.graph
        read = {value for node in graph.nodes for value in node.inputs}
        for name in [n for n in graph.inputs if n not in read]:
            graph.inputs.remove(name)
            del graph.types[name]
            self.notes.append(f"input {name!r} is read by no node and left out")
        for name in [n for n in graph.constants if n not in read]:
            del graph.constants[name], graph.types[name]

    # -- nodes --------------------------------------------------------------------------------

    def _unknown_operators(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Note operators without a rule first, whatever else keeps their nodes from importing."""
        for index, node in enumerate(nodes):
            if _key(node) not in _SUPPORTED:
                self.problems.add(_key(node), "ge2 has no such operator", _label(node, index))

    def _nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        for index, node in enumerate(nodes):
            values = [self._read(node, name, index) for name in node.input]
            label = _label(node, index)
            if _key(node) not in _SUPPORTED or any(isinstance(v, Broken) for v in values):
                results: Sequence[Value] = [Broken()] * len(node.output)
            else:
                results = self._node(node, label, values)  # type: ignore[arg-type]
            for name, value in zip(node.output, results, strict=False):
                if name:
                    self.scope[name] = value
            for name in node.output[len(results):]:
                if name:
                    self.problems.add(_key(node), f"output {name!r} beyond the first "
                                      f"{len(results)}", label)
                    self.scope[name] = Broken()

    def _read(self, node: onnx.NodeProto, name: str, index: int) -> Value | None:
        if not name:
            return None
        value = self.scope.get(name)
        if value is None:
            raise self.fail(f"node {_label(node, index)!r} reads {name!r} before anything makes it",
                            hint="The file may be truncated or its nodes out of order")
        return value

    def _node(self, node: onnx.NodeProto, label: str,
              values: Sequence[Known | Tensor | None]) -> Sequence[Value]:
        self._check(node, label)
        self.writer.stem = label
        try:
            call = Call(_key(node), self.opset, label, values, list(node.input),
                        [bool(name) for name in node.output], self.writer, self._attrs(node))
            if node.op_type == "If":
                return self._branch(call)
            return _Evaluation(call).results()
        except Ge2Error as reason:
            if isinstance(reason, ModelError):
                raise
            self.problems.add(_key(node), str(reason), label)
            if isinstance(reason, NotKnown):
                self.problems.inputs |= self._deciding_inputs(reason.value)
            self.problems.dimensions = free_symbols(
                self.graph.types[name] for name in self.graph.inputs)
            return [Broken()] * len(node.output)
        except (IndexError, KeyError, AssertionError, TypeError, ValueError) as error:
            # Only a broken model gets here: rules take what the operator's schema allows.
            raise self.fail(f"node {label!r} ({node.op_type}) is broken: {error!r}") from error

    def _deciding_inputs(self, name: str) -> set[str]:
        """Return the inputs that a value depends on, if none of them holds measured numbers."""
        if name in self.graph.inputs:
            return {name}
        value = self.scope.get(name)
        wanted = {value.name} if isinstance(value, Tensor) else set()
        for node in reversed(self.graph.nodes):
            if wanted & set(node.outputs):
                wanted |= set(node.inputs)
        found = {n for n in self.graph.inputs if n in wanted}
        return found if not any(is_float(self.graph.types[n]) for n in found) else set()

    def _check(self, node: onnx.NodeProto, label: str) -> None:
        if node.domain not in STANDARD or any(a.HasField("g") for a in node.attribute):
            return
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = onnx.IR_VERSION, {"": self.opset}
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            first = str(error).strip().splitlines()[0]
            if "is deprecated" in first:
                return  # its rule knows it all the same
            raise self.fail(f"node {label!r} ({node.op_type}) is broken: {first}") from None

    def _attrs(self, node: onnx.NodeProto) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for attr in node.attribute:
            if attr.type == AttributeProto.TENSOR:
                made[attr.name] = self.reader.read(attr.t)
            elif attr.type in (AttributeProto.SPARSE_TENSOR, AttributeProto.GRAPHS,
                               AttributeProto.TENSORS):
                raise Unmapped(f"attribute {attr.name}")
            else:
                made[attr.name] = _plain(helper.get_attribute_value(attr))
        return made

    def _branch(self, call: Call) -> Sequence[Value]:
        """Import the branch that a condition chooses."""
        branch = call.attrs["then_branch" if call.scalar(0) else "else_branch"]
        self._initializers(branch)
        self._unknown_operators(branch.node)
        self._nodes(branch.node)
        results = [self.scope.get(info.name) for info in branch.output]
        return [Broken() if value is None else value for value in results]


class _Evaluation:
    """What one node's outputs are: computed where all that it needs is known."""

    def __init__(self, call: Call) -> None:
        # Only the type of CastLike's second input matters.
        known_source = call.op == "CastLike" and isinstance(call.inputs[0], Known)
        self.call = _as_cast(call) if known_source else call

    def results(self) -> Sequence[Value]:
        call = self.call
        if call.op == "Shape":
            return [known(shape_rules.shape_of(call), np.dtype(np.int64))]
        if call.op == "Size":
            return [known(shape_rules.size_of(call), np.dtype(np.int64))]
        given = [v for v in call.inputs if v is not None]
        if given and all(isinstance(v, Known) for v in given):
            symbolic = any(isinstance(v, Known) and v.is_symbolic for v in given)
            found = self._computed(symbolic)
            if found is not None:
                return found
        made = RULES[call.op](call)
        return [_value(call, v) for v in ([made] if not isinstance(made, list | tuple) else made)]

    def _computed(self, symbolic: bool) -> Sequence[Value] | None:
        call = self.call
        rule = shape_rules.MOVES.get(call.op)
        if rule is None and symbolic:
            rule = shape_rules.ARITHMETIC.get(call.op)
        if rule is not None:
            try:
                arrays = rule(call)
            except Undecided:
                arrays = None
            if arrays is not None:
                several = arrays if isinstance(arrays, list) else [arrays]
                # An element of an object array is no array.
                return [known(a, self._dtype(a)) for a in map(np.asarray, several)]
        if symbolic or call.op not in RULES:
            return None
        return self._folded()

    def _dtype(self, array: Array) -> np.dtype[Any]:
        call = self.call
        if call.op == "Cast":
            return helper.tensor_dtype_to_np_dtype(call.attrs["to"])
        if array.dtype != object:
            return array.dtype
        if call.op == "Equal":
            return np.dtype(bool)
        first = call.inputs[1 if call.op == "Where" else 0]
        assert isinstance(first, Known)
        return first.dtype

    def _folded(self) -> Sequence[Value] | None:
        """Run the node alone."""
        from ...runtime.cpu import run_graph

        call = self.call
        graph = Graph("constants")
        writer = NodeWriter(graph)
        writer.stem = call.name
        inputs = [replace(v, stored=False, name="") if isinstance(v, Known) else v
                  for v in call.inputs]
        alone = replace(call, writer=writer, inputs=inputs)
        made = RULES[call.op](alone)
        values = [_value(alone, v) for v in (made if isinstance(made, list | tuple) else [made])]
        outputs = {f"out.{i}": v.name for i, v in enumerate(values) if isinstance(v, Tensor)}
        if outputs and any(not graph.types[name].is_static for name in outputs.values()):
            return None
        if outputs:
            writer.finish(outputs)
        arrays = run_graph(graph, {}) if outputs else {}
        return [known(arrays[f"out.{i}"]) if isinstance(v, Tensor) else v
                for i, v in enumerate(values)]


def _as_cast(call: Call) -> Call:
    to = helper.np_dtype_to_tensor_dtype(numpy_dtype(call.type(1).dtype))
    return replace(call, op="Cast", inputs=call.inputs[:1], attrs={"to": to})


def _value(call: Call, made: Any) -> Value:
    if isinstance(made, str):
        return Tensor(made) if made else Broken()
    if isinstance(made, Known):
        return made
    assert isinstance(made, np.ndarray), made
    return known(made)


def _key(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"


def _label(node: onnx.NodeProto, index: int) -> str:
    name = "".join(c if c.isprintable() else "_" for c in node.name)
    return name or f"{node.op_type}_{index}"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


_SUPPORTED = frozenset({*RULES, "If", "Shape", "Size"})
