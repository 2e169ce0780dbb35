"""The cpu backend: a graph on NumPy arrays, node by node, with the operators' references."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler import opdefs
from ..compiler.concrete import SizeLimits
from ..compiler.ir import Dim, Graph, Node, TensorType, evaluate, present
from ..compiler.ir.dim import symbols
from ..compiler.ir.expr import Expr
from ..compiler.opdefs import OpDef, elementwise
from ..compiler.opdefs.formula import formula
from ..contract import DTYPES, dtype_name, numpy_dtype
from ..errors import DtypeMismatch, Ge2Error, Invalid, LaunchFailed, MissingInput, ShapeMismatch

Array = npt.NDArray[Any]


# What NumPy raises for sizes and values that only a run shows.
_NUMPY_REFUSALS = (ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class _Step:
    """One node, ready to run.

    Attributes:
        node: for messages.
        definition, attrs: the operator and its full attributes; extents may be symbolic.
        dtypes: element types of the outputs.
        outputs: the formulas of an elementwise node.
        free: values read here for the last time.
    """

    node: Node
    definition: OpDef
    attrs: dict[str, Any]
    dtypes: tuple[str, ...]
    outputs: tuple[Expr, ...]
    free: tuple[str, ...]


class CpuProgram:
    """A graph prepared for repeated runs on NumPy.

    Args:
        graph: may have symbolic extents; they are bound by the shapes of the feeds.
        dtype: "f64" computes every floating-point value in float64 (the reference of a model).
    """

    def __init__(self, graph: Graph, dtype: str | None = None) -> None:
        if dtype not in (None, "f64"):
            raise Invalid("the cpu backend computes as declared or in f64", found=dtype)
        self.graph = graph
        self._wide = dtype == "f64"
        self._constants = {name: self._converted(array)
                           for name, array in graph.constants.items()}
        self._steps = self._prepare()
        self._limits = SizeLimits(graph)
        self._given = {*graph.inputs, *graph.constants}

    def _stored(self, dtype: str) -> str:
        return "f64" if self._wide and DTYPES[dtype].kind == "float" else dtype

    def _converted(self, array: Array) -> Array:
        is_float = DTYPES[dtype_name(array.dtype)].kind == "float"
        return array.astype(np.float64) if self._wide and is_float else array

    def _prepare(self) -> list[_Step]:
        graph = self.graph
        dtypes = {name: self._stored(kind.dtype) for name, kind in graph.types.items()}
        last: dict[str, int] = {}
        for position, node in enumerate(graph.nodes):
            for value in (*present(node.inputs), *present(node.outputs)):
                last[value] = position
        kept = {*graph.outputs, *graph.constants}
        free: list[list[str]] = [[] for _ in graph.nodes]
        for value, position in last.items():
            if value not in kept:
                free[position].append(value)
        return [self._step(node, dtypes, tuple(free[i])) for i, node in enumerate(graph.nodes)]

    def _step(self, node: Node, dtypes: Mapping[str, str], free: tuple[str, ...]) -> _Step:
        definition = opdefs.get(node.op)
        attrs = opdefs.full_attrs(node.op, node.attrs)
        for spec in definition.attrs:
            if spec.kind == "dtype" and attrs[spec.name] is not None:
                attrs[spec.name] = self._stored(attrs[spec.name])
        types = [self.graph.types[v] if v else None for v in node.inputs]
        inferred = opdefs.infer(node.op, types, node.attrs)
        outs = tuple(self._stored(t.dtype) for t in inferred)
        outputs: tuple[Expr, ...] = ()
        if definition.family == "elementwise":
            given = [dtypes[v] for v in node.inputs]
            outputs = elementwise.formulas(definition, attrs, given)
        return _Step(node, definition, attrs, outs, outputs, free)

    def run(self, feeds: Mapping[str, Array],
            observe: Callable[[Node, float], None] | None = None) -> dict[str, Array]:
        """Return the graph's outputs, each a fresh row-major array.

        Args:
            feeds: one array per graph input.
            observe: called after each node with the seconds that it took.

        Raises:
            MissingInput, DtypeMismatch, ShapeMismatch: a feed is not what the graph takes.
            Ge2Error: a node failed; the message names it.
        """
        values: dict[str, Array] = dict(self._constants)
        bound = bind_feeds(self.graph, feeds)
        self._limits.check(bound)
        for name in self.graph.inputs:
            values[name] = self._converted(np.asarray(feeds[name]))
        for step in self._steps:
            start = time.perf_counter()
            try:
                results = _run_step(step, values, bound)
            except Ge2Error as error:
                raise type(error)(f"node {step.node.name!r}: {error}") from error
            except _NUMPY_REFUSALS as error:
                raise _refused(step.node, values, error) from error
            if observe is not None:
                observe(step.node, time.perf_counter() - start)
            for name, result in zip(step.node.outputs, results, strict=False):
                if name:
                    values[name] = result
            for name in step.free:
                values.pop(name, None)
        return {name: self._result(name, values) for name in self.graph.outputs}

    def _result(self, name: str, values: Mapping[str, Array]) -> Array:
        array = values[name]
        owned = array.flags.owndata and array.flags.c_contiguous
        if owned and name not in self._given:
            return array
        return array.copy(order="C")


def run_graph(graph: Graph, feeds: Mapping[str, Array], *,
              dtype: str | None = None) -> dict[str, Array]:
    """Return a graph's outputs on NumPy arrays.

    Args:
        graph: typed and verified; symbolic extents are bound by the feeds.
        feeds: one array per graph input.
        dtype: "f64" computes every floating-point value in float64.
    """
    return CpuProgram(graph, dtype).run(feeds)


def bind_feeds(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, int]:
    """Return the value of every symbolic dimension, from the shapes of the feeds.

    Raises:
        MissingInput, DtypeMismatch, ShapeMismatch: a feed is missing or does not fit.
        Invalid: a feed that the graph does not know.
    """
    for name in feeds:
        if name not in graph.inputs:
            raise Invalid(f"the graph has no input {name!r}", wanted=", ".join(graph.inputs))
    bound: dict[str, int] = {}
    for name in graph.inputs:
        if name not in feeds:
            raise MissingInput(f"input {name!r} is missing", wanted=str(graph.types[name]))
        _bind_one(name, graph.types[name], np.asarray(feeds[name]), bound)
    for name in graph.inputs:
        wanted = graph.types[name].concrete(bound).shape
        if wanted != feeds[name].shape:
            raise ShapeMismatch(f"input {name!r} has the wrong shape", found=feeds[name].shape,
                                wanted=f"{graph.types[name]} with {bound}")
    return bound


def _bind_one(name: str, wanted: TensorType, array: Array, bound: dict[str, int]) -> None:
    if array.dtype != numpy_dtype(wanted.dtype):
        raise DtypeMismatch(f"input {name!r} has the wrong dtype", found=array.dtype,
                            wanted=wanted.dtype)
    if array.ndim != wanted.rank:
        raise ShapeMismatch(f"input {name!r} has the wrong rank", found=array.shape,
                            wanted=str(wanted))
    for extent, size in zip(wanted.shape, array.shape, strict=True):
        if isinstance(extent, Dim):
            solved = _solve(extent, size)
            if solved is not None:
                bound.setdefault(*solved)


def _solve(extent: Dim, size: int) -> tuple[str, int] | None:
    """Return (symbol, value) where the extent is linear in one symbol and equals size."""
    names = symbols(extent)
    if len(names) != 1:
        return None
    (name,) = names
    at_zero = evaluate(extent, {name: 0})
    slope = evaluate(extent, {name: 1}) - at_zero
    value = (size - at_zero) // slope if slope else -1
    return (name, value) if evaluate(extent, {name: value}) == size else None


def _run_step(step: _Step, values: Mapping[str, Array], bound: Mapping[str, int]) -> list[Array]:
    arrays = [values[name] if name else None for name in step.node.inputs]
    if step.outputs:
        given = [a for a in arrays if a is not None]
        shape = np.broadcast_shapes(*(a.shape for a in given))
        results = [np.empty(shape, numpy_dtype(dtype)) for dtype in step.dtypes]
        if results[0].size:
            formula(step.outputs).run(given, results)
        return results
    attrs = {name: _concrete(value, bound) for name, value in step.attrs.items()}
    return opdefs.evaluate(step.definition, arrays, attrs, step.dtypes)


def _refused(node: Node, values: Mapping[str, Array], error: Exception) -> LaunchFailed:
    """Return the error of a node that NumPy could not compute, with what it was given."""
    given = ", ".join(f"{name}: {values[name].dtype}{list(values[name].shape)}"
                      for name in present(node.inputs))
    return LaunchFailed(f"node {node.name!r} ({node.op}) cannot be computed: {error}", found=given)


def _concrete(value: Any, bound: Mapping[str, int]) -> Any:
    if isinstance(value, Dim):
        return evaluate(value, bound)
    if isinstance(value, tuple) and any(isinstance(item, Dim) for item in value):
        return tuple(_concrete(item, bound) for item in value)
    return value
