"""Structural execution features: seven questions, answered from each operator's definition.

The answers follow from properties and family, so that they cannot disagree with what rewrites and
kernels rely on: taking a property away changes the answer.
"""

from __future__ import annotations

from ..ir import properties
from . import get
from .opdef import OpDef

FEATURES: dict[str, str] = {
    "reducible": "the result along some axes is a summary of many elements",
    "streamable": "a partial state can be updated element by element",
    "tile local": "elements of a tile are used again inside it",
    "recreatable": "the result is cheaper to compute again than to keep",
    "reorders": "the order of the work is free, so it can be chosen for speed",
    "blockwise": "blocks of the output can be computed apart",
    "mergeable": "states of two parts combine into the state of the whole",
}

# Sums of products over an axis: their partial sums are states in the sense of the questions.
_ACCUMULATING = frozenset({"gemm", "conv"})
_WINDOWED = frozenset({"gemm", "conv", "pool", "attention", "resize"})


def features(op: str) -> dict[str, bool]:
    """Return the answer to each of FEATURES for an operator.

    Raises:
        GraphError: there is no such operator.
    """
    definition = get(op)
    accumulates = definition.family in _ACCUMULATING
    merges = properties.licensed(op, "mergeable") or accumulates
    ordered = properties.licensed(op, "order_sensitive")
    return {
        "reducible": merges or definition.family == "pool",
        "streamable": merges or definition.family in ("pool", "scan", "recurrent"),
        "tile local": definition.family in _WINDOWED or _permutes(definition),
        "recreatable": properties.licensed(op, "rematerializable"),
        "reorders": not ordered and (merges or properties.licensed(op, "associative")),
        "blockwise": not ordered,
        "mergeable": merges,
    }


def _permutes(op: OpDef) -> bool:
    return any(spec.name == "perm" for spec in op.attrs)
