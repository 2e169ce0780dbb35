"""Attention as a problem: heads in front, whichever way the operands hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...contract import DTYPES
from ...errors import StrideMismatch
from ...problem import Problem, TensorSpec
from ..ir.expr import ExprBundle, input
from ..ir.nodes import TensorType
from ..ir.size import smaller
from ..opdefs.attention_grad import MASK as GRADIENT_MASK
from ..opdefs.attention_parts import score_formula
from ..opdefs.attention_shapes import EXTRAS, MASK, Q_STARTS, heads_of, sequences_of
from ..opdefs.paged_attention import MASK as PAGED_MASK
from .strides import expand


def lower_attention(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec | None],
                    outputs: Sequence[TensorSpec]) -> Problem:
    """Return the ATTENTION problem of a node.

    Raises:
        StrideMismatch: the elements of a head are not neighbours in memory.
    """
    given = [*inputs, *[None] * (EXTRAS - len(inputs))]
    kinds = [TensorType(s.dtype, s.shape) for s in inputs[:3] if s is not None]
    h: Any = heads_of(kinds[0], kinds[1], kinds[2], attrs)
    starts = given[Q_STARTS]
    sequences = sequences_of(h, TensorType(starts.dtype, starts.shape) if starts else None)
    scores: Any = (sequences, h.heads, h.queries, h.keys)
    for slot in (MASK, *range(EXTRAS, len(given))):
        spec = given[slot]
        given[slot] = None if spec is None else expand(spec, scores)
    counts = (h.heads, h.groups, h.groups)
    given[:3] = [_heads_first(s, n) for s, n in zip(inputs, counts, strict=False) if s is not None]
    dtypes = tuple(s.dtype for s in inputs[EXTRAS:] if s is not None)
    found = {
        "scale": float(h.size or 1) ** -0.5 if attrs["scale"] is None else attrs["scale"],
        "query_offset": attrs["query_offset"], "left_window_size": attrs["left_window_size"],
        "right_window_size": _right(attrs),
        "score": _score(attrs["softcap"], attrs["score"], kinds[0].dtype, dtypes),
    }
    return Problem("ATTENTION", tuple(given),
                   (_heads_first(outputs[0], h.heads), *outputs[1:]), tuple(sorted(found.items())))


def lower_attention_grad(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec | None],
                         outputs: Sequence[TensorSpec]) -> Problem:
    """Return the ATTENTION_GRAD problem of a node."""
    given = list(inputs)
    q, k = given[:2]
    assert q is not None and k is not None
    mask = given[GRADIENT_MASK] if len(given) > GRADIENT_MASK else None
    if mask is not None:
        given[GRADIENT_MASK] = expand(mask, (*q.shape[:3], k.shape[2]))
    size = q.shape[3]
    found = {
        "scale": float(size or 1) ** -0.5 if attrs["scale"] is None else attrs["scale"],
        "query_offset": attrs["query_offset"], "left_window_size": attrs["left_window_size"],
        "right_window_size": _right(attrs)}
    return Problem.of(op, given, outputs, found)


def lower_paged_attention(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec | None],
                          outputs: Sequence[TensorSpec]) -> Problem:
    """Return the PAGED_ATTENTION problem of a node."""
    given = list(inputs)
    q, k, _, table = given[:4]
    assert q is not None and k is not None and table is not None
    mask = given[PAGED_MASK] if len(given) > PAGED_MASK else None
    if mask is not None:
        given[PAGED_MASK] = expand(mask, (*q.shape[:3], table.shape[1] * k.shape[2]))
    found = {
        "scale": float(q.shape[3] or 1) ** -0.5 if attrs["scale"] is None else attrs["scale"],
        "left_window_size": attrs["left_window_size"], "right_window_size": _right(attrs),
        "score": _score(attrs["softcap"], attrs["score"], q.dtype, ())}
    return Problem.of(op, given, outputs, found)


def _right(attrs: dict[str, Any]) -> Any:
    """Return how many keys are seen after a query; causal is none."""
    right = attrs["right_window_size"]
    if not attrs["is_causal"]:
        return right
    return 0 if right < 0 else smaller(right, 0)


def _heads_first(spec: TensorSpec, heads: int) -> TensorSpec:
    """Return [batch, heads, rows, size] of [batch, rows, heads * size], or what has it already."""
    if len(spec.shape) == 4:
        return spec
    batch, rows, width = spec.shape
    step = spec.strides[2]
    if step != 1 and width != 1:
        raise StrideMismatch("heads side by side are neighbours in memory", found=spec.strides,
                             wanted="a last stride of 1")
    size = width // heads
    return replace(spec, shape=(batch, heads, rows, size),
                   strides=(spec.strides[0], size, spec.strides[1], 1))


@lru_cache(maxsize=1024)
def _score(softcap: float, score: ExprBundle | None, dtype: str,
           extras: tuple[str, ...]) -> ExprBundle | None:
    """Return softcap and formula as one formula; None where neither changes a score."""
    leaves = [input(1 + i, DTYPES[d].compute) for i, d in enumerate(extras)]
    result, allowed = score_formula({"softcap": softcap, "score": score}, dtype, 1.0, leaves)
    if result is input(0, DTYPES[dtype].compute) and not allowed:
        return None
    return ExprBundle((result, *allowed))
