"""Scaled dot-product attention: schema, inference and reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...contract import DTYPES, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.expr import evaluate
from ..ir.nodes import TensorType
from .activations import fitted
from .attention_parts import decompose
from .attention_shapes import (
    EXTRAS,
    K_STARTS,
    LENGTH,
    MASK,
    Q_STARTS,
    Heads,
    heads_of,
    is_masked,
    sequences_of,
)
from .normalize import masked_softmax, softmax
from .opdef import ALL, FLOATS, INDEX, Array, Arrays, OpDef, Types
from .shapes import broadcasts_to, optional, tensor


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    q, k, v = (tensor(types, i) for i in range(3))
    h = heads_of(q, k, v, attrs)
    mask, length = optional(types, MASK), optional(types, LENGTH)
    q_starts, k_starts = optional(types, Q_STARTS), optional(types, K_STARTS)
    if (q_starts is None) != (k_starts is None):
        raise GraphError("ATTENTION takes q_starts and k_starts together")
    if q_starts is not None:
        _check_packed(h, q_starts, k_starts, mask)
    sequences = sequences_of(h, q_starts)
    scores = (sequences, h.heads, h.queries, h.keys)
    for name, given in (("mask", mask), *(("extras", t) for t in types[EXTRAS:])):
        if given is not None and not broadcasts_to(given.shape, scores):
            raise ShapeMismatch(f"ATTENTION {name} does not broadcast to the scores", found=given,
                                wanted=f"{scores}")
    if length is not None and length.shape != (sequences,):
        raise ShapeMismatch("ATTENTION kv_len is one length per sample", found=length,
                            wanted=f"[{sequences}]")
    if mask is not None and mask.dtype not in ("bool", q.dtype):
        raise GraphError("ATTENTION mask is bool or of q's dtype", found=mask)
    _check_score(attrs["score"], len(types) - EXTRAS)
    statistics = TensorType(DTYPES[q.dtype].compute, (h.batch, h.heads, h.queries))
    more = [statistics] if attrs["lse"] else []
    if q.rank == 4:
        return [TensorType(q.dtype, (h.batch, h.heads, h.queries, h.value_size)), *more]
    return [TensorType(q.dtype, (h.batch, h.queries, h.heads * h.value_size)), *more]


def _check_packed(h: Heads, q_starts: TensorType, k_starts: TensorType,
                  mask: TensorType | None) -> None:
    if h.batch != 1 or q_starts.rank != 1 or k_starts.shape != q_starts.shape:
        raise ShapeMismatch("ATTENTION on packed sequences takes a batch of 1 and two rows of "
                            "starts", found=f"batch {h.batch}, {q_starts}, {k_starts}")
    if mask is not None:
        raise GraphError("ATTENTION on packed sequences takes no mask", found=mask)


def _check_score(score: Any, extras: int) -> None:
    if score is None:
        if extras > 0:
            raise GraphError("ATTENTION extras need a score formula", found=f"{extras} extras")
        return
    if len(score.outputs) > 2 or score.n_scalars or score.n_inputs > 1 + max(extras, 0):
        raise GraphError("ATTENTION score is a formula over the score and the extras, without "
                         "scalars, with one or two results", found=score.text)


def _split(x: Array, heads: int) -> Array:
    """Return [B, H, S, D] of either layout."""
    if x.ndim == 4:
        return x
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def allowed_pairs(attrs: dict[str, Any], h: Heads, mask: Array | None,
                  length: Array | None) -> Array:
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
    kinds = [TensorType("f32", a.shape) for a in (q, k, v)]
    h: Any = heads_of(kinds[0], kinds[1], kinds[2], attrs)
    q, k, v = _split(q, h.heads), _split(k, h.groups), _split(v, h.groups)
    packed = optional(arrays, Q_STARTS) is not None
    out, lse = (_packed if packed else _attend)(q, k, v, h, list(arrays[MASK:]), attrs)
    if arrays[0].ndim == 3:  # type: ignore[union-attr]
        out = out.transpose(0, 2, 1, 3).reshape(h.batch, h.queries, h.heads * h.value_size)
    return [out, lse] if attrs["lse"] else [out]


def _packed(q: Array, k: Array, v: Array, h: Heads, rest: list[Any],
            attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return one attention per sequence; a sequence's last query meets its last key."""
    length, q_starts, k_starts = (rest[i - MASK] for i in (LENGTH, Q_STARTS, K_STARTS))
    extras = [x.reshape((1,) * (4 - x.ndim) + x.shape) for x in rest[EXTRAS - MASK:]]
    out: Array = np.zeros((1, *q.shape[1:3], v.shape[3]), q.dtype)
    lse = np.full(q.shape[:3], -np.inf, q.dtype)
    for b in range(len(q_starts) - 1):
        rows, keys = (slice(int(s[b]), int(s[b + 1])) for s in (q_starts, k_starts))
        n = rows.stop - rows.start, keys.stop - keys.start
        own = [None, None if length is None else length[b:b + 1], None, None,
               *(x[b:b + 1] if x.shape[0] > 1 else x for x in extras)]
        part = replace(h, queries=n[0], keys=n[1])
        out[:, :, rows], lse[:, :, rows] = _attend(
            q[:, :, rows], k[:, :, keys], v[:, :, keys], part, own,
            {**attrs, "query_offset": n[1] - n[0]}, first=b)
    return out, lse


