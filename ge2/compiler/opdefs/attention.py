"""Scaled dot-product attention and rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...contract import DTYPES, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir import expr as ex
from ..ir.dim import Extent
from ..ir.expr import Expr
from ..ir.nodes import TensorType
from .normalize import masked_softmax, softmax
from .opdef import FLOATS, INDEX, Array, Arrays, Builder, OpDef, Types
from .shapes import broadcasts_to, optional, tensor


@dataclass(frozen=True, slots=True)
class Heads:
    """Extents of one attention call.

    Attributes:
        batch, queries, keys: B, Q and K.
        heads, groups: query heads and key/value heads.
        size, value_size: per head, of q and k, and of v.
    """

    batch: Extent
    queries: Extent
    keys: Extent
    heads: Extent
    groups: Extent
    size: Extent
    value_size: Extent


def heads_of(q: TensorType, k: TensorType, v: TensorType, attrs: dict[str, Any]) -> Heads:
    """Return the extents; inputs are [B, H, S, D], or [B, S, H * D] with the head counts given.

    Raises:
        ShapeMismatch: the shapes do not fit together.
        GraphError: head counts are missing.
    """
    if not q.rank == k.rank == v.rank or q.rank not in (3, 4):
        raise ShapeMismatch("ATTENTION takes q, k and v of rank 3 or 4", found=f"{q}, {k}, {v}")
    if q.rank == 4:
        made = Heads(q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3],
                     v.shape[3])
        same = (k.shape[3] == q.shape[3] and v.shape[:3] == k.shape[:3]
                and k.shape[0] == q.shape[0])
    else:
        h, g = attrs["q_num_heads"], attrs["kv_num_heads"]
        if not h or not g:
            raise GraphError("ATTENTION on rank 3 needs q_num_heads and kv_num_heads")
        made = Heads(q.shape[0], q.shape[1], k.shape[1], h, g, q.shape[2] // h, v.shape[2] // g)
        same = (k.shape[2] == made.size * g and q.shape[2] == made.size * h
                and v.shape[2] == made.value_size * g
                and v.shape[:2] == k.shape[:2] and k.shape[0] == q.shape[0])
    if not same:
        raise ShapeMismatch("ATTENTION q, k and v do not fit together", found=f"{q}, {k}, {v}")
    if isinstance(made.heads, int) and isinstance(made.groups, int) and (
            made.groups < 1 or made.heads % made.groups):
        raise ShapeMismatch("ATTENTION key heads do not divide the query heads",
                            found=f"{made.heads} and {made.groups}")
    return made


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    q, k, v = (tensor(types, i) for i in range(3))
    h = heads_of(q, k, v, attrs)
    mask, length = optional(types, 3), optional(types, 4)
    scores = (h.batch, h.heads, h.queries, h.keys)
    if mask is not None and not broadcasts_to(mask.shape, scores):
        raise ShapeMismatch("ATTENTION mask does not broadcast to the scores", found=mask,
                            wanted=f"{scores}")
    if length is not None and length.shape != (h.batch,):
        raise ShapeMismatch("ATTENTION kv_len is one length per sample", found=length,
                            wanted=f"[{h.batch}]")
    if mask is not None and mask.dtype not in ("bool", q.dtype):
        raise GraphError("ATTENTION mask is bool or of q's dtype", found=mask)
    if q.rank == 4:
        return [TensorType(q.dtype, (h.batch, h.heads, h.queries, h.value_size))]
    return [TensorType(q.dtype, (h.batch, h.queries, h.heads * h.value_size))]


def _split(x: Array, heads: int) -> Array:
    """Return [B, H, S, D] of either layout."""
    if x.ndim == 4:
        return x
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def is_masked(attrs: dict[str, Any], mask: object, length: object) -> bool:
    """Return whether some positions may be forbidden."""
    return (mask is not None or length is not None or attrs["is_causal"]
            or attrs["left_window_size"] >= 0 or attrs["right_window_size"] >= 0)


def _allowed(attrs: dict[str, Any], h: Heads, mask: Array | None, length: Array | None) -> Array:
    """Return which (query, key) pairs may meet, broadcastable to the scores."""
    queries, keys = int(h.queries), int(h.keys)  # type: ignore[arg-type]
    query, key = np.arange(queries)[:, None], np.arange(keys)[None]
    allowed: Array = np.ones((1, 1, queries, keys), np.bool_)
    offset: Any = attrs["query_offset"]
    if length is not None:
        offset = length.reshape(-1, 1, 1, 1) - queries
        allowed = allowed & (key < length.reshape(-1, 1, 1, 1))
    ahead = key - (query + offset)
    if attrs["is_causal"]:
        allowed = allowed & (ahead <= 0)
    if attrs["left_window_size"] >= 0:
        allowed = allowed & (-ahead <= attrs["left_window_size"])
    if attrs["right_window_size"] >= 0:
        allowed = allowed & (ahead <= attrs["right_window_size"])
    if mask is not None:
        allowed = allowed & (mask if mask.dtype == bool else ~np.isneginf(mask))
    return allowed


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    q, k, v = (a for a in arrays[:3] if a is not None)
    mask, length = optional(arrays, 3), optional(arrays, 4)
    kinds = [TensorType("f32", a.shape) for a in (q, k, v)]
    h: Any = heads_of(kinds[0], kinds[1], kinds[2], attrs)
    rank, group = q.ndim, h.heads // h.groups
    q, k, v = _split(q, h.heads), _split(k, h.groups), _split(v, h.groups)
    scale = attrs["scale"] if attrs["scale"] is not None else 1.0 / np.sqrt(max(h.size, 1))
    # Query heads of one group are rows of one product, so that BLAS sees whole matrices.
    rows = (q * q.dtype.type(scale)).reshape(h.batch, h.groups, group * h.queries, h.size)
    shape = (h.batch, h.groups, group, h.queries, h.keys)
    allowed = bias = None
    if is_masked(attrs, mask, length):
        allowed = _by_group(_allowed(attrs, h, mask, length), shape)
    if mask is not None and mask.dtype != bool:
        bias = _by_group(mask, shape)
    out: Array = np.empty((h.batch, h.groups, group * h.queries, h.value_size), q.dtype)
    for part in _parts(shape):
        scores = rows[part] @ k[part].swapaxes(-1, -2)
        scores = scores.reshape(*scores.shape[:2], *shape[2:])
        if attrs["softcap"] > 0:
            cap = scores.dtype.type(attrs["softcap"])
            scores = np.tanh(scores / cap) * cap
        if bias is not None:
            scores += bias[part]
        if allowed is not None:
            scores = masked_softmax(scores, allowed[part], -1)
        elif h.keys:
            scores = softmax(scores, -1)
        out[part] = scores.reshape(*scores.shape[:2], group * h.queries, h.keys) @ v[part]
    out = out.reshape(h.batch, h.heads, h.queries, h.value_size)
    if rank == 3:
        out = out.transpose(0, 2, 1, 3).reshape(h.batch, h.queries, h.heads * h.value_size)
    return [out]


def _by_group(mask: Array, shape: tuple[int, ...]) -> Array:
    """Return a mask that broadcasts to [B, H, Q, K] as a view [B, G, H / G, Q, K]."""
    groups, group = shape[1:3]
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    if mask.shape[1] == 1:
        return np.broadcast_to(mask[:, :, None], shape)
    return np.broadcast_to(mask.reshape(mask.shape[0], groups, group, *mask.shape[2:]), shape)


def _parts(shape: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Return pieces of (batch, groups) whose scores stay in a cache where that pays."""
    batch, groups, group, queries, keys = shape
    if group * queries * keys < 2**14:
        return [(slice(None), slice(None))]
    return [(slice(b, b + 1), slice(g, g + 1)) for b in range(batch) for g in range(groups)]


