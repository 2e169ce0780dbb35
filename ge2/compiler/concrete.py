"""From a symbolic graph to a concrete one: binding named dimensions to the shapes of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import Ge2Error, GraphError, MissingInput, ShapeMismatch
from .ir.dim import Dim, Extent, evaluate, symbols
from .ir.nodes import Graph, Node, TensorType
from .opdefs import full_attrs, infer
from .opdefs.movement import slice_axes


def bind_symbols(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the value of every named dimension, from the shapes of the graph's inputs.

    Raises:
        MissingInput: an input has no shape.
        ShapeMismatch: a shape does not fit the declared one, or two inputs disagree.
    """
    values: dict[str, int] = {}
    source: dict[str, str] = {}
    for name in graph.inputs:
        if name not in shapes:
            raise MissingInput(f"input {name!r} was not given", argument=name,
                               wanted=", ".join(graph.inputs))
        declared, given = graph.types[name].shape, shapes[name]
        if len(declared) != len(given):
            raise _mismatch(name, given, declared)
        for extent, found in zip(declared, given, strict=True):
            label = _symbol(extent)
            if label is None:
                continue
            if values.setdefault(label, found) != found:
                raise ShapeMismatch(f"dimension {label!r} has two values", argument=name,
                                    found=f"{found} in {name!r}",
                                    wanted=f"{values[label]} as in {source[label]!r}")
            source.setdefault(label, name)
    for name in graph.inputs:
        declared = graph.types[name].shape
        for extent, found in zip(declared, shapes[name], strict=True):
            if symbols(extent) <= set(values) and evaluate(extent, values) != found:
                raise _mismatch(name, shapes[name], declared)
    return values


class SymbolBinder:
    """bind_symbols of one graph, with what depends on no shape worked out once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._places: list[tuple[str, int, str]] = []
        self._fixed: list[tuple[str, int, int]] = []
        self._plain = True
        for name in graph.inputs:
            for axis, extent in enumerate(graph.types[name].shape):
                label = _symbol(extent)
                if isinstance(extent, int):
                    self._fixed.append((name, axis, extent))
                elif label is not None:
                    self._places.append((name, axis, label))
                else:
                    self._plain = False

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Return the value of every named dimension; raises what bind_symbols does."""
        values: dict[str, int] = {}
        try:
            fits = self._plain and all(shapes[name][axis] == extent
                                       for name, axis, extent in self._fixed)
            for name, axis, label in self._places:
                found = shapes[name][axis]
                fits = fits and values.setdefault(label, found) == found
        except (KeyError, IndexError):
            fits = False
        ranks = fits and all(len(shapes[name]) == self._graph.types[name].rank
                             for name in self._graph.inputs)
        return values if ranks else bind_symbols(self._graph, shapes)


def _symbol(extent: Extent) -> str | None:
    """Return the name of an extent that is one symbol and nothing else."""
    if isinstance(extent, Dim):
        names = symbols(extent)
        if len(names) == 1 and repr(extent) == next(iter(names)):
            return next(iter(names))
    return None


def _mismatch(name: str, found: object, declared: tuple[Extent, ...]) -> ShapeMismatch:
    return ShapeMismatch(f"input {name!r} has a wrong shape", argument=name, found=found,
                         wanted=f"[{', '.join(map(str, declared))}]")


# Operators that some extents of their first input forbid: an axis without elements, for example.
_LIMITED = frozenset({"ARGMAX", "ARGMIN", "GATHER", "GATHER_ELEMENTS", "GATHER_ND", "TOPK"})


