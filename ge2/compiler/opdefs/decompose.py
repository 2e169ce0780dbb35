"""Compositions: nodes replaced by the simpler nodes that their definitions name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.nodes import Graph, Node, TensorType
from . import OPS, full_attrs, get, infer
from .opdef import Array


class GraphBuilder:
    """Appends typed nodes to a graph that is being made; a Builder for decompositions.

    Args:
        graph: receives types and constants; nodes collect in self.nodes.
        stem: prefix of the names of new nodes and values.
    """

    def __init__(self, graph: Graph, stem: str) -> None:
        self.graph = graph
        self.stem = stem
        self.nodes: list[Node] = []
        self._constants = 0

    def op(self, name: str, *inputs: str, **attrs: Any) -> str:
        """Append a node and return its first output."""
        return self.multi(name, 1, *inputs, **attrs)[0]

    def multi(self, name: str, n_outputs: int, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        """Append a node and return its first n_outputs outputs."""
        types = infer(name, [self.graph.types[v] if v else None for v in inputs], attrs)
        label = f"{self.stem}.{len(self.nodes)}.{name.lower()}"
        outputs = []
        for kind in types[:n_outputs]:
            value = self.graph.fresh(label)
            self.graph.types[value] = kind
            outputs.append(value)
        given = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(Node(name, label, tuple(inputs), tuple(outputs), given))
        return tuple(outputs)

    def constant(self, array: Array) -> str:
        """Return a constant value."""
        self._constants += 1
        return self.graph.add_constant(f"{self.stem}.const{self._constants}", array)

    def type(self, value: str) -> TensorType:
        """Return the type of a value."""
        return self.graph.types[value]


def decompose(graph: Graph, native: Callable[[Graph, Node], bool]) -> Graph:
    """Return a graph in which every node that is not native is replaced by its composition.

    Compositions are taken apart in turn. A node without one, or one whose composition needs
    extents that are symbolic, stays as it is.

    Args:
        graph: typed; not changed.
        native: whether the backend runs a node as it is, in a graph that has the types of its
            operands.
    """
    result = graph.copy()
    result.nodes = []
    for node in graph.nodes:
        result.nodes += _expand(result, node, native)
    return result


def _expand(graph: Graph, node: Node, native: Callable[[Graph, Node], bool]) -> list[Node]:
    if OPS[node.op].decompose is None or native(graph, node):
        return [node]
    parts = composition(graph, node)
    if parts is None:
        return [node]
    return [piece for part in parts for piece in _expand(graph, part, native)]


def composition(graph: Graph, node: Node) -> list[Node] | None:
    """Return the nodes that a node is composed of; their last writers carry its output names.

    None where that needs extents that are symbolic.

    Args:
        graph: receives the types of new values, and constants.
        node: its operator has a composition.
    """
    rule = get(node.op).decompose
    assert rule is not None
    builder = GraphBuilder(graph, node.name)
    results = rule(builder, node.inputs, full_attrs(node.op, node.attrs))
    if results is None:
        return None
    made = {value for part in builder.nodes for value in part.outputs}
    names: dict[str, str] = {}
    for value, output in zip(results, node.outputs, strict=False):
        if not output:
            continue
        if value not in made or value in names:  # an input or one value twice: copy the name
            value = builder.op("IDENTITY", value)
        names[value] = output
    for value in names:
        graph.types.pop(value)
    return [Node(part.op, part.name, tuple(names.get(v, v) for v in part.inputs),
                 tuple(names.get(v, v) for v in part.outputs), part.attrs)
            for part in builder.nodes]
