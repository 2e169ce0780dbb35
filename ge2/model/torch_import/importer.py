"""From a torch module to a graph: torch.export, then one rule per ATen operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from ...compiler.ir.dim import Extent, symbol
from ...compiler.ir.nodes import Graph, TensorType
from ...contract import dtype_name
from ...errors import Ge2Error, ModelError
from ..node_writer import Imported, NodeWriter, Problems, Unmapped, dimension_name
from .call import Call, Tensor
from .rules import IGNORED, RULES

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
           torch.float64: "f64", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool",
           torch.uint8: "u8", torch.int8: "i8"}


def import_module(module: Any, inputs: tuple[Any, ...], dynamic_shapes: Any) -> Imported:
    """Import a module; arguments and errors as for from_torch."""
    try:
        program = torch.export.export(module, inputs, dynamic_shapes=_with_dims(dynamic_shapes))
        table = torch.export.default_decompositions()
        for target in list(table):
            if _op_name(target) in RULES:
                table.pop(target)
        program = program.run_decompositions(table)
    except (RuntimeError, ValueError, TypeError) as error:  # what torch.export raises
        raise ModelError(f"torch.export cannot export {type(module).__name__}: "
                         f"{str(error).strip().splitlines()[0]}") from error
    return _Importer(program, type(module).__name__, dynamic_shapes).run()


def _with_dims(given: Any) -> Any:
    """Return dynamic_shapes for torch.export; it finds the range of a name itself."""
    if isinstance(given, str):
        return torch.export.Dim.AUTO
    if isinstance(given, Mapping):
        return {key: _with_dims(value) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(_with_dims(value) for value in given)
    return given


class _Importer:
    def __init__(self, program: Any, name: str, shapes: Any) -> None:
        self.program, self.shapes = program, shapes
        self.graph = Graph(name)
        self.writer = NodeWriter(self.graph)
        self.values: dict[Any, Any] = {}
        self.symbols: dict[str, str] = {}
        self.problems = Problems()

    def run(self) -> Imported:
        signature = self.program.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        self._name_symbols(specs)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs[node.name])
            elif node.op == "call_function":
                self.values[node] = self._call(node)
        self.problems.report(self.graph.name)
        self._outputs(signature)
        return Imported(self.graph, self._drop_unused())

    # -- inputs and weights -------------------------------------------------------------------

    def _name_symbols(self, specs: Mapping[str, Any]) -> None:
        """Give torch's symbols the names of the Dims that they came from."""
        inputs = [n for n in self.program.graph.nodes if n.op == "placeholder"
                  and specs[n.name].kind == InputKind.USER_INPUT]
        for place, node in enumerate(inputs):
            for axis, extent in enumerate(getattr(node.meta.get("val"), "shape", ())):
                if isinstance(extent, torch.SymInt):
                    text = str(extent.node.expr)
                    named = self._dim_name(node.name, place, axis) or f"{node.name}_{axis}"
                    self.symbols.setdefault(text, dimension_name(named))

    def _dim_name(self, argument: str, place: int, axis: int) -> str:
        """Return what dynamic_shapes calls an axis of an argument; "" where it does not."""
        given: Any = self.shapes
        if isinstance(given, Mapping):
            given = given.get(argument)
        elif isinstance(given, Sequence):
            given = given[place] if place < len(given) else None
        if isinstance(given, Mapping):
            given = given.get(axis)
        elif isinstance(given, Sequence):
            given = given[axis] if axis < len(given) else None
        return given if isinstance(given, str) else str(getattr(given, "__name__", ""))

    def _placeholder(self, node: Any, spec: Any) -> None:
        if spec.kind == InputKind.USER_INPUT:
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                self.values[node] = getattr(spec.arg, "value", None)
                return
            try:
                self.graph.types[node.name] = self._type(value)
            except Unmapped as reason:
                self.problems.add("input", str(reason), node.name)
                return
            self.graph.inputs.append(node.name)
            self.values[node] = Tensor(node.name)
            return
        if spec.target in self.program.state_dict:
            tensor = self.program.state_dict[spec.target]
        else:
            tensor = self.program.constants[spec.target]
        try:
            self.values[node] = Tensor(self.graph.add_constant(spec.target, _array(tensor)))
        except Unmapped as reason:
            self.problems.add("weight", str(reason), str(spec.target))

    def _type(self, value: Any) -> TensorType:
        if value.dtype not in _DTYPES:
            raise Unmapped(f"element type {value.dtype}")
        return TensorType(_DTYPES[value.dtype], tuple(map(self._extent, value.shape)))

    def _extent(self, value: Any) -> Extent:
        return self._expression(value.node.expr) if isinstance(value, torch.SymInt) else int(value)

    def _expression(self, expr: Any) -> Extent:
        """Return a sympy expression over torch's symbols as an extent."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            text = str(expr)
            return symbol(self.symbols.setdefault(text, dimension_name(text)))
        parts = [self._expression(arg) for arg in expr.args]
        kind = type(expr).__name__
        result: Any = parts[0]
        if kind == "Pow" and isinstance(parts[1], int):
            result = 1
            for _ in range(parts[1]):
                result = result * parts[0]
            return result  # type: ignore[no-any-return]
        if kind not in ("Add", "Mul", "FloorDiv", "CleanDiv", "Mod", "PythonMod"):
            raise Unmapped(f"an extent {expr}")
        for part in parts[1:]:
            if kind == "Add":
                result = result + part
            elif kind == "Mul":
                result = result * part
            else:
                result = result % part if kind.endswith("Mod") else result // part
        return result  # type: ignore[no-any-return]

    # -- nodes --------------------------------------------------------------------------------

    def _call(self, node: Any) -> Any:
        target = node.target
        if getattr(target, "__name__", "") == "getitem":
            source = self.values.get(node.args[0])
            return None if source is None else source[node.args[1]]
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | int):
            return self._extent(value)
        name = _op_name(target)
        if name in IGNORED:
            return None
        if name not in RULES:
            self.problems.add(name or str(target), "ge2 has no rule for it", node.name)
            return None
        if any(self.values.get(n) is None for n in node.all_input_nodes):
            return None  # what made it is in the report
        self.writer.stem = node.name
        try:
            made = RULES[name](self._bound(node, name, value))
        except Ge2Error as reason:
            self.problems.add(name, str(reason), node.name)
            return None
        if isinstance(made, str):
            return Tensor(made)
        return tuple(Tensor(m) if isinstance(m, str) else m for m in made)

    def _bound(self, node: Any, name: str, value: Any) -> Call:
        args: dict[str, Any] = {}
        for index, argument in enumerate(node.target._schema.arguments):
            if index < len(node.args):
                given = node.args[index]
            elif argument.name in node.kwargs:
                given = node.kwargs[argument.name]
            else:
                given = argument.default_value if argument.has_default_value() else None
            args[argument.name] = self._argument(given)
        first = value[0] if isinstance(value, list | tuple) else value
        kind = self._type(first) if isinstance(first, torch.Tensor) else TensorType("", ())
        return Call(name, args, kind.dtype, kind.shape, self.writer)

    def _argument(self, given: Any) -> Any:
        if isinstance(given, torch.fx.Node):
            return self.values[given]
        if isinstance(given, list | tuple):
            return [self._argument(item) for item in given]
        if isinstance(given, torch.dtype):
            if given not in _DTYPES:
                raise Unmapped(f"element type {given}")
            return _DTYPES[given]
        return given

    def _outputs(self, signature: Any) -> None:
        node = next(n for n in self.program.graph.nodes if n.op == "output")
        outputs: dict[str, str] = {}
        for spec, value in zip(signature.output_specs, node.args[0], strict=True):
            if spec.kind != OutputKind.USER_OUTPUT:
                continue
            found = self.values.get(value)
            if not isinstance(found, Tensor):
                raise ModelError(f"{self.graph.name}: output {len(outputs)} is no tensor")
            outputs[f"output_{len(outputs)}" if len(node.args[0]) > 1 else "output"] = found.name
        self.writer.finish(outputs)

    def _drop_unused(self) -> tuple[str, ...]:
        graph = self.graph
        read = {value for node in graph.nodes for value in node.inputs}
        unused = [name for name in graph.inputs if name not in read]
        for name in unused:
            graph.inputs.remove(name)
            del graph.types[name]
        for name in [n for n in graph.constants if n not in read]:
            del graph.constants[name], graph.types[name]
        return tuple(f"input {name!r} is read by no node and left out" for name in unused)


def _op_name(target: Any) -> str:
    """Return "linear" of aten.linear.default; "" for what is no ATen operator."""
    name = str(getattr(target, "_schema", None) and target._schema.name)
    return name.removeprefix("aten::") if name.startswith("aten::") else ""


def _array(tensor: Any) -> Any:
    """Return a tensor's memory as an array: shared where it lies on the host."""
    import ml_dtypes

    if tensor.dtype not in _DTYPES:
        raise Unmapped(f"element type {tensor.dtype}")
    tensor = tensor.detach()
    host = tensor if tensor.device.type == "cpu" else tensor.cpu()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array = host.numpy()
    assert dtype_name(array.dtype) == _DTYPES[tensor.dtype]
    return array