def _heads_first(builder: Builder, value: str, heads: Extent) -> str:
    kind = builder.type(value)
    if kind.rank == 4:
        return value
    size = kind.shape[2] // heads if isinstance(heads, int) else 1
    split = builder.op("RESHAPE", value, shape=(*kind.shape[:2], heads, size), allowzero=True)
    return builder.op("TRANSPOSE", split, perm=(0, 2, 1, 3))


def _score_formula(attrs: dict[str, Any], h: Heads, dtype: str, mask: str,
                   has_length: bool, scale: float) -> ex.ExprBundle:
    """Return (score, allowed) of inputs scores, mask?, kv_len? at coordinates (b, h, q, k)."""
    score = ex.input(0, DTYPES[dtype].compute)
    score = score * scale
    if attrs["softcap"] > 0:
        score = ex.tanh(score / attrs["softcap"]) * attrs["softcap"]
    query, key = ex.coord(2), ex.coord(3)
    rules: list[Expr] = []
    position = query + attrs["query_offset"]
    if has_length:
        length = ex.input(2 if mask else 1, "i64")
        position = query + length - h.queries  # type: ignore[operator]
        rules.append(key < length)
    if attrs["is_causal"]:
        rules.append(key <= position)
    if attrs["left_window_size"] >= 0:
        rules.append(position - key <= attrs["left_window_size"])
    if attrs["right_window_size"] >= 0:
        rules.append(key - position <= attrs["right_window_size"])
    if mask == "bool":
        rules.append(ex.input(1, "bool"))
    elif mask:
        bias = ex.input(1, DTYPES[dtype].compute)
        score = score + bias
        rules.append(bias.ne(float("-inf")))
    allowed = rules[0] if rules else ex.const(True, "bool")
    for rule in rules[1:]:
        allowed = ex.logical_and(allowed, rule)
    return ex.ExprBundle((score, allowed))


