"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...contract import AttrSpec
from ...errors import ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from . import activations
from .gemm import ACT_NAMES
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import optional, spatial, tensor, window_extent, window_pads

AUTO_PAD = AttrSpec("auto_pad", "str", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
                    doc="computes pads from the shapes")
CONV_ATTRS = (
    AttrSpec("strides", "ints", None, doc="per spatial axis; 1"),
    AttrSpec("pads", "ints", None, doc="begins, then ends; 0"),
    AttrSpec("dilations", "ints", None, doc="per spatial axis; 1"),
    AttrSpec("group", "int", 1, doc="channel groups"),
    AUTO_PAD,
    AttrSpec("act", "str", "none", ACT_NAMES, doc="activation"),
    AttrSpec("leaky_slope", "float", 0.01, doc="slope of leaky_relu"),
)


def check_channels(op: str, x: TensorType, w: TensorType, n: int, group: int) -> None:
    """Check ranks and that group divides the channels (x NC..., w O I/group ...)."""
    if x.rank != n + 2 or w.rank != n + 2:
        raise ShapeMismatch(f"{op} takes x and w of rank {n + 2}", found=f"{x} and {w}")
    if group < 1 or w.shape[1] * group != x.shape[1]:
        raise ShapeMismatch(f"{op} channels do not match", found=f"x {x}, w {w}, group {group}",
                            wanted="x.shape[1] == w.shape[1] * group")
    if isinstance(w.shape[0], int) and w.shape[0] % group:
        raise ShapeMismatch(f"{op} group does not divide the output channels",
                            found=f"{w.shape[0]} channels, group {group}")


def _geometry(op: str, attrs: dict[str, Any], sizes: Sequence[Extent], kernel: Sequence[Extent],
              ) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[Extent, Extent]]]:
    n = len(sizes)
    strides = spatial(op, attrs, "strides", n, 1)
    dilations = spatial(op, attrs, "dilations", n, 1)
    spatial(op, attrs, "pads", 2 * n, 0)
    return strides, dilations, window_pads(attrs, sizes, kernel, strides, dilations)


def _infer(op: str, n: int) -> Any:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x, w, bias = tensor(types, 0), tensor(types, 1), optional(types, 2)
        check_channels(op, x, w, n, attrs["group"])
        if bias is not None and bias.shape != (w.shape[0],):
            raise ShapeMismatch(f"{op} bias is one value per output channel", found=bias,
                                wanted=f"[{w.shape[0]}]")
        residual = optional(types, 3)
        strides, dilations, pads = _geometry(op, attrs, x.shape[2:], w.shape[2:])
        outs = [window_extent(op, x.shape[2 + i], w.shape[2 + i], strides[i], dilations[i],
                              pads[i]) for i in range(n)]
        result = TensorType(x.dtype, (x.shape[0], w.shape[0], *outs))
        if residual is not None and residual.shape != result.shape:
            raise ShapeMismatch(f"{op} residual has another shape than the result",
                                found=residual, wanted=result)
        return [result]

    return infer


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
            outs: Sequence[int]) -> Array:
    """Return the view [N, C, *outs, *kernel] of a padded x whose last axes are one window."""
    n = len(kernel)
    steps = x.strides[2:]
    return as_strided(
        x, shape=(*x.shape[:2], *outs, *kernel),
        strides=(*x.strides[:2], *(steps[i] * strides[i] for i in range(n)),
                 *(steps[i] * dilations[i] for i in range(n))), writeable=False)


def convolve(x: Array, w: Array, strides: Sequence[int], dilations: Sequence[int],
             pads: Sequence[tuple[int, int]], group: int) -> Array:
    """Return the convolution of x [N, C, *sizes] with w [O, C/group, *kernel]: im2col, matmul."""
    n = len(strides)
    x = np.pad(x, [(0, 0), (0, 0), *pads]) if any(map(any, pads)) else x
    kernel = w.shape[2:]
    outs = [(x.shape[2 + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(n)]
    batch, channels = x.shape[:2]
    rows = w.shape[0] // group
    depth = w.shape[1] * int(np.prod(kernel))
    places = int(np.prod(outs))
    filters = w.reshape(group, rows, depth)
    out = np.empty((batch, group, rows, places), x.dtype)
    view = windows(x, kernel, strides, dilations, outs)
    # [N, C, *kernel, *outs], one image at a time so that the columns stay small.
    view = view.transpose(0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n))
    for image in range(batch):
        columns = view[image].reshape(group, channels // group if group else 0, -1)
        np.matmul(filters, columns.reshape(group, depth, places), out=out[image])
    return out.reshape(batch, w.shape[0], *outs)


def _reference(op: str) -> Any:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x, w, bias = arrays[0], arrays[1], optional(arrays, 2)
        assert x is not None and w is not None
        strides, dilations, pads = _geometry(op, attrs, x.shape[2:], w.shape[2:])
        concrete = [(int(a), int(b)) for a, b in pads]  # type: ignore[arg-type]
        out = convolve(x, w, strides, dilations, concrete, attrs["group"])
        if bias is not None:
            out += bias.reshape(-1, *(1,) * (x.ndim - 2))
        residual = optional(arrays, 3)
        if residual is not None:
            out += residual
        return [activations.apply(attrs["act"], out, attrs["leaky_slope"])]

    return reference


def _decompose_1d(builder: Builder, inputs: Sequence[str],
                  attrs: dict[str, Any]) -> Sequence[str]:
    """One axis is a convolution of images of height 1."""
    x, w = (builder.op("UNSQUEEZE", value, axes=(2,)) for value in inputs[:2])
    two = dict(attrs)
    for name, fill in (("strides", 1), ("dilations", 1)):
        two[name] = (fill, *attrs[name]) if attrs[name] else None
    if attrs["pads"]:
        two["pads"] = (0, attrs["pads"][0], 0, attrs["pads"][1])
    return [builder.op("SQUEEZE", builder.op("CONV2D", x, w, *inputs[2:], **two), axes=(2,))]


_PROPERTIES = frozenset({"columnwise", "rematerializable", "epilogue"})

OPDEFS = (
    OpDef("CONV2D", ("x", "w", "bias?", "residual?"), 1, CONV_ATTRS, _infer("CONV2D", 2),
          _reference("CONV2D"), properties=_PROPERTIES, family="conv", dtypes=FLOATS,
          doc="act(convolution + bias + residual); x is NCHW, w is OIHW with I = C / group."),
    OpDef("CONV1D", ("x", "w", "bias?"), 1, CONV_ATTRS, _infer("CONV1D", 1), _reference("CONV1D"),
          properties=_PROPERTIES, family="conv", dtypes=FLOATS, decompose=_decompose_1d,
          doc="act(convolution + bias); x is NCW, w is OIW with I = C / group."),
)
