"""Attention as products and a softmax: the form that keeps its scores in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...contract import DTYPES
from ..ir import expr as ex
from ..ir.dim import Extent
from ..ir.expr import Expr
from .activations import fitted
from .attention_shapes import EXTRAS, LENGTH, MASK, Q_STARTS, Heads, heads_of, is_masked
from .opdef import Builder
from .shapes import optional


def _heads_first(builder: Builder, value: str, heads: Extent) -> str:
    kind = builder.type(value)
    if kind.rank == 4:
        return value
    size = kind.shape[2] // heads if isinstance(heads, int) else 1
    split = builder.op("RESHAPE", value, shape=(*kind.shape[:2], heads, size), allowzero=True)
    return builder.op("TRANSPOSE", split, perm=(0, 2, 1, 3))


def score_formula(attrs: dict[str, Any], dtype: str, scale: float,
                  extras: Sequence[Expr] = ()) -> tuple[Expr, list[Expr]]:
    """Return what becomes of a sum of products (input 0) before the mask, and what allows it.

    Args:
        attrs: of the ATTENTION.
        dtype: of q, k and v.
        scale: factor of the sum.
        extras: the further inputs of the score's own formula.
    """
    score = ex.input(0, DTYPES[dtype].compute)
    if scale != 1.0:
        score = score * scale
    if attrs["softcap"] > 0:
        score = ex.tanh(score / attrs["softcap"]) * attrs["softcap"]
    if attrs["score"] is None:
        return score, []
    bundle = fitted(attrs["score"], [dtype] * attrs["score"].n_inputs)
    inputs = [score, *extras]
    given = {i: ex.cast(inputs[i], d) for i, d in enumerate(bundle.input_dtypes) if d is not None}
    score, *allowed = ex.substitute(bundle.outputs, given)
    return ex.cast(score, DTYPES[dtype].compute), allowed


def _formula(attrs: dict[str, Any], h: Heads, dtype: str, kinds: dict[str, str],
             scale: float) -> ex.ExprBundle:
    """Return (score, allowed) of scores and the inputs in kinds at coordinates (b, h, q, k).

    Args:
        kinds: element type of each further input, by its role: mask, length, then extras.
    """
    leaves = {role: ex.input(1 + i, DTYPES[kind].compute)
              for i, (role, kind) in enumerate(kinds.items())}
    mask, length = leaves.pop("mask", None), leaves.pop("length", None)
    score, rules = score_formula(attrs, dtype, scale, list(leaves.values()))
    query, key = ex.coord(2), ex.coord(3)
    position = query + attrs["query_offset"]
    if length is not None:
        position = query + length - h.queries  # type: ignore[operator]
        rules.append(key < length)
    if attrs["is_causal"]:
        rules.append(key <= position)
    if attrs["left_window_size"] >= 0:
        rules.append(position - key <= attrs["left_window_size"])
    if attrs["right_window_size"] >= 0:
        rules.append(key - position <= attrs["right_window_size"])
    if mask is not None and mask.dtype == "bool":
        rules.append(mask)
    elif mask is not None:
        score = score + mask
        rules.append(mask.ne(float("-inf")))
    allowed = rules[0] if rules else ex.const(True, "bool")
    for rule in rules[1:]:
        allowed = ex.logical_and(allowed, rule)
    return ex.ExprBundle((score, allowed, ex.where(allowed, score, float("-inf"))))


def decompose(builder: Builder, inputs: Sequence[str],
              attrs: dict[str, Any]) -> Sequence[str] | None:
    """Return the outputs of the composition; None where an extent that it needs is symbolic."""
    kinds = [builder.type(v) for v in inputs[:3]]
    h = heads_of(kinds[0], kinds[1], kinds[2], attrs)
    length = optional(inputs, LENGTH)
    fixed = all(isinstance(e, int) for e in (h.size, h.heads, h.groups, attrs["query_offset"]))
    if not fixed or (length and not isinstance(h.queries, int)) or optional(inputs, Q_STARTS):
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
    scores = builder.op("RESHAPE", scores, allowzero=True,
                        shape=(h.batch, h.heads, h.queries, h.keys))
    weights, lse = _weights(builder, scores, inputs, h, attrs)
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
    return [out, *lse]


def _weights(builder: Builder, scores: str, inputs: Sequence[str], h: Heads,
             attrs: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the softmax of the modified scores and, where asked for, its log-sum-exp."""
    dtype = builder.type(inputs[0]).dtype
    operands: dict[str, str] = {}
    if mask := optional(inputs, MASK):
        operands["mask"] = mask
    if length := optional(inputs, LENGTH):
        length = builder.op("CAST", length, to="i64")
        operands["length"] = builder.op("RESHAPE", length, shape=(h.batch, 1, 1, 1))
    operands |= {f"extra{i}": value for i, value in enumerate(inputs[EXTRAS:])}
    scale = attrs["scale"] if attrs["scale"] is not None else float(h.size) ** -0.5  # type: ignore[arg-type]
    kinds = {role: builder.type(value).dtype for role, value in operands.items()}
    score, allowed, forbidden = _formula(attrs, h, dtype, kinds, scale).outputs
    masked = is_masked(attrs, inputs)
    wanted = [(score, dtype), *([(allowed, "bool")] if masked else [])]
    if attrs["lse"]:
        wanted.append((forbidden if masked else score, DTYPES[dtype].compute))
    made = builder.multi("FUSED_ELEMENTWISE", len(wanted), scores, *operands.values(),
                         expr=ex.ExprBundle(tuple(e for e, _ in wanted)),
                         dtypes=",".join(d for _, d in wanted))
    softmax = "MASKED_SOFTMAX" if masked else "SOFTMAX"
    weights = builder.op(softmax, *made[:1 + masked], axis=-1)
    if not attrs["lse"]:
        return weights, []
    return weights, [builder.op("REDUCE_LOGSUMEXP", made[-1], axes=(-1,), keepdims=False)]
