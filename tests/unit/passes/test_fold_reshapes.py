"""Products between a flattening and its reverse take the tokens as they are."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.passes.fold_reshapes import FoldReshapesPass

from .graphs import apply, ops, parse

STEPS = [FoldReshapesPass()]
HEAD = """
input x: f32[b, s, 8]
input h: f32[b, s, 2, 4]
const w: f32[8, 6]
const c: f32[6]
flat = RESHAPE(x, shape=[-1, 8])
"""
BACK = "\ny = RESHAPE({}, shape=[b, s, 6])\noutput y"
VALUES = {"w": np.linspace(-1, 1, 48, dtype="f4").reshape(8, 6), "c": np.arange(6, dtype="f4")}


def folded(text):
    return ops(apply(STEPS, parse(HEAD + text, **VALUES)))


def kept(names):
    """Return operators without the flattening that nothing reads any more."""
    return [op for op in names if op != "RESHAPE"], names.count("RESHAPE")


CASES = {
    "product": ("p = MATMUL(flat, w)" + BACK.format("p"), ["MATMUL"]),
    "bias": ("p = MATMUL(flat, w)\nq = ADD(p, c)" + BACK.format("q"), ["MATMUL", "ADD"]),
    "bias and activation": ("p = GEMM_BIAS_ACT(flat, w, c)\nq = GELU(p)" + BACK.format("q"),
                            ["GEMM_BIAS_ACT", "GELU"]),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES)
def test_both_views_go(text, wanted):
    assert kept(folded(text)) == (wanted, 1)  # the first view, dead


def test_heads_are_split_from_the_unflattened_product():
    names = folded("p = MATMUL(flat, w)\ny = RESHAPE(p, shape=[b, s, 2, 3])\noutput y")
    assert names[-2:] == ["MATMUL", "RESHAPE"]


def test_heads_merged_and_flattened_at_once():
    text = "g = RESHAPE(h, shape=[-1, 8])\np = MATMUL(g, w)" + BACK.format("p")
    assert folded(text)[-2:] == ["RESHAPE", "MATMUL"]


LEAVES = {
    "other leading axes": "p = MATMUL(flat, w)\ny = RESHAPE(p, shape=[s, b, 6])\noutput y",
    "the product is an output": "p = MATMUL(flat, w)" + BACK.format("p") + ", p",
    "read elsewhere, too": "p = MATMUL(flat, w)\nz = NEG(p)" + BACK.format("p") + ", z",
    "a row operator between": "p = MATMUL(flat, w)\nq = SOFTMAX(p)" + BACK.format("q"),
    "two tensors between": "p = MATMUL(flat, w)\nr = MATMUL(flat, w)\nq = ADD(p, r)"
                           + BACK.format("q"),
}


@pytest.mark.parametrize("text", LEAVES.values(), ids=LEAVES)
def test_leaves_alone(text):
    graph = parse(HEAD + text, **VALUES)
    assert ops(apply(STEPS, graph)) == ops(graph)
