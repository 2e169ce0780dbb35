"""Scatters: a tensor with elements or slices at computed positions replaced or combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...contract import DTYPES, AttrSpec, numpy_dtype
from ...errors import GraphError, ShapeMismatch
from ..ir import expr as ex
from ..ir.expr import Expr
from ..ir.nodes import TensorType
from .index import check_elements, element_places, tuple_extent
from .opdef import INDEX, NUMERIC, Array, Arrays, Builder, OpDef, Types
from .reduce import highest, lowest
from .shapes import axis_of, product, row_major, tensor

_REDUCTION = AttrSpec("reduction", "str", "none", ("none", "add", "mul", "max", "min"),
                      "how values at one position combine")
_AXIS = AttrSpec("axis", "int", 0, doc="axis that the indices run along")


def _all(arrays: Arrays) -> list[Array]:
    return [array for array in arrays if array is not None]


_COMBINE: dict[str, Callable[..., Any]] = {
    "add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at}


def _scatter(out: Array, places: Any, updates: Array, reduction: str) -> None:
    if reduction == "none":
        out[places] = updates
    else:
        _COMBINE[reduction](out, places, updates)


def _check_reduction(op: str, x: TensorType, reduction: str) -> None:
    if x.dtype == "bool" and reduction in ("add", "mul"):
        raise GraphError(f"{op} cannot {reduction} bool values", hint="Use max or min")


def _infer_scatter_elements(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, indices, updates = (tensor(types, i) for i in range(3))
    axis = axis_of("SCATTER_ELEMENTS", attrs["axis"], x.rank)
    check_elements("SCATTER_ELEMENTS", x, indices, axis)
    _check_reduction("SCATTER_ELEMENTS", x, attrs["reduction"])
    if updates.shape != indices.shape:
        raise ShapeMismatch("SCATTER_ELEMENTS updates and indices differ", found=updates,
                            wanted=indices)
    return [x]


def _reference_scatter_elements(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, indices, updates = _all(arrays)
    axis = attrs["axis"] % x.ndim
    out = x.copy()
    places = element_places(indices, axis, x.shape[axis])
    inside = (places[axis] >= 0) & (places[axis] < x.shape[axis])
    _scatter(out, tuple(p[inside] for p in places), updates[inside], attrs["reduction"])
    return [out]


def _infer_scatter_nd(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, indices, updates = (tensor(types, i) for i in range(3))
    length = tuple_extent("SCATTER_ND", indices)
    _check_reduction("SCATTER_ND", x, attrs["reduction"])
    wanted = (*indices.shape[:-1], *x.shape[length:])
    if length > x.rank or updates.shape != wanted:
        raise ShapeMismatch("SCATTER_ND updates do not fit", found=updates, wanted=f"{wanted}")
    return [x]


def _reference_scatter_nd(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, indices, updates = _all(arrays)
    length = indices.shape[-1]
    if not updates.size:
        return [x.copy()]
    out = x.copy()
    extents = np.asarray(x.shape[:length], np.int64)
    flat = indices.reshape(-1, length).astype(np.int64)
    flat = np.where(flat < 0, flat + extents, flat)
    inside = ((flat >= 0) & (flat < extents)).all(axis=1)
    values = updates.reshape(flat.shape[0], *x.shape[length:])
    _scatter(out, tuple(flat[inside].T) or (Ellipsis,), values[inside], attrs["reduction"])
    return [out]


# NOTE: both compositions look at every (position, update) pair: the work grows with their product,
# but the result is the same in every run, and the last update of a position wins as in NumPy.

_REDUCE = {"add": ("REDUCE_SUM", "ADD"), "mul": ("REDUCE_PROD", "MUL"),
           "max": ("REDUCE_MAX", "MAX"), "min": ("REDUCE_MIN", "MIN")}


def _neutral(reduction: str, dtype: str) -> Any:
    kind = numpy_dtype(DTYPES[dtype].compute)
    bounds: dict[str, Any] = {"add": 0, "mul": 1}
    if reduction in bounds:
        return bounds[reduction]
    # The stored type bounds what an update can be, not the wider type it is computed in.
    stored = kind if DTYPES[dtype].kind == "float" else numpy_dtype(dtype)
    return lowest(stored) if reduction == "max" else highest(stored)


def _pairs(builder: Builder, x: str, places: str, updates: str, reduction: str) -> str:
    """Scatter along the last axis: x [..., N], places and updates [..., U], both of rank r.

    A place outside 0..N-1 hits nothing.
    """
    kind, count = builder.type(x), builder.type(places).shape[-1]
    rank = kind.rank
    shape = (*kind.shape, count)
    wide = builder.op("EXPAND", builder.op("UNSQUEEZE", places, axes=(-2,)), shape=shape)
    if reduction == "none":
        last, none = _last_hit(builder, wide)
        safe = builder.op("CAST", builder.op("MAX", last, none), to="i64")
        picked = builder.op("GATHER_ELEMENTS", updates, safe, axis=rank - 1)
        return builder.op("WHERE", builder.op("LESS", last, none), x, picked)
    hit = ex.input(0, "i64").eq(ex.coord(rank - 1))
    value = ex.input(1, DTYPES[kind.dtype].compute)
    neutral = ex.const(_neutral(reduction, kind.dtype), value.dtype)
    formula = ex.ExprBundle((ex.where(hit, value, neutral),))
    terms = builder.op("FUSED_ELEMENTWISE", wide, builder.op("UNSQUEEZE", updates, axes=(-2,)),
                       expr=formula, dtypes=kind.dtype)
    reduce, combine = _REDUCE[reduction]
    return builder.op(combine, x, builder.op(reduce, terms, axes=(-1,), keepdims=False))


# Marks of that many (position, update) pairs take a gigabyte.
_MAX_PAIRS = 2**28


def _simple(op: str, builder: Builder, inputs: Sequence[str],
            attrs: dict[str, Any]) -> str | None:
    """Return the result where there is nothing to scatter, or where bytes stand for bools."""
    kinds = [builder.type(value) for value in inputs]
    if any(e == 0 for kind in kinds for e in kind.shape):
        return builder.op("IDENTITY", inputs[0])
    if kinds[0].dtype == "bool" and attrs["reduction"] != "none":
        x, updates = (builder.op("CAST", inputs[i], to="u8") for i in (0, 2))
        return builder.op("CAST", builder.op(op, x, inputs[1], updates, **attrs), to="bool")
    return None


def _usable(builder: Builder, inputs: Sequence[str], attrs: dict[str, Any]) -> bool:
    kinds = [builder.type(value) for value in inputs]
    if not all(kind.is_static for kind in kinds):
        return False
    count = product(kinds[1].shape[:-1] if attrs.get("axis") is None else kinds[1].shape)
    reach = kinds[0].shape[attrs["axis"]] if "axis" in attrs else product(kinds[0].shape)
    return int(count * reach) <= _MAX_PAIRS  # type: ignore[arg-type]


def _from_end(place: Expr, extent: Any) -> Expr:
    return ex.where(place < 0, place + extent, place)


def _decompose_scatter_elements(builder: Builder, inputs: Sequence[str],
                                attrs: dict[str, Any]) -> Sequence[str] | None:
    simple = _simple("SCATTER_ELEMENTS", builder, inputs, attrs)
    if simple is not None:
        return [simple]
    if not _usable(builder, inputs, attrs):
        return None
    x, indices, updates = inputs
    kind, places = builder.type(x), builder.type(indices)
    axis = attrs["axis"] % kind.rank
    formula = _from_end(ex.cast(ex.input(0, places.dtype), "i64"), kind.shape[axis])
    indices = builder.op("FUSED_ELEMENTWISE", indices, expr=ex.ExprBundle((formula,)),
                         dtypes="i64")
    missing: list[Any] = [0 if i == axis else wide - have for i, (wide, have) in enumerate(
        zip(kind.shape, places.shape, strict=True))]
    if any(missing):  # rows without an update get one that hits nothing
        pads = (*(0,) * kind.rank, *missing)
        indices = builder.op("PAD", indices, pads=pads, value=-1)
        updates = builder.op("PAD", updates, pads=pads)
    perm = (*(i for i in range(kind.rank) if i != axis), axis)
    x, indices, updates = (builder.op("TRANSPOSE", v, perm=perm) for v in (x, indices, updates))
    result = _pairs(builder, x, indices, updates, attrs["reduction"])
    back = tuple(perm.index(i) for i in range(kind.rank))
    return [builder.op("TRANSPOSE", result, perm=back)]


def _decompose_scatter_nd(builder: Builder, inputs: Sequence[str],
                          attrs: dict[str, Any]) -> Sequence[str] | None:
    simple = _simple("SCATTER_ND", builder, inputs, attrs)
    if simple is not None:
        return [simple]
    if not _usable(builder, inputs, attrs):
        return None
    x, indices, updates = inputs
    kind, table = builder.type(x), builder.type(indices)
    length = tuple_extent("SCATTER_ND", table)
    steps = row_major(kind.shape[:length])
    flat, outside = ex.const(0, "i64"), ex.const(False, "bool")
    columns = []
    for i in range(length):
        columns.append(builder.op("SLICE", indices, axes=(-1,), starts=(i,), ends=(i + 1,)))
        place = _from_end(ex.cast(ex.input(i, table.dtype), "i64"), kind.shape[i])
        extent: Any = kind.shape[i]
        outside = ex.logical_or(outside, ex.logical_or(place < 0, place >= extent))
        flat = flat + place * steps[i]
    formula = ex.ExprBundle((ex.where(outside, ex.const(-1, "i64"), flat),))
    places = builder.op("FUSED_ELEMENTWISE", *columns, expr=formula, dtypes="i64")
    rows, inner = product(kind.shape[:length]), product(kind.shape[length:])
    count = product(table.shape[:-1])
    flat_x = builder.op("RESHAPE", x, shape=(rows, inner))
    flat_updates = builder.op("RESHAPE", updates, shape=(count, inner))
    places = builder.op("RESHAPE", places, shape=(1, count))
    if attrs["reduction"] == "none":
        result = _rows(builder, flat_x, places, flat_updates)
    else:  # [inner, N] and [inner, U]: the same places for every element of a slice
        flat_x, flat_updates = (builder.op("TRANSPOSE", v, perm=(1, 0))
                                for v in (flat_x, flat_updates))
        places = builder.op("EXPAND", places, shape=(inner, count))
        result = _pairs(builder, flat_x, places, flat_updates, attrs["reduction"])
        result = builder.op("TRANSPOSE", result, perm=(1, 0))
    return [builder.op("RESHAPE", result, shape=kind.shape)]


def _rows(builder: Builder, x: str, places: str, updates: str) -> str:
    """Replace rows of x [N, inner] at places [1, U] by updates [U, inner]."""
    shape = (builder.type(x).shape[0], builder.type(places).shape[1])
    last, none = _last_hit(builder, builder.op("EXPAND", places, shape=shape))
    picked = builder.op("GATHER", updates, builder.op("MAX", last, none), axis=0)
    missed = builder.op("UNSQUEEZE", builder.op("LESS", last, none), axes=(1,))
    return builder.op("WHERE", missed, x, picked)


def _last_hit(builder: Builder, wide: str) -> tuple[str, str]:
    """Return (which update [..., U] meets each position [..., N] last, or -1; a zero)."""
    rank = builder.type(wide).rank
    hit = ex.input(0, "i64").eq(ex.coord(rank - 2))
    which = ex.where(hit, ex.cast(ex.coord(rank - 1), "i32"), ex.const(-1, "i32"))
    found = builder.op("FUSED_ELEMENTWISE", wide, expr=ex.ExprBundle((which,)), dtypes="i32")
    last = builder.op("REDUCE_MAX", found, axes=(-1,), keepdims=False)
    return last, builder.constant(np.asarray(0, np.int32))


_REDUCED = (*NUMERIC, "bool")
OPDEFS = (
    OpDef("SCATTER_ELEMENTS", ("x", "indices", "updates"), 1, (_AXIS, _REDUCTION),
          _infer_scatter_elements, _reference_scatter_elements, family="scatter",
          decompose=_decompose_scatter_elements,
          properties=frozenset({"order_sensitive"}), dtypes=_REDUCED, other={"indices": INDEX},
          doc="x with single elements replaced or combined; indices outside are dropped."),
    OpDef("SCATTER_ND", ("x", "indices", "updates"), 1, (_REDUCTION,), _infer_scatter_nd,
          _reference_scatter_nd, properties=frozenset({"order_sensitive"}), family="scatter",
          dtypes=_REDUCED, other={"indices": INDEX}, decompose=_decompose_scatter_nd,
          doc="x with slices at index tuples replaced or combined; tuples outside are dropped."),
)
