"""Operators that move elements and are compositions of views and joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec, numpy_dtype
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from .movement import MOVE, VIEW
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import axes_of, axis_of, tensor


def _only(arrays: Arrays) -> Array:
    x = arrays[0]
    assert x is not None
    return x


def split_extents(x: TensorType, attrs: dict[str, Any]) -> tuple[int, list[Extent]]:
    """Return (axis, extent of each piece) of a SPLIT.

    Raises:
        GraphError: neither or both of split and num_outputs are given.
        ShapeMismatch: the pieces do not add up.
    """
    axis = axis_of("SPLIT", attrs["axis"], x.rank)
    size = x.shape[axis]
    split, count = attrs["split"], attrs["num_outputs"]
    if (split is None) == (count is None):
        raise GraphError("SPLIT takes either split or num_outputs",
                         found=f"split={split}, num_outputs={count}")
    if split is None:
        if count < 1:
            raise GraphError("SPLIT num_outputs must be positive", found=count)
        step = (size + (count - 1)) // count
        return axis, [*[step] * (count - 1), size - step * (count - 1)]
    total: Extent = 0
    for extent in split:
        total = total + extent
    if total != size:
        raise ShapeMismatch("SPLIT pieces do not add up", found=tuple(split), wanted=size)
    return axis, list(split)


def _infer_split(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    axis, extents = split_extents(x, attrs)
    return [TensorType(x.dtype, (*x.shape[:axis], e, *x.shape[axis + 1:])) for e in extents]


def _reference_split(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = _only(arrays)
    extents: Any
    axis, extents = split_extents(TensorType("f32", x.shape), attrs)
    return list(np.split(x, np.cumsum(extents)[:-1], axis=axis))


def _decompose_split(builder: Builder, inputs: Sequence[str],
                     attrs: dict[str, Any]) -> Sequence[str]:
    axis, extents = split_extents(builder.type(inputs[0]), attrs)
    start: Extent = 0
    pieces = []
    for extent in extents:
        pieces.append(builder.op("SLICE", inputs[0], starts=(start,), ends=(start + extent,),
                                 axes=(axis,)))
        start = start + extent
    return pieces


def axis_pads(rank: int, attrs: dict[str, Any]) -> list[tuple[int, int]]:
    """Return what PAD adds before and after every axis."""
    axes = attrs["axes"]
    axes = tuple(range(rank)) if axes is None else axes_of("PAD", axes, rank)
    pads = attrs["pads"]
    if len(pads) != 2 * len(axes):
        raise GraphError("PAD pads has the wrong length", found=len(pads), wanted=2 * len(axes))
    result = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        result[axis] = (pads[index], pads[len(axes) + index])
    return result


def _infer_pad(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if x.dtype not in FLOATS and not math.isfinite(attrs["value"]):
        raise GraphError(f"PAD value does not fit {x.dtype}", found=attrs["value"])
    shape = []
    for size, (low, high) in zip(x.shape, axis_pads(x.rank, attrs), strict=True):
        out = size + low + high
        if isinstance(out, int) and out < 0:
            raise ShapeMismatch("PAD removes more than there is", found=(low, high), wanted=size)
        if attrs["mode"] != "constant" and size == 0 and (low > 0 or high > 0):
            raise ShapeMismatch(f"PAD cannot {attrs['mode']} an axis this short", found=size)
        shape.append(out)
    return [TensorType(x.dtype, tuple(shape))]


def pad_places(size: int, low: int, high: int, mode: str) -> Array:
    """Return which element each output position of a padded axis shows."""
    places = np.arange(-low, size + high)
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    period = max(2 * (size - 1), 1)
    folded = places % period
    return np.asarray(np.minimum(folded, period - folded) if size > 1 else folded)


def _reference_pad(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = _only(arrays)
    pads = axis_pads(x.ndim, attrs)
    if attrs["mode"] == "constant":
        crop = tuple(slice(max(-low, 0), size - max(-high, 0))
                     for size, (low, high) in zip(x.shape, pads, strict=True))
        grow = [(max(low, 0), max(high, 0)) for low, high in pads]
        fill = x.dtype.type(attrs["value"])
        return [np.pad(x[crop], grow, constant_values=fill) if grow else x]
    for axis, (low, high) in enumerate(pads):
        if low or high:
            x = np.take(x, pad_places(x.shape[axis], low, high, attrs["mode"]), axis=axis)
    return [x]


def _decompose_pad(builder: Builder, inputs: Sequence[str],
                   attrs: dict[str, Any]) -> Sequence[str] | None:
    """Constant padding joins with an expanded scalar; the other modes gather each axis."""
    value = inputs[0]
    for axis, (low, high) in enumerate(axis_pads(builder.type(value).rank, attrs)):
        if not low and not high:
            continue
        size = builder.type(value).shape[axis]
        if attrs["mode"] != "constant":
            if not isinstance(size, int):
                return None
            places = builder.constant(pad_places(size, low, high, attrs["mode"]).astype(np.int64))
            value = builder.op("GATHER", value, places, axis=axis)
            continue
        if low < 0 or high < 0:
            start = max(-low, 0)
            value = builder.op("SLICE", value, axes=(axis,), starts=(start,),
                               ends=(size - max(-high, 0),))
        value = _join_fill(builder, value, axis, max(low, 0), max(high, 0), attrs["value"])
    return [value if value != inputs[0] else builder.op("IDENTITY", value)]


def _join_fill(builder: Builder, value: str, axis: int, low: int, high: int, fill: float) -> str:
    if not low and not high:
        return value
    kind = builder.type(value)
    scalar = builder.constant(np.full((1,) * kind.rank, fill, numpy_dtype(kind.dtype)))

    def block(extent: int) -> list[str]:
        shape = (*kind.shape[:axis], extent, *kind.shape[axis + 1:])
        return [builder.op("EXPAND", scalar, shape=shape)] if extent else []

    return builder.op("CONCAT", *block(low), value, *block(high), axis=axis)


def _infer_tile(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if len(attrs["repeats"]) != x.rank or any(r < 0 for r in attrs["repeats"]):
        raise ShapeMismatch("TILE takes one repeat count per axis", found=attrs["repeats"],
                            wanted=f"{x.rank} counts")
    shape = tuple(e * r for e, r in zip(x.shape, attrs["repeats"], strict=True))
    return [TensorType(x.dtype, shape)]


def _decompose_tile(builder: Builder, inputs: Sequence[str],
                    attrs: dict[str, Any]) -> Sequence[str]:
    kind = builder.type(inputs[0])
    single: list[Extent] = []
    wide: list[Extent] = []
    for extent, repeat in zip(kind.shape, attrs["repeats"], strict=True):
        single += [1, extent]
        wide += [repeat, extent]
    value = builder.op("RESHAPE", inputs[0], shape=tuple(single), allowzero=True)
    value = builder.op("EXPAND", value, shape=tuple(wide))
    shape = _infer_tile([kind], attrs)[0].shape
    return [builder.op("RESHAPE", value, shape=shape, allowzero=True)]


def _blocks(x: TensorType, attrs: dict[str, Any], op: str) -> tuple[Any, Any, Any]:
    """Return (first shape, permutation, last shape) of a block rearrangement."""
    if x.rank != 4:
        raise ShapeMismatch(f"{op} takes NCHW", found=x)
    n, c, h, w = x.shape
    b = attrs["blocksize"]
    deep = op == "DEPTH_TO_SPACE"
    for extent in ([c] if deep else [h, w]):
        block = b * b if deep else b
        if b < 1 or (isinstance(extent, int) and extent % block):
            raise ShapeMismatch(f"{op} blocksize does not divide", found=extent,
                                wanted=f"a multiple of {block}")
    if not deep:
        perm = (0, 3, 5, 1, 2, 4) if attrs["mode"] == "DCR" else (0, 1, 3, 5, 2, 4)
        return (n, c, h // b, b, w // b, b), perm, (n, c * b * b, h // b, w // b)
    small = c // (b * b)
    if attrs["mode"] == "DCR":
        return (n, b, b, small, h, w), (0, 3, 4, 1, 5, 2), (n, small, h * b, w * b)
    return (n, small, b, b, h, w), (0, 1, 4, 2, 5, 3), (n, small, h * b, w * b)


def _rearrange(op: str, doc: str) -> OpDef:
    def infer(types: Types, given: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        return [TensorType(x.dtype, _blocks(x, given, op)[2])]

    def reference(arrays: Arrays, given: dict[str, Any]) -> list[Array]:
        x = _only(arrays)
        first, perm, last = _blocks(TensorType("f32", x.shape), given, op)
        return [x.reshape(first).transpose(perm).reshape(last)]

    def decompose(builder: Builder, inputs: Sequence[str], given: dict[str, Any]) -> Sequence[str]:
        first, perm, last = _blocks(builder.type(inputs[0]), given, op)
        value = builder.op("RESHAPE", inputs[0], shape=first, allowzero=True)
        value = builder.op("TRANSPOSE", value, perm=perm)
        return [builder.op("RESHAPE", value, shape=last, allowzero=True)]

    attrs = (AttrSpec("blocksize", "int", REQUIRED, doc="extent of a block"),
             AttrSpec("mode", "str", "DCR", ("DCR", "CRD"), "channel order"))
    return OpDef(op, ("x",), 1, attrs, infer, reference, properties=MOVE, doc=doc,
                 decompose=decompose)


OPDEFS = (
    OpDef("SPLIT", ("x",), 0,
          (AttrSpec("axis", "int", 0, doc="axis to cut"),
           AttrSpec("split", "ints", None, doc="extents of the pieces"),
           AttrSpec("num_outputs", "int", None, doc="equal pieces; the last may be smaller")),
          _infer_split, _reference_split, properties=VIEW, decompose=_decompose_split,
          doc="Cut an axis into pieces."),
    OpDef("PAD", ("x",), 1,
          (AttrSpec("pads", "ints", REQUIRED, doc="begins, then ends; negative ones crop"),
           AttrSpec("mode", "str", "constant", ("constant", "reflect", "edge", "wrap"), "fill"),
           AttrSpec("value", "float", 0.0, doc="fill of constant"),
           AttrSpec("axes", "ints", None, doc="axes that pads names; all when absent")),
          _infer_pad, _reference_pad, properties=MOVE, decompose=_decompose_pad,
          doc="Extend (or crop) axes at both ends."),
    OpDef("TILE", ("x",), 1, (AttrSpec("repeats", "ints", REQUIRED, doc="copies per axis"),),
          _infer_tile, lambda arrays, attrs: [np.tile(_only(arrays), attrs["repeats"])],
          properties=MOVE, decompose=_decompose_tile, doc="Repeat the whole tensor along axes."),
    _rearrange("DEPTH_TO_SPACE", "Channels into blocks of pixels."),
    _rearrange("SPACE_TO_DEPTH", "Blocks of pixels into channels."),
)
