"""Rows of floats as bytes, each row with the scale of its own largest magnitude."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeMismatch
from ..ir.nodes import TensorType
from .opdef import FLOATS, Array, Arrays, OpDef, Types
from .shapes import tensor

LIMIT = 127


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if not x.rank:
        raise ShapeMismatch("QUANTIZE_ROWS takes rows", found=x)
    scale = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    return [TensorType("i8", x.shape), TensorType(scale, x.shape[:-1])]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    peak = np.max(np.abs(x), axis=-1, keepdims=True, initial=0)
    scale = np.where(peak == 0, x.dtype.type(1), peak / x.dtype.type(LIMIT))
    codes = np.clip(np.rint(x / scale), -LIMIT, LIMIT)
    return [codes.astype(np.int8), scale[..., 0].astype(x.dtype)]


OPDEFS = (
    OpDef("QUANTIZE_ROWS", ("x",), 2, (), _infer, _reference,
          properties=frozenset({"mergeable", "rematerializable"}), family="row", dtypes=FLOATS,
          doc="(x / scale as i8, scale) per row of the last axis, scale = max |x| / 127; "
              "a row of zeros has scale 1."),
)