def _decompose(builder: Builder, inputs: Sequence[str],
               attrs: dict[str, Any]) -> Sequence[str] | None:
    kinds = [builder.type(v) for v in inputs[:3]]
    dtype = kinds[0].dtype
    h = heads_of(kinds[0], kinds[1], kinds[2], attrs)
    mask, length = (optional(inputs, i) or "" for i in (3, 4))
    fixed = all(isinstance(e, int) for e in (h.size, h.heads, h.groups, attrs["query_offset"]))
    if not fixed or (length and not isinstance(h.queries, int)):
        return None
    group: Any = h.heads // h.groups  # type: ignore[operator]
    q, k, v = (_heads_first(builder, value, n)
               for value, n in zip(inputs[:3], (h.heads, h.groups, h.groups), strict=True))
    if group > 1:
        q = builder.op("RESHAPE", q, shape=(h.batch, h.groups, group, h.queries, h.size),
                       allowzero=True)
        k, v = (builder.op("UNSQUEEZE", value, axes=(2,)) for value in (k, v))
    rank = builder.type(k).rank
    swap = (*range(rank - 2), rank - 1, rank - 2)
    scores = builder.op("MATMUL", q, builder.op("TRANSPOSE", k, perm=swap))
    full = (h.batch, h.heads, h.queries, h.keys)
    scores = builder.op("RESHAPE", scores, shape=full, allowzero=True)
    scale = attrs["scale"] if attrs["scale"] is not None else float(h.size) ** -0.5  # type: ignore[arg-type]
    operands = [scores]
    if mask:
        operands.append(mask)
    if length:
        length = builder.op("CAST", length, to="i64")
        operands.append(builder.op("RESHAPE", length, shape=(h.batch, 1, 1, 1)))
    formula = _score_formula(attrs, h, dtype, builder.type(mask).dtype if mask else "",
                             bool(length), scale)
    masked = is_masked(attrs, mask or None, length or None)
    if masked:
        weights, allowed = builder.multi("FUSED_ELEMENTWISE", 2, *operands, expr=formula,
                                         dtypes=f"{dtype},bool")
        weights = builder.op("MASKED_SOFTMAX", weights, allowed, axis=-1)
    else:
        single = ex.ExprBundle(formula.outputs[:1])
        weights = builder.op("FUSED_ELEMENTWISE", *operands, expr=single, dtypes=dtype)
        weights = builder.op("SOFTMAX", weights, axis=-1)
    if group > 1:
        weights = builder.op("RESHAPE", weights, allowzero=True,
                             shape=(h.batch, h.groups, group, h.queries, h.keys))
    out = builder.op("MATMUL", weights, v)
    if group > 1:
        out = builder.op("RESHAPE", out, shape=(h.batch, h.heads, h.queries, h.value_size),
                         allowzero=True)
    if kinds[0].rank == 3:
        out = builder.op("TRANSPOSE", out, perm=(0, 2, 1, 3))
        out = builder.op("RESHAPE", out, allowzero=True,
                         shape=(h.batch, h.queries, h.heads * h.value_size))
    return [out]


OPDEFS = (
    OpDef("ATTENTION", ("q", "k", "v", "mask?", "kv_len?"), 1,
          (AttrSpec("scale", "float", None, doc="factor of the scores; 1 / sqrt(head size)"),
           AttrSpec("is_causal", "bool", False, doc="a query sees keys up to its own place"),
           AttrSpec("query_offset", "int", 0, doc="place of query 0 among the keys (kv_len - Q "
                    "when kv_len is given)"),
           AttrSpec("q_num_heads", "int", None, doc="query heads of rank-3 inputs"),
           AttrSpec("kv_num_heads", "int", None, doc="key heads of rank-3 inputs"),
           AttrSpec("softcap", "float", 0.0, doc="scores become cap * tanh(score / cap); 0 = off"),
           AttrSpec("left_window_size", "int", -1, doc="keys seen before a query; -1 = all"),
           AttrSpec("right_window_size", "int", -1, doc="keys seen after a query; -1 = all")),
          _infer, _reference, properties=frozenset({"mergeable", "rematerializable"}),
          family="attention", dtypes=FLOATS, other={"mask": (*FLOATS, "bool"), "kv_len": INDEX},
          decompose=_decompose,
          doc="softmax(q k^T * scale + mask) v per head; key heads may be shared by query heads; "
              "a row with no allowed key is 0."),
)
