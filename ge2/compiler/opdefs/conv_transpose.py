"""Transposed convolution: the adjoint of a convolution in its input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as indices
from typing import Any

import numpy as np

from ...contract import AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from . import activations
from .conv import CONV_ATTRS
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import optional, spatial, tensor

_NAME = "CONV_TRANSPOSE"


class _Geometry:
    """Spatial extents of one call; pads may be negative (they then crop less than nothing)."""

    def __init__(self, x: Sequence[Any], w: Sequence[Any], attrs: dict[str, Any]) -> None:
        n = len(x)
        self.strides = spatial(_NAME, attrs, "strides", n, 1)
        self.dilations = spatial(_NAME, attrs, "dilations", n, 1)
        extra = spatial(_NAME, attrs, "output_padding", n, 0)
        pads = spatial(_NAME, attrs, "pads", 2 * n, 0)
        full = [self.strides[i] * (x[i] - 1) + extra[i] + (w[i] - 1) * self.dilations[i] + 1
                for i in range(n)]
        wanted = attrs["output_shape"]
        if wanted is None and attrs["auto_pad"].startswith("SAME"):
            wanted = tuple(x[i] * self.strides[i] for i in range(n))
        self.pads: list[tuple[Extent, Extent]] = [(pads[i], pads[n + i]) for i in range(n)]
        if wanted is not None:
            self.pads = [self._shared(full[i] - wanted[i], attrs["auto_pad"]) for i in range(n)]
        self.outs: list[Extent] = [full[i] - low - high for i, (low, high) in enumerate(self.pads)]
        if wanted is not None:  # beyond what the products reach there are zeros
            self.outs = list(wanted)
        if any(isinstance(out, int) and out < 0 for out in self.outs):
            raise ShapeMismatch(f"{_NAME} pads remove more than there is", found=self.pads)

    @staticmethod
    def _shared(total: Extent, mode: str) -> tuple[Extent, Extent]:
        total = max(total, 0) if isinstance(total, int) else total
        half = total // 2
        return (half, total - half) if mode == "SAME_UPPER" else (total - half, half)


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, w, bias = tensor(types, 0), tensor(types, 1), optional(types, 2)
    group = attrs["group"]
    if attrs["output_shape"] is not None and any(attrs["pads"] or ()):
        raise GraphError(f"{_NAME} takes either pads or output_shape")
    if x.rank != w.rank or x.rank < 3 or x.shape[1] != w.shape[0] or group < 1 or (
            isinstance(w.shape[0], int) and w.shape[0] % group):
        raise ShapeMismatch(f"{_NAME} x and w do not fit", found=f"{x}, {w}, group {group}",
                            wanted="x [N, C, ...], w [C, O / group, ...]")
    channels = w.shape[1] * group
    if bias is not None and bias.shape != (channels,):
        raise ShapeMismatch(f"{_NAME} bias is one value per output channel", found=bias,
                            wanted=f"[{channels}]")
    outs = _Geometry(x.shape[2:], w.shape[2:], attrs).outs
    return [TensorType(x.dtype, (x.shape[0], channels, *outs))]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    """Products of every kernel position, added where they land."""
    x, w, bias = arrays[0], arrays[1], optional(arrays, 2)
    assert x is not None and w is not None
    g: Any = _Geometry(x.shape[2:], w.shape[2:], attrs)
    n, group = x.ndim - 2, attrs["group"]
    sizes, kernel = x.shape[2:], w.shape[2:]
    rows = x.reshape(x.shape[0], group, x.shape[1] // group, int(np.prod(sizes)))
    filters = w.reshape(group, w.shape[0] // group, -1)
    columns = filters.swapaxes(1, 2) @ rows
    columns = columns.reshape(x.shape[0], group * w.shape[1], *kernel, *sizes)
    full = [g.outs[i] + g.pads[i][0] + g.pads[i][1] for i in range(n)]
    reach = [(sizes[i] - 1) * g.strides[i] + (kernel[i] - 1) * g.dilations[i] + 1 if sizes[i]
             else 0 for i in range(n)]
    out = np.zeros((x.shape[0], columns.shape[1], *map(max, full, reach)), x.dtype)
    for place in indices(*map(range, kernel)):
        target = tuple(slice(place[i] * g.dilations[i],
                             place[i] * g.dilations[i] + (sizes[i] - 1) * g.strides[i] + 1,
                             g.strides[i]) for i in range(n))
        if all(sizes):
            window = out[(..., *target)]  # type: ignore[arg-type]
            window += columns[(slice(None), slice(None), *place)]  # type: ignore[arg-type]
    cut = tuple(slice(g.pads[i][0], g.pads[i][0] + g.outs[i]) for i in range(n))
    result: Array = out[(..., *cut)]  # type: ignore[arg-type]
    if bias is not None:
        result = result + bias.reshape(-1, *(1,) * n)
    return [activations.apply(attrs["act"], result, attrs["leaky_slope"])]


def _decompose(builder: Builder, inputs: Sequence[str],
               attrs: dict[str, Any]) -> Sequence[str] | None:
    """Spread the input by the strides with zeros, then convolve with the flipped weights."""
    x, w = inputs[0], inputs[1]
    kind, weights = builder.type(x), builder.type(w)
    n, group = kind.rank - 2, attrs["group"]
    g = _Geometry(kind.shape[2:], weights.shape[2:], attrs)
    if n > 3 or not all(isinstance(e, int) for e in (*weights.shape, *sum(g.pads, ()))):
        return None
    for i, stride in enumerate(g.strides):
        x = _spread(builder, x, 2 + i, stride) if stride > 1 else x
    low: list[Any] = []
    high: list[Any] = []
    for i in range(n):
        reach: Any = (weights.shape[2 + i] - 1) * g.dilations[i]
        spread = builder.type(x).shape[2 + i]
        low.append(reach - g.pads[i][0])
        high.append(g.outs[i] + reach - spread - low[i])
    if not all(isinstance(e, int) for e in (*low, *high)):
        return None
    x = builder.op("PAD", x, pads=(*low, *high), axes=tuple(range(2, 2 + n)))
    c, o = weights.shape[0], weights.shape[1]
    w = builder.op("RESHAPE", w, shape=(group, c // group, *weights.shape[1:]))
    w = builder.op("TRANSPOSE", w, perm=(0, 2, 1, *range(3, 3 + n)))
    w = builder.op("RESHAPE", w, shape=(group * o, c // group, *weights.shape[2:]))
    w = builder.op("FLIP", w, axes=tuple(range(2, 2 + n)))
    rest = {"group": group, "act": attrs["act"], "leaky_slope": attrs["leaky_slope"]}
    if n == 3:
        return [_convolve_volume(builder, x, w, inputs[2:], g.dilations, rest)]
    return [builder.op(f"CONV{n}D", x, w, *inputs[2:], dilations=g.dilations, **rest)]


def _convolve_volume(builder: Builder, x: str, w: str, bias: Sequence[str],
                     dilations: Sequence[int], rest: dict[str, Any]) -> str:
    """Convolve slices with each layer of the filters and add up; the last one finishes."""
    n, c, depth, *image = builder.type(x).shape
    layers = int(builder.type(w).shape[2])  # type: ignore[arg-type] # checked by the caller
    out: Any = depth - (layers - 1) * dilations[0]
    total: tuple[str, ...] = ()
    for layer in range(layers):
        start = layer * dilations[0]
        part = builder.op("SLICE", x, axes=(2,), starts=(start,), ends=(out + start,))
        part = builder.op("TRANSPOSE", part, perm=(0, 2, 1, 3, 4))
        part = builder.op("RESHAPE", part, shape=(n * out, c, *image), allowzero=True)
        taps = builder.op("SLICE", w, axes=(2,), starts=(layer,), ends=(layer + 1,))
        taps = builder.op("SQUEEZE", taps, axes=(2,))
        last = layer == layers - 1
        addends = bias if last else ()
        addends = addends or ("",) if total else addends
        made = builder.op("CONV2D", part, taps, *addends, *total, dilations=tuple(dilations[1:]),
                          **rest if last else {"group": rest["group"]})
        total = (made,)
    o, *image = builder.type(total[0]).shape[1:]
    volume = builder.op("RESHAPE", total[0], shape=(n, out, o, *image), allowzero=True)
    return builder.op("TRANSPOSE", volume, perm=(0, 2, 1, 3, 4))


def _spread(builder: Builder, value: str, axis: int, stride: int) -> str:
    """Insert stride - 1 zeros between neighbours along an axis."""
    kind = builder.type(value)
    wide = builder.op("UNSQUEEZE", value, axes=(axis + 1,))
    wide = builder.op("PAD", wide, pads=(0, stride - 1), axes=(axis + 1,))
    shape = (*kind.shape[:axis], kind.shape[axis] * stride, *kind.shape[axis + 1:])
    wide = builder.op("RESHAPE", wide, shape=shape, allowzero=True)
    return builder.op("SLICE", wide, axes=(axis,), starts=(0,),
                      ends=(kind.shape[axis] * stride - (stride - 1),))


OPDEFS = (
    OpDef(_NAME, ("x", "w", "bias?"), 1,
          (*CONV_ATTRS,
           AttrSpec("output_padding", "ints", None, doc="added at the ends of the output"),
           AttrSpec("output_shape", "ints", None, doc="spatial extents; computes pads")),
          _infer, _reference, properties=frozenset({"rematerializable"}), family="conv",
          dtypes=FLOATS, decompose=_decompose,
          doc="act(adjoint of a convolution + bias); w is [C, O / group, ...]; 1 to 3 axes."),
)
