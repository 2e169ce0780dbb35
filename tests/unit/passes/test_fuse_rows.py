"""Formulas before and behind row operators are computed inside their kernels."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import properties
from ge2.compiler.kernels.lower import lower
from ge2.compiler.passes.fuse_elementwise import FuseElementwisePass
from ge2.compiler.passes.fuse_rows import FuseRowsPass
from ge2.problem import TensorSpec
from ge2.runtime.cpu import run_graph
from tests.unit.kernels.problem_values import solve

from .graphs import apply, feeds, node, ops, parse

STEPS = [FuseElementwisePass(), FuseRowsPass()]
HEAD = """
input x: f32[2, 3, 8]
input r: f32[2, 3, 8]
input m: f32[3, 1]
input k: bool[2, 1, 8]
const w: f32[8]
const b: f32[8]
const s: f32[] = 0.25
const low: f32[] = -10.0
"""

REWRITES = {
    "scaled softmax": "a = MUL(x, s)\ny = SOFTMAX(a)",
    "masked softmax": "a = MUL(x, s)\nc = WHERE(k, a, low)\ny = SOFTMAX(c, axis=1)",
    "softmax and scale": "a = SOFTMAX(x, axis=0)\ny = MUL(a, r)",
    "both sides": "a = ADD(x, m)\nc = SOFTMAX(a)\ny = MUL(c, s)",
    "norm and residual": "a = LAYER_NORM(x, w, b, epsilon=0.001)\nc = GELU(a)\ny = ADD(c, r)",
    "residual and norm": "a = ADD(x, r)\ny = RMS_NORM(a, w)",
    "norm without bias": "a = LAYER_NORM(x, w)\ny = TANH(a)",
    "root mean square": "a = MUL(x, x)\nc = REDUCE_MEAN(a, axes=[-1])\nd = ADD(c, s)\ny = RSQRT(d)",
    "unit length": "a = DIV(x, m)\nc = LP_NORM(a, p=1, axis=1)\ny = MUL(c, r)",
    "dropped axis": "a = ABS(x)\nc = REDUCE_MAX(a, axes=[1], keepdims=False)\ny = NEG(c)",
    "another type": 'a = SOFTMAX(x)\ny = CAST(a, to="f16")',
    "all axes": "a = SUB(x, r)\nc = MUL(a, a)\nd = REDUCE_SUM(c)\ny = SQRT(d)",
}


@pytest.mark.parametrize("body", REWRITES.values(), ids=REWRITES)
def test_rewrites(body):
    graph = apply(STEPS, f"{HEAD}{body}\noutput y")
    assert ops(graph) == ["FUSED_ROW"]
    _check_lowered(graph)


def _check_lowered(graph):
    """The kernel problem of the fused node computes what the graph does."""
    fused = node(graph, "FUSED_ROW")
    given = feeds(graph)
    values = {**given, **graph.constants}
    specs = {v: TensorSpec.dense(graph.types[v].dtype, values[v].shape) for v in fused.inputs}
    problem = lower(fused, specs)
    steps = [np.lib.stride_tricks.as_strided(
        values[v], s.shape, [n * values[v].itemsize for n in s.strides])
        for v, s in zip(fused.inputs, problem.inputs, strict=True)]
    found = solve(problem, steps)[0]
    expected = run_graph(graph, given)["y"]
    target = np.empty(expected.size, expected.dtype)
    view = np.lib.stride_tricks.as_strided(
        target, problem.outputs[0].shape,
        [n * target.itemsize for n in problem.outputs[0].strides])
    view[...] = found
    np.testing.assert_allclose(target.reshape(expected.shape).astype("f8"),
                               expected.astype("f8"), rtol=2e-3, atol=2e-5)


LEAVES = {
    "read twice": ("a = MUL(x, s)\nc = SOFTMAX(a)\ny = ADD(c, a)", "y", 1),
    "an output": ("a = MUL(x, s)\ny = SOFTMAX(a)", "y, a", 0),
    "a larger result": ("const t: f32[4, 1, 1, 1]\na = SOFTMAX(x)\ny = ADD(a, t)", "y", 0),
    "per row with operands": ("a = REDUCE_MAX(x, axes=[-1])\ny = ADD(a, m)", "y", 0),
    "layer norm pivots on what it reads": ("a = MUL(x, s)\ny = LAYER_NORM(a, w)", "y", 0),
    "scale read by the norm": ("a = EXP(w)\ny = RMS_NORM(x, a)", "y", 0),
    "another compute type": ('input i: i32[2, 8]\na = CAST(i, to="f32")\ny = SOFTMAX(a)', "y", 0),
    "integers": ("input i: i32[2, 8]\na = ADD(i, i)\ny = REDUCE_SUM(a)", "y", 0),
}


@pytest.mark.parametrize(("body", "outputs", "fused"), LEAVES.values(), ids=LEAVES)
def test_leaves_alone(body, outputs, fused):
    graph = apply([FuseRowsPass()], f"{HEAD}{body}\noutput {outputs}")
    # "read twice" may still compute the sum behind the softmax; what it reads must stay.
    assert ops(graph).count("FUSED_ROW") == fused
    assert len(graph.nodes) == body.count(" = ") - fused


def test_values_at_coordinates_stay_outside():
    text = """
        input x: f32[4, 4]
        a = FUSED_ELEMENTWISE(x, expr=expr("t0 = cast_f32(c1); t1 = add(x0, t0); t1"))
        y = SOFTMAX(a)
        output y
    """
    assert ops(apply([FuseRowsPass()], text)) == ["FUSED_ELEMENTWISE", "SOFTMAX"]


@pytest.mark.parametrize("name", ["prologue", "epilogue"])
def test_needs_its_licence(name):
    text = f"{HEAD}{REWRITES['both sides']}\noutput y"
    with properties.without("SOFTMAX", name):
        assert len(ops(apply(STEPS, text))) == 2


def test_half_precision_and_symbolic_extents():
    text = f"{HEAD}{REWRITES['both sides']}\noutput y".replace("f32", "f16")
    assert ops(apply(STEPS, text)) == ["FUSED_ROW"]
    text = f"{HEAD}{REWRITES['both sides']}\noutput y".replace("[2, 3, 8]", "[B, 3, N]")
    assert ops(apply(STEPS, text, B=2, N=5)) == ["FUSED_ROW"]


def test_doubles_are_computed_in_double():
    graph = apply(STEPS, f"{HEAD}{REWRITES['norm and residual']}\noutput y")
    given = feeds(graph)
    wide = run_graph(graph, given, dtype="f64")["y"]
    before = run_graph(parse(f"{HEAD}{REWRITES['norm and residual']}\noutput y"), given,
                       dtype="f64")["y"]
    # Numbers of the formula are f32, as in the kernel; everything else is double.
    np.testing.assert_allclose(wide, before, rtol=2e-7)