def _attend(q: Array, k: Array, v: Array, h: Any, rest: list[Any], attrs: dict[str, Any],
            first: int = 0) -> tuple[Array, Array]:
    """Return values [B, H, Q, V] and log-sum-exps [B, H, Q] of heads-first operands.

    Args:
        q, k, v, h: operands and their extents.
        rest: the inputs behind v.
        attrs: all attributes.
        first: number of the first sequence, where the formula of the scores asks.
    """
    mask, length = optional(rest, 0), optional(rest, LENGTH - MASK)
    group = h.heads // h.groups
    scale = attrs["scale"] if attrs["scale"] is not None else 1.0 / np.sqrt(max(h.size, 1))
    # Query heads of one group are rows of one product, so that BLAS sees whole matrices.
    rows = (q * q.dtype.type(scale)).reshape(h.batch, h.groups, group * h.queries, h.size)
    shape = (h.batch, h.groups, group, h.queries, h.keys)
    allowed = bias = None
    if is_masked(attrs, [None, None, None, *(x is not None for x in rest)]):
        allowed = _by_group(allowed_pairs(attrs, h, mask, length), shape)
    if mask is not None and mask.dtype != bool:
        bias = _by_group(mask, shape)
    extras = [_by_group(x, shape) for x in rest[EXTRAS - MASK:]]
    out: Array = np.empty((h.batch, h.groups, group * h.queries, h.value_size), q.dtype)
    lse: Array = np.empty(shape[:4], q.dtype)
    for part in _parts(shape):
        scores = rows[part] @ k[part].swapaxes(-1, -2)
        scores = scores.reshape(*scores.shape[:2], *shape[2:])
        if attrs["softcap"] > 0:
            cap = scores.dtype.type(attrs["softcap"])
            scores = np.tanh(scores / cap) * cap
        may = None if allowed is None else allowed[part]
        if attrs["score"] is not None:
            scores, more = _modified(attrs["score"], scores, extras, part, shape, first)
            may = may if more is None else may & more
        if bias is not None:
            scores += bias[part]
        if attrs["lse"]:
            lse[part] = _log_sum_exp(scores, may)
        if may is not None:
            scores = masked_softmax(scores, may, -1)
        elif h.keys:
            scores = softmax(scores, -1)
        out[part] = scores.reshape(*scores.shape[:2], group * h.queries, h.keys) @ v[part]
    return (out.reshape(h.batch, h.heads, h.queries, h.value_size),
            lse.reshape(h.batch, h.heads, h.queries))


def _modified(score: Any, scores: Array, extras: list[Array], part: tuple[slice, slice],
              shape: tuple[int, ...], first: int) -> tuple[Array, Array | None]:
    """Return what a formula makes of scores, and which it allows."""
    batch, groups, group, queries, keys = shape
    wide = "f64" if scores.dtype == np.float64 else ""
    heads = np.arange(groups * group).reshape(1, groups, group, 1, 1)
    coords = (np.arange(first, first + batch)[part[0]].reshape(-1, 1, 1, 1, 1),
              heads[:, part[1]], np.arange(queries)[:, None], np.arange(keys))
    found = evaluate(fitted(score, [wide] * score.n_inputs).outputs,
                     [scores, *(x[part] for x in extras)], coords)
    full = [np.broadcast_to(x, scores.shape) for x in found]
    return full[0].astype(scores.dtype), full[1] if len(full) > 1 else None


def _log_sum_exp(scores: Array, allowed: Array | None) -> Array:
    """Return it along the last axis; -inf where nothing is allowed."""
    if allowed is not None:
        scores = np.where(allowed, scores, scores.dtype.type(-np.inf))
    peak = np.max(scores, axis=-1, initial=-np.inf)
    shift = np.where(np.isneginf(peak), scores.dtype.type(0), peak)
    return np.asarray(shift + np.log(np.sum(np.exp(scores - shift[..., None]), axis=-1)))


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


OPDEFS = (
    OpDef("ATTENTION", ("q", "k", "v", "mask?", "kv_len?", "q_starts?", "k_starts?", "extras*"), 2,
          (AttrSpec("scale", "float", None, doc="factor of the scores; 1 / sqrt(head size)"),
           AttrSpec("is_causal", "bool", False, doc="a query sees keys up to its own place"),
           AttrSpec("query_offset", "int", 0, doc="place of query 0 among the keys (kv_len - Q "
                    "when kv_len is given, K - Q of each packed sequence)"),
           AttrSpec("q_num_heads", "int", None, doc="query heads of rank-3 inputs"),
           AttrSpec("kv_num_heads", "int", None, doc="key heads of rank-3 inputs"),
           AttrSpec("softcap", "float", 0.0, doc="scores become cap * tanh(score / cap); 0 = off"),
           AttrSpec("left_window_size", "int", -1, doc="keys seen before a query; -1 = all"),
           AttrSpec("right_window_size", "int", -1, doc="keys seen after a query; -1 = all"),
           AttrSpec("score", "expr", None, doc="what becomes of a score, before the mask: input 0 "
                    "is the score, 1.. extras, at coordinates (sample, head, query, key); a "
                    "second output tells whether the key is allowed"),
           AttrSpec("lse", "bool", False, doc="also return the log-sum-exp of each row")),
          _infer, _reference, properties=frozenset({"mergeable", "rematerializable"}),
          family="attention", dtypes=FLOATS,
          other={"mask": (*FLOATS, "bool"), "kv_len": INDEX, "q_starts": INDEX, "k_starts": INDEX,
                 "extras": ALL},
          decompose=decompose,
          doc="softmax(q k^T * scale + mask) v per head; key heads may be shared; a row without "
              "a key is 0."),
)
