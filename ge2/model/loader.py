"""From a decoded model file to a verified Graph with a type for every value."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..compiler import opdefs
from ..compiler.ir.dim import Extent, symbol, symbols
from ..compiler.ir.dim_text import parse_extent
from ..compiler.ir.nodes import Graph, Node, TensorType
from ..contract import DTYPES, dtype_name
from ..errors import Ge2Error, GraphError, ModelError, near_matches
from .schema import ModelFile, NodeDecl
from .weights import open_weights, resolve_inside

_FLOAT_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MAX_ELEMENTS = 2**62
# Attributes that are numbers of another kind elsewhere, but take symbolic extents, too.
EXTENT_ATTRS = {"RANGE": ("start", "limit")}


class GraphLoader:
    """Builds one graph; every error names the file and the JSON path.

    Args:
        file: the decoded model file.
        path: where it came from; weights are looked up in its folder.
    """

    def __init__(self, file: ModelFile, path: Path) -> None:
        self.file = file
        self.path = path
        self.weights: dict[str, npt.NDArray[Any]] = {}
        self.weight_file: dict[str, str] = {}
        self.maker: dict[str, str] = {}  # value -> JSON path of what makes it
        self.node_names: list[str] = []
        self.graph = Graph(file.name)

    def load(self) -> Graph:
        """Return the graph.

        Raises:
            ModelError: any rule of the format is broken.
        """
        self._open_weights()
        self._declare_inputs()
        self._check_operators()
        self._declare_nodes()
        self._check_reads()
        for index in self._topological_order():
            self._add_node(index)
        self._declare_outputs()
        self._declare_state()
        return self.graph

    def fail(self, where: str, message: str, **details: Any) -> ModelError:
        """Return the error for a JSON path."""
        return ModelError(f"{self.path}: {where}: {message}", **details)

    def _open_weights(self) -> None:
        names = self.file.weights
        if names is None:
            return
        single = isinstance(names, str)
        for i, name in enumerate([names] if isinstance(names, str) else names):
            where = f"{self.path}: $.weights" + ("" if single else f"[{i}]")
            target = resolve_inside(self.path.parent, name, where)
            for key, array in open_weights(target, where).items():
                if key in self.weights:
                    raise ModelError(f"{where}: tensor {key!r} is in {self.weight_file[key]} too")
                self.weights[key] = array
                self.weight_file[key] = name

    def _declare_inputs(self) -> None:
        for i, decl in enumerate(self.file.inputs):
            self._declare_input(f"$.inputs[{i}]", decl.name, decl.dtype, decl.shape)
        for name, state in self.file.state.items():
            where = f"$.state.{name}"
            if not name:
                raise self.fail("$.state", "a state needs a name")
            self._declare_input(where, name, state.dtype, state.shape)

    def _declare_input(self, where: str, name: str, dtype: str, shape: Sequence[int | str]) -> None:
        if dtype not in DTYPES:
            raise self.fail(f"{where}.dtype", "unknown element type", found=repr(dtype),
                            wanted=", ".join(DTYPES))
        if name in self.maker:
            raise self.fail(f"{where}.name", f"the name {name!r} is already used",
                            found=f"{self.maker[name]} and {where}")
        if name in self.weights:
            raise self.fail(f"{where}.name", f"{name!r} is also a tensor of "
                            f"{self.weight_file[name]}", hint="Rename one of them")
        extents: tuple[Extent, ...] = tuple(
            symbol(extent) if isinstance(extent, str) else extent for extent in shape)
        if math.prod(e for e in shape if isinstance(e, int)) > _MAX_ELEMENTS:
            raise self.fail(f"{where}.shape", "more elements than a tensor can have")
        self.maker[name] = where
        self.graph.inputs.append(name)
        self.graph.types[name] = TensorType(dtype, extents)

    def _check_operators(self) -> None:
        unknown: dict[str, list[int]] = {}
        for i, node in enumerate(self.file.nodes):
            if node.op not in opdefs.OPS:
                unknown.setdefault(node.op, []).append(i)
        if not unknown:
            return
        lines = []
        for op, places in unknown.items():
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            close = near_matches(op.upper(), opdefs.OPS)
            place = f"$.nodes[{places[0]}].op{more}"
            lines.append(f"  {op!r} at {place}{'; ' + close if close else ''}")
        noun = "operator" if len(unknown) == 1 else "operators"
        raise ModelError(f"{self.path}: {len(unknown)} unknown {noun}:\n" + "\n".join(lines)
                         + "\nList the operators with: ge2 ops")

    def _declare_nodes(self) -> None:
        taken: dict[str, int] = {}
        for i, node in enumerate(self.file.nodes):
            name = node.name or f"{node.op.lower()}_{i}"
            if name in taken:
                raise self.fail(f"$.nodes[{i}].name", f"the node name {name!r} is already used",
                                found=f"$.nodes[{taken[name]}] and $.nodes[{i}]")
            taken[name] = i
            self.node_names.append(name)
            for j, value in enumerate(node.outputs):
                where = f"$.nodes[{i}].outputs[{j}]"
                if value in self.maker:
                    raise self.fail(where, f"the value {value!r} is made twice",
                                    found=f"{self.maker[value]} and {where}")
                if value in self.weights:
                    raise self.fail(where, f"{value!r} is also a tensor of "
                                    f"{self.weight_file[value]}", hint="Rename one of them")
                self.maker[value] = where

    def _check_reads(self) -> None:
        used: set[str] = set()
        for i, node in enumerate(self.file.nodes):
            for j, value in enumerate(node.inputs):
                if not value:
                    continue
                used.add(value)
                if value not in self.maker and value not in self.weights:
                    raise self._unknown_value(f"$.nodes[{i}].inputs[{j}]", value)
            self._check_arity(i, node)
        used.update(self.file.outputs)
        unused = [i for i, decl in enumerate(self.file.inputs) if decl.name not in used]
        if unused:
            names = ", ".join(repr(self.file.inputs[i].name) for i in unused)
            raise self.fail(f"$.inputs[{unused[0]}]", f"no node reads {names}",
                            hint="Remove the input, or read it")

    def _unknown_value(self, where: str, value: str) -> ModelError:
        hint = near_matches(value, [*self.maker, *self.weights]) or (
            "A value is a model input, a node's output, a state or a tensor of the weights")
        files = self.file.weights
        listed = ", ".join([files] if isinstance(files, str) else files or [])
        places = f"an input, no node makes it{f', and {listed} does not hold it' if listed else ''}"
        return self.fail(where, f"the value {value!r} is not {places}", hint=hint)

    def _check_arity(self, index: int, node: NodeDecl) -> None:
        formal = opdefs.OPS[node.op].inputs
        variadic = bool(formal) and formal[-1].endswith("*")
        required = [f for f in formal if f[-1] not in "?*"]
        where = f"$.nodes[{index}].inputs"
        signature = f"{node.op}({', '.join(formal)})"
        if len(node.inputs) > len(formal) and not variadic:
            raise self.fail(where, "too many inputs", found=len(node.inputs), wanted=signature)
        for position, name in enumerate(formal):
            given = position < len(node.inputs) and bool(node.inputs[position])
            if name in required and not given:
                raise self.fail(where, f"input {name!r} is missing", found=list(node.inputs),
                                wanted=signature)

    def _topological_order(self) -> list[int]:
        nodes = self.file.nodes
        owner = {value: i for i, node in enumerate(nodes) for value in node.outputs}
        waiting = [0] * len(nodes)
        readers: list[list[int]] = [[] for _ in nodes]
        for i, node in enumerate(nodes):
            for maker in {owner[v] for v in node.inputs if v in owner}:
                readers[maker].append(i)
                waiting[i] += 1
        ready = deque(i for i, count in enumerate(waiting) if count == 0)
        order: list[int] = []
        while ready:
            index = ready.popleft()
            order.append(index)
            for reader in readers[index]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    ready.append(reader)
        if len(order) < len(nodes):
            raise self._cycle(owner, [i for i, count in enumerate(waiting) if count])
        return order

    def _cycle(self, owner: dict[str, int], stuck: list[int]) -> ModelError:
        left = set(stuck)
        index, trail = stuck[0], list[int]()
        while index not in trail:
            trail.append(index)
            index = next(owner[v] for v in self.file.nodes[index].inputs if owner.get(v) in left)
        loop = [*trail[trail.index(index):], index][::-1]
        if len(loop) == 2:
            node = self.file.nodes[index]
            own = next(v for v in node.inputs if owner.get(v) == index)
            return self.fail(f"$.nodes[{index}]", f"node {self.node_names[index]!r} reads {own!r}, "
                             "which it computes itself",
                             hint="A value that outlives a call is declared under $.state")
        shown = loop if len(loop) <= 8 else [*loop[:7], loop[-1]]
        chain = " -> ".join(self.node_names[i] for i in shown)
        return self.fail(f"$.nodes[{index}]", f"the nodes form a cycle: {chain}",
                         hint="A value that outlives a call is declared under $.state")

    def _add_node(self, index: int) -> None:
        decl, graph = self.file.nodes[index], self.graph
        where = f"$.nodes[{index}]"
        for value in decl.inputs:
            if value and value not in graph.types:
                self._add_weight(value)
        attrs = {k: self._attr(f"{where}.attrs.{k}", v) for k, v in decl.attrs.items()}
        self._read_extents(where, decl.op, attrs)
        for spec in opdefs.OPS[decl.op].attrs:
            if spec.kind == "expr" and spec.name in attrs:
                raise self.fail(f"{where}.attrs.{spec.name}", "a model file cannot hold formulas",
                                hint="Passes make them; write the operators themselves")
        types = [graph.types[value] if value else None for value in decl.inputs]
        try:
            made = opdefs.infer(decl.op, types, attrs)
        except Ge2Error as error:
            raise self.fail(f"{where} ({decl.op} {self.node_names[index]!r})",
                            f"{error}\n{self._operands(decl)}") from None
        if len(decl.outputs) > len(made):
            raise self.fail(f"{where}.outputs", f"{decl.op} makes {len(made)} values",
                            found=len(decl.outputs))
        graph.types.update(zip(decl.outputs, made, strict=False))
        graph.nodes.append(Node(decl.op, self.node_names[index], tuple(decl.inputs),
                                tuple(decl.outputs), attrs))

    def _add_weight(self, name: str) -> None:
        array = self.weights[name]
        self.graph.constants[name] = array
        self.graph.types[name] = TensorType(dtype_name(array.dtype), tuple(array.shape))

    def _attr(self, where: str, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(self._attr(f"{where}[{i}]", item) for i, item in enumerate(value))
        if isinstance(value, dict) or value is None:
            raise self.fail(where, "an attribute is a number, a boolean, a string or a list",
                            found="null" if value is None else "an object")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.fail(where, "the number is too large", wanted='a double, or "inf"')
        return _FLOAT_WORDS.get(value, value) if isinstance(value, str) else value

    def _read_extents(self, where: str, op: str, attrs: dict[str, Any]) -> None:
        """Turn texts into symbolic extents where an attribute takes whole numbers."""
        for spec in opdefs.OPS[op].attrs:
            given = attrs.get(spec.name)
            place = f"{where}.attrs.{spec.name}"
            if spec.kind == "ints" and isinstance(given, tuple):
                attrs[spec.name] = tuple(self._extent(place, e) if isinstance(e, str) else e
                                         for e in given)
            elif isinstance(given, str) and (spec.kind == "int"
                                             or spec.name in EXTENT_ATTRS.get(op, ())):
                attrs[spec.name] = self._extent(place, given)

    def _extent(self, where: str, text: str) -> Extent:
        known = {name for value in self.graph.inputs for e in self.graph.types[value].shape
                 for name in symbols(e)}
        try:
            extent = parse_extent(text)
            unknown = sorted(symbols(extent) - known)
        except GraphError as error:
            raise self.fail(where, str(error)) from None
        if unknown:
            raise self.fail(where, "neither an int nor a dimension of an input", found=repr(text),
                            wanted=f"an int, or an extent of {', '.join(sorted(known)) or 'none'}",
                            hint=near_matches(unknown[0], known))
        return extent

    def _operands(self, decl: NodeDecl) -> str:
        lines = []
        for position, value in enumerate(decl.inputs):
            if value:
                source = self.weight_file.get(value)
                origin = f" from {source}" if source else ""
                lines.append(f"  inputs[{position}] {value}: {self.graph.types[value]}{origin}")
        return "\n".join(lines)

    def _declare_outputs(self) -> None:
        seen: set[str] = set()
        for i, value in enumerate(self.file.outputs):
            where = f"$.outputs[{i}]"
            if value in self.weights:
                raise self.fail(where, f"{value!r} is a weight, not a computed value")
            if value not in self.graph.types:
                raise self._unknown_value(where, value)
            if value in seen:
                raise self.fail(where, f"the output {value!r} is listed twice")
            seen.add(value)
        self.graph.outputs += self.file.outputs

    def _declare_state(self) -> None:
        graph = self.graph
        computed = {value for node in graph.nodes for value in node.outputs}
        for name, state in self.file.state.items():
            where = f"$.state.{name}.next"
            if state.next not in computed:
                raise self.fail(where, f"no node makes {state.next!r}",
                                hint=near_matches(state.next, computed))
            if state.next in graph.aliases:
                raise self.fail(where, f"{state.next!r} is also the next value of "
                                f"{graph.aliases[state.next]!r}")
            if graph.types[state.next] != graph.types[name]:
                raise self.fail(where, f"{state.next!r} differs from the state in type",
                                found=graph.types[state.next], wanted=graph.types[name])
            graph.aliases[state.next] = name
            if state.next not in graph.outputs:
                graph.outputs.append(state.next)

