"""The verifier finds each kind of broken graph, and says where."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.compiler.ir import Graph, Node, TensorType
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.ir.verify import verify
from ge2.errors import GraphError

GOOD = """
input x: f32[2]
const c: f32[2] = [1.0, 2.0]
h: f32[2] = ADD(x, c)
y: f32[2] = RELU(h)
output y
"""


def _infer(op, types, attrs):
    return [types[0]]


def test_a_good_graph_passes():
    verify(parse_graph(GOOD), _infer)


def _rename_node(graph):
    graph.nodes[1] = dataclasses.replace(graph.nodes[1], name="h")


def _make_twice(graph):
    graph.nodes.append(Node("RELU", "again", ("x",), ("h",)))


def _swap(graph):
    graph.nodes.reverse()


def _unmade_output(graph):
    graph.outputs.append("nowhere")


def _untyped(graph):
    del graph.types["h"]


def _unknown_dtype(graph):
    graph.types["h"] = TensorType("f8", (2,))


def _wrong_constant(graph):
    graph.constants["c"] = np.zeros(3, np.float32)


def _wrong_alias(graph):
    graph.aliases["h"] = "x"


def _wrong_type(graph):
    graph.types["y"] = TensorType("f32", (3,))


def _too_many_outputs(graph):
    graph.types["z"] = TensorType("f32", (2,))
    graph.nodes[1] = dataclasses.replace(graph.nodes[1], outputs=("y", "z"))


@pytest.mark.parametrize(("breakage", "message"), [
    (_rename_node, "two nodes are named 'h'"),
    (_make_twice, "'h' is made twice"),
    (_swap, "reads 'h' before"),
    (_unmade_output, "output 'nowhere'"),
    (_untyped, "has no type"),
    (_unknown_dtype, "unknown dtype 'f8'"),
    (_wrong_constant, "constant 'c'"),
    (_wrong_alias, "alias 'h'"),
    (_wrong_type, "wrong type"),
    (_too_many_outputs, "too many outputs"),
])
def test_each_rule_finds_its_breakage(breakage, message):
    graph = parse_graph(GOOD)
    breakage(graph)
    with pytest.raises(GraphError, match=message):
        verify(graph, _infer)


def test_only_changed_nodes_are_inferred():
    graph = parse_graph(GOOD)
    seen = []
    verify(graph, lambda op, types, attrs: seen.append(op) or [types[0]], [graph.nodes[1]])
    assert seen == ["RELU"]


def test_fresh_names_are_the_lowest_that_are_free() -> None:
    graph = Graph()
    for wanted in ("c", "c.1", "c.2", "c.3", "c.4", "c.5"):
        assert graph.fresh("c") == wanted
        graph.types[wanted] = TensorType("f32", ())
