"""Operators without a kernel of their own become those that have one."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.nodes import Graph
from ..opdefs.decompose import decompose
from .pass_manager import PassResult

# Operators that can be decomposed but have a kernel that does all of it in one launch.
NATIVE = frozenset({
    "NORM_GEMM", "CUMSUM", "CUMPROD", "PAD", "REDUCE_L1", "REDUCE_L2", "REDUCE_SUMSQUARE",
    "REDUCE_LOGSUM", "REDUCE_LOGSUMEXP",
})


@dataclass(frozen=True, slots=True)
class DecomposePass:
    """Expands every operator that has a decomposition and is not in native."""

    name: str = "decompose"
    native: frozenset[str] = NATIVE

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        result = decompose(graph, lambda node: node.op in self.native)
        same = len(result.nodes) == len(graph.nodes) and all(
            new is old for new, old in zip(result.nodes, graph.nodes, strict=True))
        return PassResult(graph, False) if same else PassResult(result, True)