class SizeLimits:
    """The nodes of one graph that not every size allows.

    Shape inference takes a named dimension as large enough for what nodes do with it: that a bound
    of a slice lies inside, that an axis has elements. A size where that does not hold must not run,
    as a kernel would read beyond its input.
    """

    def __init__(self, graph: Graph) -> None:
        dynamic = [node for node in graph.nodes if node.op == "SLICE" or node.op in _LIMITED]
        dynamic = [node for node in dynamic if not graph.types[node.inputs[0]].is_static]
        self._graph = graph
        self._slices = [node for node in dynamic if node.op == "SLICE" and _may_reach_beyond(
            node, graph.types[node.inputs[0]].shape)]
        self._others = [node for node in dynamic if node.op != "SLICE"]

    def check(self, values: Mapping[str, int]) -> None:
        """Raise ShapeMismatch or GraphError where these sizes do not allow a node."""
        for node in self._slices:
            _check_slice(node, self._graph.types[node.inputs[0]].shape, values)
        for node in self._others:
            types = [self._graph.types[name].concrete(values) if name else None
                     for name in node.inputs]
            attrs = {k: _concrete(v, lambda dim: evaluate(dim, values))
                     for k, v in node.attrs.items()}
            try:
                infer(node.op, types, attrs)
            except Ge2Error as error:
                raise type(error)(f"node {node.name!r}: {error}",
                                  hint=f"Dimensions are {dict(values)}") from error


def _may_reach_beyond(node: Node, shape: tuple[Extent, ...]) -> bool:
    """Whether a slice's bounds, or the axes that it cuts, depend on a named dimension."""
    attrs = full_attrs(node.op, node.attrs)
    bounds = (*attrs["starts"], *attrs["ends"],
              *(shape[axis] for axis, *_ in slice_axes(attrs, shape)))
    return any(isinstance(extent, Dim) for extent in bounds)


def _check_slice(node: Node, shape: tuple[Extent, ...], values: Mapping[str, int]) -> None:
    at_size: tuple[int, ...] = tuple(evaluate(extent, values) for extent in shape)
    given = full_attrs(node.op, node.attrs)
    attrs = {k: _concrete(v, lambda dim: evaluate(dim, values)) for k, v in given.items()}
    for (axis, first, _, count), (_, begin, _, taken) in zip(
            slice_axes(given, shape), slice_axes(attrs, at_size), strict=True):
        assumed = evaluate(count, values)
        if assumed != taken or (taken and evaluate(first, values) != begin):
            raise ShapeMismatch(
                f"SLICE {node.name!r} reaches beyond axis {axis} of its input",
                argument=node.name, found=f"{at_size[axis]} elements",
                wanted=f"enough for starts={list(attrs['starts'])}, ends={list(attrs['ends'])}",
                hint="On a named dimension, bounds that are numbers must lie inside")


def concretize(graph: Graph, values: Mapping[str, int]) -> Graph:
    """Return the graph with every named dimension replaced, in types and attributes.

    Raises:
        GraphError: a dimension has no value.
    """
    return replace_dims(graph, lambda dim: evaluate(dim, values), f"Dimensions are {dict(values)}")


def replace_dims(graph: Graph, number: Callable[[Dim], int], hint: str = "") -> Graph:
    """Return the graph with every symbolic extent replaced by a number of the caller's choice.

    Raises:
        GraphError: an extent becomes negative; the hint tells why.
    """
    if all(t.is_static for t in graph.types.values()):
        return graph
    made = graph.copy()
    made.types = {name: TensorType(t.dtype, _concrete(t.shape, number))
                  for name, t in graph.types.items()}
    for name, t in made.types.items():
        if any(isinstance(extent, int) and extent < 0 for extent in t.shape):
            raise GraphError(f"value {name!r} gets a negative extent", found=str(t), hint=hint)
    made.nodes = [
        replace(node, attrs={k: _concrete(v, number) for k, v in node.attrs.items()})
        for node in graph.nodes
    ]
    return made


def _concrete(value: Any, number: Callable[[Dim], int]) -> Any:
    if isinstance(value, Dim):
        return number(value)
    if isinstance(value, list | tuple):
        return type(value)(_concrete(item, number) for item in value)
    return value
