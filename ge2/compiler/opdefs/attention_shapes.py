"""Extents of attention operands in either layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType


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


MASK, LENGTH, Q_STARTS, K_STARTS, EXTRAS = 3, 4, 5, 6, 7  # places of the inputs behind q, k and v


def is_masked(attrs: dict[str, Any], given: Sequence[Any]) -> bool:
    """Return whether some keys may be forbidden to a query.

    Args:
        attrs: all attributes.
        given: the inputs, values or types; absent ones None or "".
    """
    score = attrs["score"]
    return (any(given[MASK:EXTRAS]) or attrs["is_causal"] or attrs["left_window_size"] >= 0
            or attrs["right_window_size"] >= 0 or (score is not None and len(score.outputs) > 1))


def sequences_of(h: Heads, starts: TensorType | None) -> Extent:
    """Return how many sequences there are: of the batch, or packed one behind another."""
    return h.batch if starts is None else starts.shape[0] - 1
