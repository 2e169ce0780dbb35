"""What no output needs goes away: nodes, and constants that nothing reads."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.nodes import Graph, present
from .pass_manager import PassResult


@dataclass(frozen=True, slots=True)
class DeadCodePass:
    """Keeps the nodes and constants that the outputs depend on."""

    name: str = "dead_code"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        alive = set(graph.outputs)
        kept = []
        for node in reversed(graph.nodes):
            if any(value in alive for value in present(node.outputs)):
                alive.update(present(node.inputs))
                kept.append(node)
        constants = {name: a for name, a in graph.constants.items() if name in alive}
        if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
            return PassResult(graph, False)
        result = graph.copy()
        result.nodes = kept[::-1]
        result.constants = constants
        named = {*graph.inputs, *constants, *(v for node in kept for v in node.outputs)}
        result.types = {name: kind for name, kind in graph.types.items() if name in named}
        return PassResult(result, True)
