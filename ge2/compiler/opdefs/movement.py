"""Operators that only move elements: views, joins and cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Dim, Extent
from ..ir.nodes import TensorType
from ..ir.size import Size
from .opdef import Array, Arrays, Attrs, OpDef, Types
from .shapes import axes_of, axis_of, broadcast, reshaped, tensor

VIEW = frozenset({"view", "linear", "rematerializable"})
MOVE = frozenset({"linear", "rematerializable"})


def _only(arrays: Arrays) -> Array:
    x = arrays[0]
    assert x is not None
    return x


def permutation(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """Return the axis order of a TRANSPOSE; reversed when none is given."""
    perm = attrs["perm"]
    if perm is None:
        return tuple(reversed(range(rank)))
    axes = axes_of("TRANSPOSE", perm, rank)
    if len(axes) != rank:
        raise GraphError("TRANSPOSE perm does not name every axis", found=perm,
                         wanted=f"{rank} axes")
    return axes


def _infer_transpose(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    return [TensorType(x.dtype, tuple(x.shape[a] for a in permutation(attrs, x.rank)))]


def _reference_transpose(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = _only(arrays)
    return [x.transpose(permutation(attrs, x.ndim))]


def _infer_reshape(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    return [TensorType(x.dtype, reshaped("RESHAPE", x.shape, attrs["shape"], attrs["allowzero"]))]


def _reference_reshape(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = _only(arrays)
    shape: Any = reshaped("RESHAPE", x.shape, attrs["shape"], attrs["allowzero"])
    return [x.reshape(shape)]


def _flat_shape(x: TensorType | Array, axis: int) -> tuple[Extent, Extent]:
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise GraphError("FLATTEN axis is out of range", found=axis, wanted=f"-{rank}..{rank}")
    axis = axis + rank if axis < 0 else axis
    rows: Extent = 1
    columns: Extent = 1
    for extent in x.shape[:axis]:
        rows = rows * extent
    for extent in x.shape[axis:]:
        columns = columns * extent
    return rows, columns


def _infer_flatten(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    return [TensorType(x.dtype, _flat_shape(x, attrs["axis"]))]


def _squeezed(shape: Sequence[Extent], axes: Sequence[int] | None) -> tuple[Extent, ...]:
    if axes is None:
        return tuple(extent for extent in shape if extent != 1)
    gone = axes_of("SQUEEZE", axes, len(shape))
    for axis in gone:
        if shape[axis] != 1:
            raise ShapeMismatch(f"SQUEEZE axis {axis} has more than one element",
                                found=shape[axis], wanted=1)
    return tuple(extent for index, extent in enumerate(shape) if index not in gone)


def _infer_squeeze(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    return [TensorType(x.dtype, _squeezed(x.shape, attrs["axes"]))]


def _unsqueezed(shape: Sequence[Extent], axes: Sequence[int]) -> tuple[Extent, ...]:
    rank = len(shape) + len(axes)
    new = axes_of("UNSQUEEZE", axes, rank)
    rest = iter(shape)
    return tuple(1 if index in new else next(rest) for index in range(rank))


def _infer_unsqueeze(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    return [TensorType(x.dtype, _unsqueezed(x.shape, attrs["axes"]))]


def _infer_expand(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if any(isinstance(extent, int) and extent < 0 for extent in attrs["shape"]):
        raise GraphError("EXPAND to a negative extent", found=attrs["shape"])
    return [TensorType(x.dtype, broadcast("EXPAND", [x.shape, attrs["shape"]]))]


def _reference_expand(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = _only(arrays)
    shape: Any = broadcast("EXPAND", [x.shape, attrs["shape"]])
    return [np.broadcast_to(x, shape)]


def _infer_concat(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    first = tensor(types, 0)
    axis = axis_of("CONCAT", attrs["axis"], first.rank)
    total: Extent = 0
    for index in range(len(types)):
        given = tensor(types, index)
        others = (*given.shape[:axis], *given.shape[axis + 1:])
        if given.rank != first.rank or others != (*first.shape[:axis], *first.shape[axis + 1:]):
            raise ShapeMismatch(f"CONCAT inputs differ outside axis {axis}", found=given,
                                wanted=f"like {first}")
        total = total + given.shape[axis]
    return [TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1:]))]


def _reference_concat(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    return [np.concatenate([a for a in arrays if a is not None], axis=attrs["axis"])]


def slice_range(start: Extent, end: Extent, step: int, size: Extent) -> tuple[Extent, Extent]:
    """Return (first index, number of elements) of one sliced axis.

    On a symbolic extent a negative bound counts from the end and a bound beyond any tensor (ONNX
    writes INT_MAX) means the end; a start or end in between is taken as inside the tensor.
    """
    if step == 0:
        raise GraphError("SLICE step must not be 0")
    if any(isinstance(value, Size) for value in (start, end, size)) and step > 0:
        begin, stop = (_clamped(value, size) for value in (start, end))
        return begin, (stop - begin + (step - 1)) // step if stop > begin else 0
    if isinstance(size, int) and isinstance(end, int) and isinstance(start, int):
        first, last, _ = slice(start, end, step).indices(size)
        return first, max(0, -((first - last) // step))
    begin = _bound(start, size, size - 1 if step < 0 else size, 0)
    stop = _bound(end, size, size, -1 if step < 0 else 0)
    if step > 0:
        return begin, (stop - begin + (step - 1)) // step
    return begin, (begin - stop + (-step - 1)) // -step


def _clamped(value: Any, size: Any) -> Any:
    """Return a slice bound as an index; comparisons of sizes are conditions of their class."""
    value = value if value >= 0 else size + value
    if value < 0:
        return 0
    return value if value <= size else size


def _bound(value: Extent, size: Extent, most: Extent, least: Extent) -> Extent:
    """Return a slice bound as an index; most and least stand for beyond either end."""
    if isinstance(value, Dim):
        return value
    if abs(value) > 2**30:
        return most if value > 0 else least
    return value if value >= 0 else size + value


def slice_axes(attrs: Attrs, shape: Sequence[Extent]) -> list[tuple[int, Extent, int, Extent]]:
    """Return (axis, first index, step, number of elements) of each sliced axis.

    Raises:
        GraphError: the lists differ in length, an axis repeats or a step is 0.
    """
    starts, ends = attrs["starts"], attrs["ends"]
    axes = attrs["axes"] if attrs["axes"] is not None else tuple(range(len(starts)))
    steps = attrs["steps"] or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise GraphError("SLICE starts, ends, axes and steps differ in length",
                         found=tuple(map(len, (starts, ends, axes, steps))))
    result = []
    for axis, start, end, step in zip(axes_of("SLICE", axes, len(shape)), starts, ends, steps,
                                      strict=True):
        first, count = slice_range(start, end, step, shape[axis])
        result.append((axis, first, step, count))
    return result


def _infer_slice(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    shape = list(x.shape)
    for axis, _, _, count in slice_axes(attrs, x.shape):
        shape[axis] = count
    return [TensorType(x.dtype, tuple(shape))]


def _reference_slice(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = _only(arrays)
    index: list[Any] = [slice(None)] * x.ndim
    for axis, first, step, count in slice_axes(attrs, x.shape):
        assert isinstance(first, int) and isinstance(count, int)
        stop = first + count * step
        index[axis] = slice(first, stop if stop >= 0 else None, step) if count else slice(0, 0)
    return [x[tuple(index)]]


def _infer_flip(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    axes_of("FLIP", attrs["axes"], x.rank)
    return [x]


def _as_inferred(infer: Any) -> Any:
    """Return the reference of an operator that only regroups axes: reshape to the inferred."""

    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x = _only(arrays)
        return [x.reshape(infer([TensorType("f32", x.shape)], attrs)[0].shape)]

    return reference


def _as_reshape(infer: Any) -> Any:
    """Return the decomposition of such an operator: a RESHAPE to the inferred shape."""

    def decompose(builder: Any, inputs: Sequence[str], attrs: dict[str, Any]) -> Sequence[str]:
        shape = infer([builder.type(inputs[0])], attrs)[0].shape
        return [builder.op("RESHAPE", inputs[0], shape=shape, allowzero=True)]

    return decompose


def _regroup(name: str, infer: Any, attrs: tuple[AttrSpec, ...], doc: str) -> OpDef:
    return OpDef(name, ("x",), 1, attrs, infer, _as_inferred(infer), properties=VIEW, doc=doc,
                 decompose=_as_reshape(infer))


OPDEFS = (
    OpDef("TRANSPOSE", ("x",), 1, (AttrSpec("perm", "ints", None, doc="axis order; reversed"),),
          _infer_transpose, _reference_transpose, properties=VIEW | {"composes"},
          doc="Permute axes."),
    OpDef("RESHAPE", ("x",), 1,
          (AttrSpec("shape", "ints", REQUIRED, doc="0 copies an extent, one -1 is computed"),
           AttrSpec("allowzero", "bool", False, doc="0 means an empty axis")),
          _infer_reshape, _reference_reshape, properties=VIEW | {"composes"},
          doc="Same elements in row-major order under another shape."),
    _regroup("FLATTEN", _infer_flatten,
             (AttrSpec("axis", "int", 1, doc="first axis of the columns"),),
             "Two axes: the product of those before axis, and of the rest."),
    _regroup("SQUEEZE", _infer_squeeze,
             (AttrSpec("axes", "ints", None, doc="axes of extent 1 to drop; all when absent"),),
             "Drop axes of extent 1."),
    _regroup("UNSQUEEZE", _infer_unsqueeze,
             (AttrSpec("axes", "ints", REQUIRED, doc="positions in the output"),),
             "Insert axes of extent 1."),
    OpDef("EXPAND", ("x",), 1, (AttrSpec("shape", "ints", REQUIRED, doc="to broadcast with"),),
          _infer_expand, _reference_expand, properties=VIEW, doc="Broadcast with a shape."),
    OpDef("CONCAT", ("x", "xs*"), 1, (AttrSpec("axis", "int", REQUIRED, doc="axis to join"),),
          _infer_concat, _reference_concat, properties=MOVE, doc="Join tensors along an axis."),
    OpDef("SLICE", ("x",), 1,
          (AttrSpec("starts", "ints", REQUIRED, doc="first index per axis"),
           AttrSpec("ends", "ints", REQUIRED, doc="end index per axis, exclusive"),
           AttrSpec("axes", "ints", None, doc="axes; the leading ones when absent"),
           AttrSpec("steps", "ints", None, doc="steps; may be negative")),
          _infer_slice, _reference_slice, properties=VIEW, doc="Cut ranges out of axes."),
    OpDef("FLIP", ("x",), 1, (AttrSpec("axes", "ints", REQUIRED, doc="axes to reverse"),),
          _infer_flip, lambda arrays, attrs: [np.flip(_only(arrays), attrs["axes"])],
          properties=VIEW, doc="Reverse the order of elements along axes."),
)
