"""Operators that read or write at computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec, numpy_dtype
from ...errors import ShapeMismatch
from ..ir import expr as ex
from ..ir.dim import Extent
from ..ir.expr import Expr
from ..ir.nodes import TensorType
from .opdef import ALL, INDEX, Array, Arrays, Builder, OpDef, Types
from .shapes import axis_of, product, row_major, tensor

MOVE = frozenset({"linear", "rematerializable"})



def _all(arrays: Arrays) -> list[Array]:
    return [array for array in arrays if array is not None]


def wrapped(indices: Array, extent: int) -> Array:
    """Return indices with negative ones counted from the end.

    An index outside the tensor is clamped to it, as the kernels do: no read beyond a buffer.
    """
    positive = np.where(indices < 0, indices + extent, indices)
    return np.asarray(np.clip(positive, 0, max(extent - 1, 0)))


def _infer_gather(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, indices = tensor(types, 0), tensor(types, 1)
    axis = axis_of("GATHER", attrs["axis"], x.rank)
    check_not_empty("GATHER", x, (axis,), indices)
    return [TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]))]


def _reference_gather(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, indices = _all(arrays)
    axis = attrs["axis"] % x.ndim
    if not indices.size:
        return [np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]), x.dtype)]
    return [np.take(x, wrapped(indices, x.shape[axis]), axis=axis)]


def check_not_empty(op: str, x: TensorType, axes: Sequence[int], indices: TensorType) -> None:
    """Refuse to pick from axes that have no element.

    Raises:
        ShapeMismatch: one of the axes has extent 0, and something is to be picked.
    """
    if 0 not in indices.shape and any(x.shape[axis] == 0 for axis in axes):
        raise ShapeMismatch(f"{op} picks from an axis without elements", found=x)


def check_elements(op: str, x: TensorType, indices: TensorType, axis: int) -> None:
    others = [(a, b) for i, (a, b) in enumerate(zip(indices.shape, x.shape, strict=False))
              if i != axis]
    if x.rank != indices.rank or any(
            isinstance(a, int) and isinstance(b, int) and a > b for a, b in others):
        raise ShapeMismatch(f"{op} indices reach outside x", found=indices, wanted=f"within {x}")


def _infer_gather_elements(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, indices = tensor(types, 0), tensor(types, 1)
    axis = axis_of("GATHER_ELEMENTS", attrs["axis"], x.rank)
    check_elements("GATHER_ELEMENTS", x, indices, axis)
    check_not_empty("GATHER_ELEMENTS", x, (axis,), indices)
    return [TensorType(x.dtype, indices.shape)]


def element_places(indices: Array, axis: int, extent: int) -> tuple[Array, ...]:
    places = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    places[axis] = np.where(indices < 0, indices + extent, indices)
    return tuple(np.broadcast_arrays(*places))


def _reference_gather_elements(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, indices = _all(arrays)
    axis = attrs["axis"] % x.ndim
    if not indices.size:
        return [np.zeros(indices.shape, x.dtype)]
    return [x[element_places(wrapped(indices, x.shape[axis]), axis, x.shape[axis])]]


def _decompose_gather_elements(builder: Builder, inputs: Sequence[str],
                               attrs: dict[str, Any]) -> Sequence[str] | None:
    """One GATHER from the flat tensor, at positions computed from coordinates."""
    x, indices = (builder.type(value) for value in inputs)
    axis = attrs["axis"] % x.rank
    if not x.is_static or 0 in x.shape:
        return None
    steps = row_major(x.shape)
    flat = _inside(ex.cast(ex.input(0, indices.dtype), "i64"), x.shape[axis]) * steps[axis]
    for i, step in enumerate(steps):
        if i != axis:
            flat = flat + ex.coord(i) * step
    places = builder.op("FUSED_ELEMENTWISE", inputs[1], expr=ex.ExprBundle((flat,)), dtypes="i64")
    return [builder.op("GATHER", builder.op("RESHAPE", inputs[0], shape=(-1,)), places, axis=0)]


def _inside(place: Expr, extent: Any) -> Expr:
    """Return an index with negative ones counted from the end, clamped to the tensor."""
    return ex.clip(ex.where(place < 0, place + extent, place), 0, extent - 1)


def _decompose_gather_nd(builder: Builder, inputs: Sequence[str],
                         attrs: dict[str, Any]) -> Sequence[str] | None:
    """One GATHER from a tensor whose indexed axes are merged."""
    x, indices = (builder.type(value) for value in inputs)
    batch, length = attrs["batch_dims"], tuple_extent("GATHER_ND", builder.type(inputs[1]))
    merged = x.shape[:batch + length]
    if not all(isinstance(e, int) and e for e in merged) or not length:
        return None
    steps = row_major(merged)
    outer = indices.shape[:-1]
    columns = []
    for i in range(length):
        column = builder.op("SLICE", inputs[1], axes=(-1,), starts=(i,), ends=(i + 1,))
        columns.append(builder.op("SQUEEZE", column, axes=(-1,)))
    flat = ex.const(0, "i64")
    for axis in range(batch):
        flat = flat + ex.coord(axis) * steps[axis]
    for i in range(length):
        place = ex.cast(ex.input(i, indices.dtype), "i64")
        flat = flat + _inside(place, merged[batch + i]) * steps[batch + i]
    places = builder.op("FUSED_ELEMENTWISE", *columns, expr=ex.ExprBundle((flat,)), dtypes="i64")
    rows = builder.op("RESHAPE", inputs[0], shape=(product(merged), *x.shape[batch + length:]),
                      allowzero=True)
    picked = builder.op("GATHER", rows, places, axis=0)
    return [builder.op("RESHAPE", picked, shape=(*outer, *x.shape[batch + length:]),
                       allowzero=True)]


def tuple_extent(op: str, indices: TensorType) -> int:
    if not indices.rank or not isinstance(indices.shape[-1], int):
        raise ShapeMismatch(f"{op} indices need a known last extent", found=indices)
    return indices.shape[-1]


def _infer_gather_nd(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, indices = tensor(types, 0), tensor(types, 1)
    batch = attrs["batch_dims"]
    length = tuple_extent("GATHER_ND", indices)
    if not 0 <= batch < min(x.rank, indices.rank) or batch + length > x.rank or (
            x.shape[:batch] != indices.shape[:batch]):
        raise ShapeMismatch("GATHER_ND indices do not fit x", wanted=f"tuples into {x}",
                            found=f"{indices}, {batch} batch axes")
    check_not_empty("GATHER_ND", x, range(batch, batch + length), indices)
    return [TensorType(x.dtype, (*indices.shape[:-1], *x.shape[batch + length:]))]


def _reference_gather_nd(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, indices = _all(arrays)
    batch, length = attrs["batch_dims"], indices.shape[-1]
    outer = indices.shape[:-1]
    grid = np.ogrid[tuple(slice(n) for n in outer[:batch])] if batch else []
    places = [g.reshape(g.shape + (1,) * (len(outer) - batch)) for g in grid]
    places += [wrapped(indices[..., i], x.shape[batch + i]) for i in range(length)]
    out_shape = (*outer, *x.shape[batch + length:])
    if not np.prod(out_shape):
        return [np.zeros(out_shape, x.dtype)]
    return [np.broadcast_to(x[tuple(places)], out_shape)]


def _one_hot_axis(indices: TensorType | Array, attrs: dict[str, Any]) -> int:
    return axis_of("ONE_HOT", attrs["axis"], len(indices.shape) + 1)


def _infer_one_hot(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    indices, values = tensor(types, 0), tensor(types, 1)
    if values.shape != (2,):
        raise ShapeMismatch("ONE_HOT values are [off, on]", found=values, wanted="[2]")
    shape: list[Extent] = list(indices.shape)
    shape.insert(_one_hot_axis(indices, attrs), attrs["depth"])
    return [TensorType(values.dtype, tuple(shape))]


def _reference_one_hot(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    indices, values = _all(arrays)
    axis, depth = _one_hot_axis(indices, attrs), attrs["depth"]
    places = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    wanted = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - axis))
    return [np.where(places == wanted, values[1], values[0])]


def _decompose_one_hot(builder: Builder, inputs: Sequence[str],
                       attrs: dict[str, Any]) -> Sequence[str]:
    kind = builder.type(inputs[0])
    axis, depth = _one_hot_axis(kind, attrs), attrs["depth"]
    values = [builder.op("SLICE", inputs[1], starts=(i,), ends=(i + 1,)) for i in (0, 1)]
    off, on = (builder.op("RESHAPE", value, shape=()) for value in values)
    # i64 holds every index; the sum below must not wrap in a narrow type.
    places = builder.op("UNSQUEEZE", builder.op("CAST", inputs[0], to="i64"), axes=(axis,))
    zero = builder.constant(np.asarray(0, numpy_dtype("i64")))
    ahead = builder.op("ADD", places, builder.constant(np.asarray(depth, numpy_dtype("i64"))))
    places = builder.op("WHERE", builder.op("LESS", places, zero), ahead, places)
    wanted = np.arange(depth, dtype=np.int64).reshape(-1, *(1,) * (kind.rank - axis))
    return [builder.op("WHERE", builder.op("EQUAL", places, builder.constant(wanted)), on, off)]


_AXIS0 = AttrSpec("axis", "int", 0, doc="axis that the indices run along")

OPDEFS = (
    OpDef("GATHER", ("x", "indices"), 1, (AttrSpec("axis", "int", 0, doc="axis to pick along"),),
          _infer_gather, _reference_gather, properties=MOVE, family="gather",
          other={"indices": INDEX},
          doc="Pick slices along an axis; negative indices count from the end."),
    OpDef("GATHER_ELEMENTS", ("x", "indices"), 1, (_AXIS0,), _infer_gather_elements,
          _reference_gather_elements, properties=MOVE, family="gather", other={"indices": INDEX},
          decompose=_decompose_gather_elements,
          doc="Pick single elements along an axis."),
    OpDef("GATHER_ND", ("x", "indices"), 1,
          (AttrSpec("batch_dims", "int", 0, doc="leading axes shared with the indices"),),
          _infer_gather_nd, _reference_gather_nd, properties=MOVE, family="gather",
          other={"indices": INDEX}, decompose=_decompose_gather_nd,
          doc="Pick slices at index tuples."),
    OpDef("ONE_HOT", ("indices", "values"), 1,
          (AttrSpec("depth", "int", REQUIRED, doc="extent of the new axis"),
           AttrSpec("axis", "int", -1, doc="place of the new axis in the output")),
          _infer_one_hot, _reference_one_hot, family="composite",
          properties=frozenset({"rematerializable"}),
          other={"indices": ("i32", "i64", "u8", "i8", "f32"), "values": ALL},
          decompose=_decompose_one_hot,
          doc="values[1] where the new axis meets the index, values[0] elsewhere."),
)
