"""Losses whose gradient comes out of the same pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DtypeMismatch, ShapeMismatch
from ..ir.nodes import TensorType
from .opdef import FLOATS, Array, Arrays, OpDef, Types
from .shapes import tensor


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, label = tensor(types, 0), tensor(types, 1)
    if not x.rank or label.shape != x.shape[:-1]:
        raise ShapeMismatch("CROSS_ENTROPY takes a label per row of x", found=label,
                            wanted=list(x.shape[:-1]))
    if label.dtype != "i64":
        raise DtypeMismatch("labels are integers", found=label.dtype, wanted="i64")
    return [TensorType("f32" if x.dtype in ("f16", "bf16") else x.dtype, label.shape), x]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, label = arrays
    assert x is not None and label is not None
    n = x.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        peak = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
        shifted = x - np.where(np.isneginf(peak), x.dtype.type(0), peak)
        exps = np.exp(shifted)
        total = exps.sum(axis=-1, keepdims=True)
        hit = np.arange(n) == label[..., None]
        known = hit.any(axis=-1)
        at = np.where(hit, shifted, x.dtype.type(0)).sum(axis=-1)
        loss = np.where(known, np.log(total[..., 0]) - at, x.dtype.type(0))
        slope = np.where(known[..., None], exps / total - hit, x.dtype.type(0))
    return [loss.astype(x.dtype), slope.astype(x.dtype)]


OPDEFS = (
    OpDef("CROSS_ENTROPY", ("x", "label"), 2, (), _infer, _reference,
          properties=frozenset({"mergeable", "rematerializable"}), family="row", dtypes=FLOATS,
          other={"label": ("i64",)},
          doc="(log(sum(exp(x))) - x[label] per row, its gradient softmax(x) - one_hot(label)); "
              "0 for a label outside of the row."),
)
