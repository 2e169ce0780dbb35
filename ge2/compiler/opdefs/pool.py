"""Pools over sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec, numpy_dtype
from ...errors import GraphError, ShapeMismatch
from ..ir.nodes import TensorType
from .conv import AUTO_PAD, windows
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .reduce import lowest, max_over, mean_over
from .shapes import spatial, tensor, window_extent, window_pads

_POOL_ATTRS = (
    AttrSpec("kernel_shape", "ints", REQUIRED, doc="window extents"),
    AttrSpec("strides", "ints", None, doc="per spatial axis; 1"),
    AttrSpec("pads", "ints", None, doc="begins, then ends; 0"),
    AttrSpec("dilations", "ints", None, doc="per spatial axis; 1"),
    AttrSpec("ceil_mode", "bool", False, doc="round the output extent up"),
    AUTO_PAD,
)
_COUNT = AttrSpec("count_include_pad", "bool", False, doc="padding counts in the divisor")


class _Geometry:
    """Windows of one pool call on concrete or symbolic spatial extents."""

    def __init__(self, op: str, attrs: dict[str, Any], sizes: Sequence[Any]) -> None:
        n = len(sizes)
        self.kernel = attrs["kernel_shape"]
        if len(self.kernel) != n or n < 1:
            raise ShapeMismatch(f"{op} kernel_shape does not fit x", found=self.kernel,
                                wanted=f"{max(n, 1)} extents for the axes after N and C")
        if any(k < 1 for k in self.kernel):
            raise GraphError(f"{op} kernel_shape must be positive", found=self.kernel)
        self.strides = spatial(op, attrs, "strides", n, 1)
        self.dilations = spatial(op, attrs, "dilations", n, 1)
        spatial(op, attrs, "pads", 2 * n, 0)
        self.pads = window_pads(attrs, sizes, self.kernel, self.strides, self.dilations)
        ceil = attrs["ceil_mode"] and attrs["auto_pad"] == "NOTSET"
        self.outs: list[Any] = [
            window_extent(op, sizes[i], self.kernel[i], self.strides[i], self.dilations[i],
                          self.pads[i], ceil) for i in range(n)]

    def view(self, x: Array, fill: Any) -> Array:
        """Return [N, C, *outs, *kernel] windows of x padded with fill."""
        pads: list[Any] = [(0, 0), (0, 0)]
        for i, (low, high) in enumerate(self.pads):
            reach = ((self.outs[i] - 1) * self.strides[i]
                     + (self.kernel[i] - 1) * self.dilations[i] + 1)
            pads.append((low, max(high, reach - x.shape[2 + i] - low)))
        padded = np.pad(x, pads, constant_values=fill)
        return windows(padded, self.kernel, self.strides, self.dilations, self.outs)

    def counts(self, x: Array, include_pad: bool) -> Array:
        """Return the number of elements of each window, [*outs].

        What ceil mode adds beyond the declared padding never counts.
        """
        total = np.ones([1] * len(self.outs))
        for i, (low, high) in enumerate(self.pads):
            starts = np.arange(self.outs[i])[:, None] * self.strides[i]
            places = starts + np.arange(self.kernel[i])[None] * self.dilations[i]
            first, last = (0, low + x.shape[2 + i] + high) if include_pad else (
                low, low + x.shape[2 + i])
            one = ((places >= first) & (places < last)).sum(axis=1)
            total = total * one.reshape([-1 if j == i else 1 for j in range(len(self.outs))])
        return total


def _infer(op: str) -> Any:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        outs = _Geometry(op, attrs, x.shape[2:]).outs
        return [TensorType(x.dtype, (*x.shape[:2], *outs))]

    return infer


def _reference_max(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    geometry = _Geometry("MAX_POOL", attrs, x.shape[2:])
    n = len(geometry.outs)
    view = geometry.view(x, lowest(x.dtype))
    return [view.max(axis=tuple(range(2 + n, 2 + 2 * n)), initial=lowest(x.dtype))]


def _reference_average(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    geometry = _Geometry("AVG_POOL", attrs, x.shape[2:])
    n = len(geometry.outs)
    total = geometry.view(x, 0).sum(axis=tuple(range(2 + n, 2 + 2 * n)))
    return [total / geometry.counts(x, attrs["count_include_pad"]).astype(x.dtype)]


def _reference_lp(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    geometry = _Geometry("LP_POOL", attrs, x.shape[2:])
    n, p = len(geometry.outs), attrs["p"]
    powers = geometry.view(np.abs(x) ** p, 0).sum(axis=tuple(range(2 + n, 2 + 2 * n)))
    return [powers ** x.dtype.type(1 / p)]


def _decompose_lp(builder: Builder, inputs: Sequence[str], attrs: dict[str, Any]) -> Sequence[str]:
    """The mean of powers times the window size, to the 1 / p."""
    dtype = numpy_dtype(builder.type(inputs[0]).dtype)

    def number(value: float) -> str:
        return builder.constant(np.asarray(value, dtype))

    pool = {name: value for name, value in attrs.items() if name != "p"}
    powers = builder.op("POW", builder.op("ABS", inputs[0]), number(attrs["p"]))
    mean = builder.op("AVG_POOL", powers, count_include_pad=True, **pool)
    total = builder.op("MUL", mean, number(float(np.prod(attrs["kernel_shape"]))))
    return [builder.op("POW", total, number(1 / attrs["p"]))]


def _decompose_axes(op: str) -> Any:
    """Return the decomposition of a pool over one or three axes into pools of images.

    One axis makes images of height 1. Three axes are pooled as (H, W), then as (D, 1): maxima and
    means factor over axes, also where padding does not count, because counts do.
    """

    def decompose(builder: Builder, inputs: Sequence[str],
                  attrs: dict[str, Any]) -> Sequence[str] | None:
        if builder.type(inputs[0]).rank == 5:
            return [_pool_volume(op, builder, inputs[0], attrs)]
        if builder.type(inputs[0]).rank != 3:
            return None
        two = dict(attrs, kernel_shape=(1, *attrs["kernel_shape"]))
        for name in ("strides", "dilations"):
            two[name] = (1, *attrs[name]) if attrs[name] else None
        if attrs["pads"]:
            two["pads"] = (0, attrs["pads"][0], 0, attrs["pads"][1])
        image = builder.op("UNSQUEEZE", inputs[0], axes=(2,))
        return [builder.op("SQUEEZE", builder.op(op, image, **two), axes=(2,))]

    return decompose


def _pool_volume(op: str, builder: Builder, x: str, attrs: dict[str, Any]) -> str:
    def some(axes: tuple[int, ...], unit: bool) -> dict[str, Any]:
        """Return the attributes for some of the three axes, and an idle one after them."""
        result = dict(attrs)
        for name, idle in (("kernel_shape", 1), ("strides", 1), ("dilations", 1)):
            if attrs[name]:
                result[name] = (*(attrs[name][i] for i in axes), *(idle,) * unit)
        if attrs["pads"]:
            begins, ends = attrs["pads"][:3], attrs["pads"][3:]
            result["pads"] = (*(begins[i] for i in axes), *(0,) * unit,
                              *(ends[i] for i in axes), *(0,) * unit)
        return result

    n, c, d, h, w = builder.type(x).shape
    planes = builder.op("RESHAPE", x, shape=(n, c * d, h, w), allowzero=True)
    planes = builder.op(op, planes, **some((1, 2), False))
    h, w = builder.type(planes).shape[2:]
    columns = builder.op("RESHAPE", planes, shape=(n, c, d, h * w), allowzero=True)
    columns = builder.op(op, columns, **some((0,), True))
    shape = (n, c, builder.type(columns).shape[2], h, w)
    return builder.op("RESHAPE", columns, shape=shape, allowzero=True)


def _global(name: str, reduce: str, doc: str, properties: frozenset[str]) -> OpDef:
    def axes(rank: int) -> tuple[int, ...]:
        return tuple(range(2, rank))

    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        if x.rank < 3:
            raise ShapeMismatch(f"{name} takes x of rank 3 or more", found=x)
        return [TensorType(x.dtype, (*x.shape[:2], *(1,) * (x.rank - 2)))]

    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        kernel = mean_over if reduce == "REDUCE_MEAN" else max_over
        return [kernel(x, axes(x.ndim))]

    def decompose(builder: Builder, inputs: Sequence[str], attrs: dict[str, Any]) -> Sequence[str]:
        return [builder.op(reduce, inputs[0], axes=axes(builder.type(inputs[0]).rank))]

    return OpDef(name, ("x",), 1, (), infer, reference, properties=properties, family="row",
                 dtypes=FLOATS, doc=doc, decompose=decompose)


_KEEP = frozenset({"rematerializable"})
_P = AttrSpec("p", "int", 2, doc="exponent of the norm")

OPDEFS = (
    OpDef("MAX_POOL", ("x",), 1, _POOL_ATTRS, _infer("MAX_POOL"), _reference_max,
          properties=_KEEP, family="pool", dtypes=(*FLOATS, "u8", "i8"),
          decompose=_decompose_axes("MAX_POOL"),
          doc="Maximum over windows; padding never wins; NaN propagates."),
    OpDef("AVG_POOL", ("x",), 1, (*_POOL_ATTRS, _COUNT), _infer("AVG_POOL"), _reference_average,
          properties=_KEEP | {"linear"}, family="pool", dtypes=FLOATS,
          decompose=_decompose_axes("AVG_POOL"), doc="Mean over windows."),
    OpDef("LP_POOL", ("x",), 1, (*_POOL_ATTRS, _P), _infer("LP_POOL"), _reference_lp,
          properties=_KEEP, family="pool", dtypes=FLOATS, decompose=_decompose_lp,
          doc="p-norm over windows."),
    _global("GLOBAL_MAX_POOL", "REDUCE_MAX", "Maximum over all spatial axes.",
            _KEEP | {"mergeable"}),
    _global("GLOBAL_AVG_POOL", "REDUCE_MEAN", "Mean over all spatial axes.",
            _KEEP | {"mergeable", "linear"}),
)
