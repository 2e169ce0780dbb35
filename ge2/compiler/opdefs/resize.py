"""RESIZE: interpolation along axes, each axis a table of source positions and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np

from ...contract import AttrSpec, numpy_dtype
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import axes_of, tensor

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                "asymmetric", "tf_crop_and_resize")


@dataclass(frozen=True, slots=True)
class Taps:
    """How one axis is resampled: output i = sum over t of weights[i, t] * input[places[i, t]].

    Attributes:
        places, weights: [out, taps].
        outside: which outputs show the extrapolation value, or None.
    """

    places: Array
    weights: Array
    outside: Array | None


def extents(shape: Sequence[Extent], attrs: dict[str, Any]) -> dict[int, tuple[Extent, float]]:
    """Return the output extent and the scale of every resized axis.

    Raises:
        GraphError: neither or both of scales and sizes are given, or the lengths differ.
    """
    axes = attrs["axes"]
    axes = tuple(range(len(shape))) if axes is None else axes_of("RESIZE", axes, len(shape))
    scales, sizes = attrs["scales"], attrs["sizes"]
    given = sizes if scales is None else scales
    if (scales is None) == (sizes is None) or len(given) != len(axes):
        raise GraphError("RESIZE takes one scale or one size per axis",
                         found=f"scales={scales}, sizes={sizes}", wanted=f"{len(axes)} values")
    if attrs["roi"] is not None and len(attrs["roi"]) != 2 * len(axes):
        raise GraphError("RESIZE roi has the wrong length", found=len(attrs["roi"]),
                         wanted=2 * len(axes))
    if scales is not None:
        return {axis: (_scaled(shape[axis], scale), scale)
                for axis, scale in zip(axes, scales, strict=True)}
    if any(size < 0 for size in sizes):
        raise GraphError("RESIZE to a negative extent", found=sizes)
    whole: list[Any] = [shape[axis] for axis in axes]
    if not all(isinstance(e, int) and e for e in whole):
        raise ShapeMismatch("RESIZE to sizes needs known extents", found=tuple(whole))
    ratios = [float(size / e) for size, e in zip(sizes, whole, strict=True)]
    policy = attrs["keep_aspect_ratio_policy"]
    if policy == "stretch" or not axes:
        return {axis: (size, ratio) for axis, size, ratio in zip(axes, sizes, ratios, strict=True)}
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return {axis: (floor(one * e + 0.5), one) for axis, e in zip(axes, whole, strict=True)}


def _scaled(extent: Extent, scale: float) -> Extent:
    if scale <= 0:
        raise GraphError("RESIZE scales must be positive", found=scale)
    if isinstance(extent, int):
        return floor(extent * scale)
    if scale == int(scale):
        return extent * int(scale)
    if 1 / scale == int(1 / scale):
        return extent // int(1 / scale)
    raise ShapeMismatch("RESIZE of a symbolic extent takes a whole factor", found=scale)


def _sources(size: int, out: int, scale: float, mode: str, roi: tuple[float, float]) -> Array:
    """Return the source coordinate of every output position."""
    y = np.arange(out, dtype=np.float64)
    width = scale * size
    if mode == "align_corners":
        return np.zeros(out) if width == 1 else y * (size - 1) / (width - 1)
    if mode == "asymmetric":
        return y / scale
    if mode == "tf_crop_and_resize":
        step = (roi[1] - roi[0]) * (size - 1)
        inner = np.full(out, step / 2) if width == 1 else y * step / (width - 1)
        return np.asarray(inner + roi[0] * (size - 1))
    if mode == "pytorch_half_pixel" and width == 1:
        return np.full(out, -0.5)
    centre = (y + 0.5) / scale - 0.5
    return centre + size / 2 * (1 - out / width) if mode == "half_pixel_symmetric" else centre


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def axis_taps(size: int, out: int, scale: float, attrs: dict[str, Any],
              roi: tuple[float, float]) -> Taps:
    """Return the resampling table of one axis."""
    mode = attrs["coordinate_transformation_mode"]
    x = _sources(size, out, scale, mode, roi)
    outside = (x < 0) | (x > size - 1) if mode == "tf_crop_and_resize" else None
    if attrs["mode"] == "nearest":
        rule: dict[str, Any] = {"round_prefer_floor": lambda v: np.ceil(v - 0.5), "floor": np.floor,
                "round_prefer_ceil": lambda v: np.floor(v + 0.5), "ceil": np.ceil}
        places = rule[attrs["nearest_mode"]](x)[:, None]
        weights = np.ones((out, 1))
    else:
        places, weights = _weighted(x, scale, attrs)
        if attrs["exclude_outside"]:
            weights = np.where((places < 0) | (places >= size), 0.0, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
    return Taps(np.clip(places, 0, max(size - 1, 0)).astype(np.int64), weights, outside)


def _weighted(x: Array, scale: float, attrs: dict[str, Any]) -> tuple[Array, Array]:
    shrink = min(scale, 1.0) if attrs["antialias"] else 1.0
    radius = (1 if attrs["mode"] == "linear" else 2) / shrink
    first = int(np.floor(-radius)) + 1
    base = np.ceil(x) - 1  # so that the distance to the left neighbour is in (0, 1]
    steps = np.arange(first, 2 - first)
    distance = (steps[None] - (x - base)[:, None]) * shrink
    if attrs["mode"] == "linear":
        weights = np.clip(1 - np.abs(distance), 0, 1)
    else:
        weights = _cubic(distance, attrs["cubic_coeff_a"])
    if attrs["antialias"]:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return base[:, None] + steps[None], weights


def _tables(shape: Sequence[Extent], attrs: dict[str, Any]) -> dict[int, Taps]:
    """Return the table of every axis that changes; those have known extents."""
    found = extents(shape, attrs)
    roi = attrs["roi"] or (0.0,) * len(found) + (1.0,) * len(found)
    tables = {}
    for index, (axis, (out, scale)) in enumerate(found.items()):
        window = (roi[index], roi[len(found) + index])
        crops = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
        if scale != 1.0 or out != shape[axis] or (crops and window != (0.0, 1.0)):
            size = int(shape[axis])  # type: ignore[arg-type]
            tables[axis] = axis_taps(size, int(out), scale, attrs, window)  # type: ignore[arg-type]
    return tables


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if x.dtype not in FLOATS and attrs["mode"] != "nearest":
        raise GraphError(f"RESIZE of {x.dtype} has mode nearest only", found=attrs["mode"])
    shape = list(x.shape)
    for axis, (out, _) in extents(x.shape, attrs).items():
        if shape[axis] == 0 and out != 0:
            raise ShapeMismatch("RESIZE cannot enlarge an empty axis", found=x)
        shape[axis] = out
    return [TensorType(x.dtype, tuple(shape))]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    outside: list[tuple[int, Array]] = []
    for axis, taps in _tables(x.shape, attrs).items():
        spread = (-1, *(1,) * (x.ndim - axis - 1))
        total = None
        for t in range(taps.places.shape[1]):
            part = np.take(x, taps.places[:, t], axis=axis)
            if taps.places.shape[1] > 1:
                part = part * taps.weights[:, t].reshape(spread).astype(x.dtype)
            total = part if total is None else total + part
        assert total is not None
        x = total
        if taps.outside is not None:
            outside.append((axis, taps.outside))
    for axis, where in outside:
        mask = where.reshape(-1, *(1,) * (x.ndim - axis - 1))
        x = np.where(mask, x.dtype.type(attrs["extrapolation_value"]), x)
    return [x]


def _decompose(builder: Builder, inputs: Sequence[str],
               attrs: dict[str, Any]) -> Sequence[str] | None:
    """Resample the axes, two at a time, then show the value of what lies outside."""
    kind = builder.type(inputs[0])
    if not all(isinstance(kind.shape[axis], int) for axis in _changed(kind.shape, attrs)):
        return None
    tables = _tables(kind.shape, attrs)
    value, axes = inputs[0], sorted(tables)
    # The last two together: the kernel walks rows and columns of images.
    groups = [axes[:len(axes) % 2], *zip(axes[len(axes) % 2::2], axes[len(axes) % 2 + 1::2],
                                         strict=True)]
    for group in groups:
        if group:
            operands = [name for axis in group for name in _table(builder, tables[axis], kind)]
            while not operands[-1]:
                operands.pop()
            value = builder.op("RESAMPLE", value, *operands, axes=tuple(group))
    dtype = numpy_dtype(kind.dtype)
    for axis, taps in tables.items():
        if taps.outside is not None:
            mask = taps.outside.reshape(-1, *(1,) * (kind.rank - axis - 1))
            fill = builder.constant(np.asarray(attrs["extrapolation_value"], dtype))
            value = builder.op("WHERE", builder.constant(mask), fill, value)
    return [value if value != inputs[0] else builder.op("IDENTITY", value)]


def _changed(shape: Sequence[Extent], attrs: dict[str, Any]) -> list[int]:
    """Return the axes that need tables; the others may be symbolic."""
    crops = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    return [axis for axis, (out, scale) in extents(shape, attrs).items()
            if crops or scale != 1.0 or out != shape[axis]]


def _table(builder: Builder, taps: Taps, kind: TensorType) -> tuple[str, str]:
    """Return places and weights of an axis as constants; "" for weights that are all 1."""
    places = builder.constant(taps.places.astype(np.int32))
    if taps.places.shape[1] == 1 and bool(np.all(taps.weights == 1)):
        return places, ""
    dtype = np.float64 if kind.dtype == "f64" else np.float32
    return places, builder.constant(taps.weights.astype(dtype))


OPDEFS = (
    OpDef("RESIZE", ("x",), 1,
          (AttrSpec("scales", "floats", None, doc="factor per axis"),
           AttrSpec("sizes", "ints", None, doc="extent per axis"),
           AttrSpec("axes", "ints", None, doc="axes named; all when absent"),
           AttrSpec("mode", "str", "nearest", ("nearest", "linear", "cubic"), "interpolation"),
           AttrSpec("coordinate_transformation_mode", "str", "half_pixel", _COORDINATES,
                    "where an output element lies in the input"),
           AttrSpec("nearest_mode", "str", "round_prefer_floor",
                    ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"), "rounding"),
           AttrSpec("cubic_coeff_a", "float", -0.75, doc="coefficient of cubic"),
           AttrSpec("exclude_outside", "bool", False, doc="weights outside the input are 0"),
           AttrSpec("antialias", "bool", False, doc="widen the filter when shrinking"),
           AttrSpec("extrapolation_value", "float", 0.0, doc="outside of a crop"),
           AttrSpec("roi", "floats", None, doc="starts, then ends, of tf_crop_and_resize"),
           AttrSpec("keep_aspect_ratio_policy", "str", "stretch",
                    ("stretch", "not_larger", "not_smaller"), "what sizes mean")),
          _infer, _reference, properties=frozenset({"linear", "rematerializable"}),
          family="resize", dtypes=(*FLOATS, "u8", "i8", "i32", "i64"), decompose=_decompose,
          doc="Interpolate along axes."),
)
