"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from .opdef import FLOATS, INDEX, Array, Arrays, Builder, OpDef, Types
from .shapes import optional, tensor


def _layout(x: TensorType, attrs: dict[str, Any]) -> tuple[Any, Extent, int, int]:
    """Return (batch, sequence, head size, rotated size) of [B, H, S, D] or [B, S, H * D]."""
    heads = attrs["num_heads"]
    if x.rank == 4:
        sequence, size = x.shape[2], x.shape[3]
    elif x.rank == 3 and heads:
        sequence, size = x.shape[1], x.shape[2] // heads
    else:
        raise GraphError("ROTARY takes rank 4, or rank 3 with num_heads", found=x)
    if not isinstance(size, int):
        raise ShapeMismatch("ROTARY needs a known head size", found=x)
    rotated = attrs["rotary_embedding_dim"] or size
    if rotated % 2 or rotated > size:
        raise ShapeMismatch("ROTARY rotates an even part of a head", found=rotated, wanted=size)
    return x.shape[0], sequence, size, rotated


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, cos, sin, ids = tensor(types, 0), tensor(types, 1), tensor(types, 2), optional(types, 3)
    batch, sequence, _, rotated = _layout(x, attrs)
    if cos.shape != sin.shape or cos.shape[-1] != rotated // 2:
        raise ShapeMismatch("ROTARY cos and sin do not fit", found=f"{cos}, {sin}",
                            wanted=f"last extent {rotated // 2}")
    wanted = 2 if ids is not None else 3
    if cos.rank != wanted or (ids is not None and ids.shape != (batch, sequence)) or (
            ids is None and cos.shape[:2] != (batch, sequence)):
        raise ShapeMismatch(
            "ROTARY takes cos and sin per position and position_ids [B, S], or cos and sin "
            "[B, S, D / 2] without", found=f"{cos}, {ids}")
    return [x]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, cos, sin = (a for a in arrays[:3] if a is not None)
    ids = optional(arrays, 3)
    _, _, size, rotated = _layout(TensorType("f32", x.shape), attrs)
    if ids is not None:
        cos, sin = cos[ids], sin[ids]
    if x.ndim == 4:
        view, cos, sin = x, cos[:, None], sin[:, None]
    else:
        view = x.reshape(*x.shape[:2], x.shape[2] // size, size)
        cos, sin = cos[:, :, None], sin[:, :, None]
    half = rotated // 2
    one = np.s_[..., 0:rotated:2] if attrs["interleaved"] else np.s_[..., :half]
    two = np.s_[..., 1:rotated:2] if attrs["interleaved"] else np.s_[..., half:rotated]
    out = view.copy()
    out[one] = cos * view[one] - sin * view[two]
    out[two] = sin * view[one] + cos * view[two]
    return [out.reshape(x.shape)]


def _decompose(builder: Builder, inputs: Sequence[str],
               attrs: dict[str, Any]) -> Sequence[str]:
    x, cos, sin = inputs[:3]
    ids = optional(inputs, 3) or ""
    kind = builder.type(x)
    _, _, size, rotated = _layout(kind, attrs)
    if ids:
        cos, sin = (builder.op("GATHER", table, ids, axis=0) for table in (cos, sin))
    head_axis = 1 if kind.rank == 4 else 2
    cos, sin = (builder.op("UNSQUEEZE", table, axes=(head_axis,)) for table in (cos, sin))
    view = x
    if kind.rank == 3:
        view = builder.op("RESHAPE", x, allowzero=True,
                          shape=(*kind.shape[:2], attrs["num_heads"], size))

    def cut(start: int, end: int, step: int = 1) -> str:
        return builder.op("SLICE", view, axes=(3,), starts=(start,), ends=(end,), steps=(step,))

    half = rotated // 2
    one, two = (cut(0, rotated, 2), cut(1, rotated, 2)) if attrs["interleaved"] else (
        cut(0, half), cut(half, rotated))

    def times(a: str, b: str) -> str:
        return builder.op("MUL", a, b)

    real = builder.op("SUB", times(cos, one), times(sin, two))
    imag = builder.op("ADD", times(sin, one), times(cos, two))
    if attrs["interleaved"]:
        parts = [builder.op("UNSQUEEZE", part, axes=(4,)) for part in (real, imag)]
        joined = builder.op("CONCAT", *parts, axis=4)
        shape = (*builder.type(view).shape[:3], rotated)
        turned = [builder.op("RESHAPE", joined, shape=shape, allowzero=True)]
    else:
        turned = [real, imag]
    if rotated < size:
        turned.append(cut(rotated, size))
    out = builder.op("CONCAT", *turned, axis=3) if len(turned) > 1 else turned[0]
    return [builder.op("RESHAPE", out, shape=kind.shape, allowzero=True)]


OPDEFS = (
    OpDef("ROTARY", ("x", "cos", "sin", "position_ids?"), 1,
          (AttrSpec("interleaved", "bool", False, doc="pairs are neighbours, not halves"),
           AttrSpec("num_heads", "int", 0, doc="heads of a rank-3 input"),
           AttrSpec("rotary_embedding_dim", "int", 0, doc="leading part that turns; 0 = all")),
          _infer, _reference, properties=frozenset({"linear", "rematerializable"}),
          family="composite", dtypes=FLOATS, other={"position_ids": INDEX},
          decompose=_decompose, doc="Turn pairs of head elements by their position's angle."),
)
