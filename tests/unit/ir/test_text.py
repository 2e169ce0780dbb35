"""Graph text: round trips, types, errors with their line."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import Dim, TensorType, symbol
from ge2.compiler.ir.expr import ExprBundle
from ge2.compiler.ir.text import constants_of, format_graph, parse_graph
from ge2.errors import GraphError

TEXT = """graph "my model"
input x: f32[B, 2*B + 1, 64]
input "a/b:0": i64[]
const w: f16[64, 10] = ...
const half: f32[] = 0.5
const bad: f32[3] = [inf, -inf, nan]
h: f32[B, 10] = MATMUL(x, "a/b:0")
a, _, b = SPLIT(h, axis=-1)
y: f32[B, 16] = OP(h, None, half, act="relu", scale=-1e-05, perm=[1, 0], shape=[B, (B) // 2], \
flag=True, expr=expr("t0 = exp(x0); t0")) @ last
alias y = x
output y, "a/b:0"
"""


def _infer(op, types, attrs):
    return [TensorType("f32", (symbol("B"),))] * 3


def test_text_round_trips():
    graph = parse_graph(TEXT, infer=_infer)
    again = parse_graph(format_graph(graph), constants_of(graph), _infer)
    assert again.nodes == graph.nodes and again.types == graph.types
    assert again.outputs == ["y", "a/b:0"] and again.aliases == {"y": "x"}
    for name, array in graph.constants.items():
        np.testing.assert_array_equal(again.constants[name], array)
    assert format_graph(again) == format_graph(graph)


def test_values_are_read_as_what_they_are():
    graph = parse_graph(TEXT, infer=_infer)
    node = graph.nodes[2]
    assert node.name == "last" and node.inputs == ("h", "", "half")
    assert isinstance(node.attrs["expr"], ExprBundle)
    assert isinstance(node.attrs["shape"][1], Dim)
    assert node.attrs["scale"] == -1e-5 and node.attrs["flag"] is True
    assert graph.types["x"].shape[1] == 1 + 2 * symbol("B")
    assert graph.constants["w"].dtype == np.float16
    assert graph.nodes[1].outputs == ("a", "", "b")


def test_constants_without_values_are_reproducible_and_distinct():
    text = "const a: f32[20]\nconst b: f32[20]\noutput a"
    first, second = parse_graph(text), parse_graph(text)
    np.testing.assert_array_equal(first.constants["a"], second.constants["a"])
    assert (first.constants["a"] != first.constants["b"]).all()


@pytest.mark.parametrize(("line", "message"), [
    ("y = MATMUL(x, w)", "cannot be inferred"),
    ("input z: f33[1]", "not a type"),
    ("y: f32[1] = 3", "not a node"),
    ("y: f32[1] = OP(x, a=open('f'))", "not a value"),
    ("y: f32[1] = OP(x", "line 2"),
])
def test_errors_name_the_line(line, message):
    with pytest.raises(GraphError, match="line 2") as caught:
        parse_graph(f"input x: f32[1]\n{line}\n")
    assert message in str(caught.value)
