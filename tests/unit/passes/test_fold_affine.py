"""Batch norms, biases and activations fold into convolutions and products before them."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import properties
from ge2.compiler.passes.canonicalize import CanonicalizePass
from ge2.compiler.passes.dead_code import DeadCodePass
from ge2.compiler.passes.decompose import DecomposePass
from ge2.compiler.passes.fold_affine import FoldAffinePass
from ge2.compiler.passes.fold_constants import FoldConstantsPass

from .graphs import apply, ops, parse

STEPS = [DecomposePass(), CanonicalizePass(), FoldConstantsPass(), DeadCodePass(),
         FoldAffinePass(), DeadCodePass()]
CONV = """
input x: f32[2, 4, 6, 6]
const w: f32[8, 4, 3, 3]
const b: f32[8]
const s: f32[8]
const t: f32[8]
const mean: f32[8]
const var: f32[8] = [1.0, 0.5, 2.0, 1.5, 0.7, 0.9, 1.1, 3.0]
const factor: f32[8, 1, 1]
const shift: f32[1, 8, 1, 1]
const number: f32[] = 3.0
const map: f32[6, 1]
input r: f32[2, 8, 6, 6]
"""
CONV_CASES = {
    "batch norm": "c = CONV2D(x, w, b, pads=[1, 1, 1, 1])\ny = BATCH_NORM(c, s, t, mean, var)",
    "without bias": "c = CONV2D(x, w, strides=[2, 2])\ny = BATCH_NORM(c, s, t, mean, var)",
    "and relu": "c = CONV2D(x, w)\nn = BATCH_NORM(c, s, t, mean, var)\ny = RELU(n)",
    "spelt out": "c = CONV2D(x, w)\nf = MUL(factor, c)\ny = ADD(shift, f)",
    "difference and quotient": "c = CONV2D(x, w, b)\nf = SUB(c, shift)\ny = DIV(f, factor)",
    "bias": "c = CONV2D(x, w)\ny = ADD(c, shift)",
    "bias and activation": "c = CONV2D(x, w)\nf = ADD(c, shift)\ny = LEAKY_RELU(f, alpha=0.2)",
    "activation": "c = CONV2D(x, w)\ny = SILU(c)",
    "number": "c = CONV2D(x, w, b)\ny = MUL(c, number)",
    "residual": "c = CONV2D(x, w, b, pads=[1, 1, 1, 1])\ny = ADD(c, r)",
    "residual block": ("c = CONV2D(x, w, pads=[1, 1, 1, 1])\nn = BATCH_NORM(c, s, t, mean, var)\n"
                       "a = ADD(r, n)\ny = RELU(a)"),
}


@pytest.mark.parametrize("body", CONV_CASES.values(), ids=CONV_CASES)
def test_convolutions_take_in_what_follows(body):
    assert ops(apply(STEPS, f"{CONV}{body}\noutput y")) == ["CONV2D"]


def test_groups_keep_their_channels():
    text = f"{CONV}c = CONV2D(x, v, group=2)\ny = BATCH_NORM(c, s, t, mean, var)\noutput y"
    assert ops(apply(STEPS, text.replace("const w", "const v: f32[8, 2, 3, 3]\nconst w"))) == [
        "CONV2D"]


@pytest.mark.parametrize(("body", "outputs"), [
    ("c = CONV2D(x, w)\ny = MUL(c, factor)", "y, c"),
    ("c = CONV2D(x, w)\ny = MUL(c, factor)\nz = NEG(c)", "y, z"),
    ("c = CONV2D(x, w, pads=[1, 1, 1, 1])\ny = MUL(c, r)", "y"),  # no constant
    ("c = CONV2D(x, w, pads=[1, 1, 1, 1])\ny = ADD(c, c)", "y"),
    ("input one: f32[1, 1, 6, 6]\nc = CONV2D(x, w, pads=[1, 1, 1, 1])\ny = ADD(c, one)", "y"),
    ("c = CONV2D(x, w, pads=[1, 1, 1, 1])\ny = MUL(c, map)", "y"),  # varies along the height
    ('c = CONV2D(x, w, act="relu")\ny = MUL(c, factor)', "y"),
    ("c = CONV2D(x, w)\ny = DIV(factor, c)", "y"),
    ("input k: f32[8, 4, 3, 3]\nc = CONV2D(x, k)\ny = MUL(c, factor)", "y"),
])
def test_convolutions_leave_alone(body, outputs):
    text = f"{CONV}{body}\noutput {outputs}"
    assert ops(apply([FoldAffinePass()], text)) == ops(parse(text))


PRODUCT = """
input x: f32[B, 4]
const w: f32[4, 8]
const b: f32[8]
const s: f32[8]
const t: f32[8]
const mean: f32[8]
const var: f32[8] = [1.0, 0.5, 2.0, 1.5, 0.7, 0.9, 1.1, 3.0]
const rows: f32[8, 1]
"""


@pytest.mark.parametrize("body", [
    "c = MATMUL(x, w)\ny = BATCH_NORM(c, s, t, mean, var)",
    "c = MATMUL(x, w)\na = ADD(c, b)\ny = BATCH_NORM(a, s, t, mean, var)",
    "c = GEMM_BIAS_ACT(x, v, b, trans_b=True, alpha=2.0)\ny = BATCH_NORM(c, s, t, mean, var)",
])
def test_products_take_in_what_follows(body):
    graph = apply(STEPS, f"const v: f32[8, 4]\n{PRODUCT}{body}\noutput y")
    assert ops(graph) == ["GEMM_BIAS_ACT"]


@pytest.mark.parametrize("body", [
    "c = MATMUL(x, w)\ny = ADD(c, b)",  # a bias: another pass
    "c = MATMUL(x, w)\nn = MATMUL(c, rows)\ny = RELU(n)",
])
def test_products_leave_alone(body):
    text = f"{PRODUCT}{body}\noutput y"
    assert ops(apply([FoldAffinePass()], text)) == ops(parse(text))


def test_needs_its_licence():
    with properties.without("CONV2D", "columnwise"):
        assert "MUL" in ops(apply(STEPS, f"{CONV}{CONV_CASES['batch norm']}\noutput y"))
    with properties.without("CONV2D", "epilogue"):
        assert "SILU" in ops(apply(STEPS, f"{CONV}{CONV_CASES['activation']}\noutput y"))


def test_shared_weights_are_not_changed_for_others():
    text = f"{CONV}c = CONV2D(x, w)\ny = MUL(c, factor)\nz = CONV2D(x, w)\noutput y, z"
    graph = apply([FoldAffinePass(), DeadCodePass()], text)
    np.testing.assert_array_equal(graph.constants["w"], parse(text).constants["w"])
    assert ops(graph) == ["CONV2D", "CONV2D"]
