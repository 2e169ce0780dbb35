"""Gradients of scaled dot-product attention: schema, inference and reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...contract import DTYPES, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.nodes import TensorType
from .attention import allowed_pairs
from .attention_shapes import heads_of
from .opdef import FLOATS, INDEX, Array, Arrays, OpDef, Types
from .shapes import broadcasts_to, optional, tensor

OUT, LSE, GRADIENT, MASK, LENGTH = 3, 4, 5, 6, 7  # places of the inputs behind q, k and v


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    q, k, v = (tensor(types, i) for i in range(3))
    if q.rank != 4:
        raise ShapeMismatch("ATTENTION_GRAD takes heads-first operands", found=q,
                            wanted="[batch, head, row, element]")
    h = heads_of(q, k, v, {"q_num_heads": None, "kv_num_heads": None})
    mask, length = optional(types, MASK), optional(types, LENGTH)
    if mask is not None and not broadcasts_to(mask.shape, (h.batch, h.heads, h.queries, h.keys)):
        raise ShapeMismatch("ATTENTION_GRAD mask does not broadcast to the scores", found=mask)
    if mask is not None and mask.dtype not in ("bool", q.dtype):
        raise GraphError("ATTENTION_GRAD mask is bool or of q's dtype", found=mask)
    if length is not None and length.shape != (h.batch,):
        raise ShapeMismatch("ATTENTION_GRAD kv_len is one length per sample", found=length,
                            wanted=f"[{h.batch}]")
    rows = (h.batch, h.heads, h.queries)
    wanted = ((OUT, (*rows, h.value_size)), (LSE, rows), (GRADIENT, (*rows, h.value_size)))
    for index, shape in wanted:
        found = tensor(types, index)
        if found.shape != shape:
            raise ShapeMismatch("ATTENTION_GRAD takes what ATTENTION has made, and its gradient",
                                argument=f"input {index}", found=found, wanted=shape)
    if tensor(types, LSE).dtype != DTYPES[q.dtype].compute:
        raise GraphError("ATTENTION_GRAD takes the log-sum-exps that ATTENTION returns",
                         found=tensor(types, LSE), wanted=DTYPES[q.dtype].compute)
    return [TensorType(q.dtype, x.shape) for x in (q, k, v)]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    q, k, v = (a for a in arrays[:3] if a is not None)
    out, lse, grad = (arrays[i] for i in (OUT, LSE, GRADIENT))
    assert out is not None and lse is not None and grad is not None
    mask, length = optional(arrays, MASK), optional(arrays, LENGTH)
    kinds = [TensorType("f32", a.shape) for a in (q, k, v)]
    h: Any = heads_of(kinds[0], kinds[1], kinds[2], attrs)
    group = h.heads // h.groups
    wide = q.dtype.type
    scale = wide(attrs["scale"] if attrs["scale"] is not None else max(h.size, 1) ** -0.5)
    keys, values = (np.repeat(x, group, axis=1) for x in (k, v))
    scores = (q * scale) @ keys.swapaxes(-1, -2)
    if mask is not None and mask.dtype != bool:
        scores = scores + mask
    may = allowed_pairs(attrs, h, mask, length) & ~np.isneginf(lse)[..., None]
    shift = np.where(np.isneginf(lse), 0, lse).astype(q.dtype)[..., None]
    weights = np.exp(np.where(may, scores - shift, wide(-np.inf)))
    slopes = weights * (grad @ values.swapaxes(-1, -2)
                        - np.sum(grad * out, axis=-1, keepdims=True))
    by_key = (h.batch, h.groups, group, h.keys)
    return [slopes @ keys * scale,
            (slopes.swapaxes(-1, -2) @ q).reshape(*by_key, h.size).sum(2) * scale,
            (weights.swapaxes(-1, -2) @ grad).reshape(*by_key, h.value_size).sum(2)]


OPDEFS = (
    OpDef("ATTENTION_GRAD", ("q", "k", "v", "y", "lse", "grad_y", "mask?", "kv_len?"), 3,
          (AttrSpec("scale", "float", None, doc="factor of the scores; 1 / sqrt(head size)"),
           AttrSpec("is_causal", "bool", False, doc="a query sees keys up to its own place"),
           AttrSpec("query_offset", "int", 0, doc="place of query 0 among the keys (kv_len - Q "
                    "when kv_len is given)"),
           AttrSpec("left_window_size", "int", -1, doc="keys seen before a query; -1 = all"),
           AttrSpec("right_window_size", "int", -1, doc="keys seen after a query; -1 = all")),
          _infer, _reference, family="attention_grad", dtypes=FLOATS,
          other={"mask": (*FLOATS, "bool"), "kv_len": INDEX, "lse": ("f32", "f64")},
          doc="gradients of q, k and v (rank 4) of an ATTENTION with result y and log-sum-exps lse "
              "from that of y."),
)
