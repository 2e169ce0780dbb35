"""A residual sum that is read again and the norm of it are one node."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import properties
from ge2.compiler.kernels.lower import lower
from ge2.compiler.passes.fuse_add_norm import FuseAddNormPass
from ge2.compiler.passes.pipeline import optimize
from ge2.problem import TensorSpec
from ge2.runtime.cpu import run_graph
from tests.unit.kernels.problem_values import solve

from .graphs import apply, feeds, node, ops, parse

STEP = [FuseAddNormPass()]
HEAD = """
input x: f32[2, 3, 8]
input r: f32[2, 3, 8]
input row: f32[8]
const w: f32[8]
const b: f32[8]
a = ADD(x, r)
e = NEG(a)
"""
CASES = {
    "layer norm": ("n = LAYER_NORM(a, w, b)\ny = MUL(n, e)", "ADD_LAYER_NORM"),
    "without bias": ("n = LAYER_NORM(a, w, epsilon=0.1)\ny = MUL(n, e)", "ADD_LAYER_NORM"),
    "rms norm": ("n = RMS_NORM(a, w)\ny = MUL(n, e)", "ADD_RMS_NORM"),
}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("body", "op"), CASES.values(), ids=CASES)
def test_rewrites(body, op, dtype):
    graph = apply(STEP, f"{HEAD}{body}\noutput y, a".replace("f32", dtype))
    assert ops(graph) == [op, "NEG", "MUL"] and node(graph, op).outputs == ("a", "n")
    _check_lowered(graph, op)


def _check_lowered(graph, op):
    fused = node(graph, op)
    given = {**feeds(graph), **graph.constants}
    specs = {v: TensorSpec.dense(graph.types[v].dtype, given[v].shape) for v in fused.inputs}
    problem = lower(fused, specs)
    arrays = [np.broadcast_to(given[v], (2, 3, 8)).reshape(6, 8) for v in fused.inputs]
    total, norm = solve(problem, arrays)
    expected = run_graph(parse_outputs(graph, fused), feeds(graph))
    np.testing.assert_allclose(total.reshape(2, 3, 8), expected["a"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(norm.reshape(2, 3, 8), expected["n"], rtol=5e-3, atol=5e-3)


def parse_outputs(graph, fused):
    """Return the graph with the fused node's results as its outputs."""
    result = graph.copy()
    result.outputs = list(fused.outputs)
    return result


@pytest.mark.parametrize("body", [
    "c = ADD(x, row)\nn = LAYER_NORM(c, w, b)\ny = MUL(n, c)",  # broadcasts
    "s = EXP(row)\nn = LAYER_NORM(a, s, b)\ny = MUL(n, e)",  # the scale comes later
    "c = SUB(x, r)\nn = LAYER_NORM(c, w, b)\ny = MUL(n, c)",
    "c = ADD(x, e)\ny = RMS_NORM(c, w)",  # only the norm reads it: it can add by itself
])
def test_leaves_alone(body):
    text = f"{HEAD}{body}\noutput y, a"
    assert ops(apply(STEP, text)) == ops(parse(text))


def test_a_sum_before_a_layer_norm_is_fused_though_nobody_else_reads_it():
    text = f"{HEAD}c = ADD(x, e)\ny = LAYER_NORM(c, w, b)\noutput y"
    assert ops(apply(STEP, text))[-1] == "ADD_LAYER_NORM"


def test_needs_its_licence():
    text = f"{HEAD}{CASES['layer norm'][0]}\noutput y"
    with properties.without("LAYER_NORM", "mergeable"):
        assert "LAYER_NORM" in ops(apply(STEP, text))


def test_a_product_takes_the_sum_first():
    text = """
        input x: f32[B, 8]
        const w: f32[8, 8]
        const s: f32[8]
        const b: f32[8]
        m = MATMUL(x, w)
        a = ADD(m, x)
        n = LAYER_NORM(a, s, b)
        y = ADD(n, a)
        output y
    """
    assert ops(optimize(parse(text)).graph) == ["GEMM_BIAS_ACT", "FUSED_ROW"]
