"""Operators without a kernel of their own become those that have one."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from ..opdefs.attention_shapes import heads_of
from ..opdefs.decompose import decompose
from ..opdefs.paged_attention import is_served
from .pass_manager import PassResult

# Operators that can be decomposed but have a kernel that does all of it in one launch.
NATIVE = frozenset({
    "ATTENTION", "GEMM_BIAS_ACT", "NORM_GEMM", "CUMSUM", "CUMPROD", "LP_NORM", "PAD", "REDUCE_L1",
    "REDUCE_L2", "REDUCE_SUMSQUARE", "REDUCE_LOGSUM", "REDUCE_LOGSUMEXP",
})


MOST_HEAD = 256  # elements of a head whose sums a kernel of attention keeps in registers


@dataclass(frozen=True, slots=True)
class DecomposePass:
    """Expands every operator that has a decomposition and is not in native.

    Attributes:
        name: of the pass.
        native: operators that stay.
        most_head: attention with longer heads does not stay.
    """

    name: str = "decompose"
    native: frozenset[str] = NATIVE
    most_head: int = MOST_HEAD

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        result = decompose(graph, self._stays)
        same = len(result.nodes) == len(graph.nodes) and all(
            new is old for new, old in zip(result.nodes, graph.nodes, strict=True))
        return PassResult(graph, False) if same else PassResult(result, True)

    def _stays(self, graph: Graph, node: Node) -> bool:
        if node.op == "PAGED_ATTENTION":
            q, k, v = (graph.types[value] for value in node.inputs[:3])
            return "ATTENTION" in self.native and is_served(q, k, v)
        return node.op in self.native and not (
            node.op == "ATTENTION" and self._is_wide(graph, node))

    def _is_wide(self, graph: Graph, node: Node) -> bool:
        q, k, v = (graph.types[value] for value in node.inputs[:3])
        heads = heads_of(q, k, v, full_attrs(node.op, node.attrs))
        return any(isinstance(size, int) and size > self.most_head
                   for size in (heads.size, heads.value_size))
