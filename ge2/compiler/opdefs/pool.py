"""Pools over sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.nodes import TensorType
from .conv import AUTO_PAD, windows
from .opdef import FLOATS, Array, Arrays, OpDef, Types
from .reduce import lowest
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


OPDEFS = (
    OpDef("MAX_POOL", ("x",), 1, _POOL_ATTRS, _infer("MAX_POOL"), _reference_max,
          properties=frozenset({"rematerializable"}), family="pool",
          dtypes=(*FLOATS, "u8", "i8"),
          doc="Maximum over windows; padding never wins; NaN propagates."),
    OpDef("AVG_POOL", ("x",), 1, (*_POOL_ATTRS, _COUNT), _infer("AVG_POOL"), _reference_average,
          properties=frozenset({"linear", "rematerializable"}), family="pool", dtypes=FLOATS,
          doc="Mean over windows."),
)
