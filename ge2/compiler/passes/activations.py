"""Which elementwise nodes are activations of the table that GEMM and CONV2D share."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose
from typing import Any

from ..ir.nodes import Node
from .editor import Editor

# Operator -> name, or (attributes -> name or None where the attributes are others).
_ACTS: dict[str, str | Callable[[dict[str, Any]], str | None]] = {
    "RELU": "relu",
    "GELU": lambda a: "gelu_tanh" if a["approximate"] == "tanh" else "gelu",
    "SILU": "silu",
    "SWISH": lambda a: "silu" if a["alpha"] == 1.0 else None,
    "SIGMOID": "sigmoid",
    "TANH": "tanh",
    "LEAKY_RELU": "leaky_relu",
    "HARD_SWISH": "hard_swish",
    "HARD_SIGMOID": lambda a: (
        "hard_sigmoid" if isclose(a["alpha"], 1 / 6, rel_tol=1e-6) and a["beta"] == 0.5 else None),
    "ELU": lambda a: "elu" if a["alpha"] == 1.0 else None,
    "SOFTPLUS": "softplus",
    "MISH": "mish",
    "RELU6": "relu6",
    "CLIP": lambda a: "relu6" if (a["min"], a["max"]) == (0.0, 6.0) else None,
}


def activation_of(editor: Editor, node: Node) -> tuple[str, float | None] | None:
    """Return (activation name, slope of leaky_relu or None); None if the node is no activation."""
    rule = _ACTS.get(node.op)
    if rule is None:
        return None
    attrs = editor.attrs(node)
    name = rule if isinstance(rule, str) else rule(attrs)
    if name is None:
        return None
    return name, attrs["alpha"] if name == "leaky_relu" else None
