"""Reductions over axes that are apart: chains where states merge, else a transpose in front."""

from __future__ import annotations

import pytest

from ge2.compiler.ir import properties
from ge2.compiler.passes.split_reductions import SplitReductionsPass

from .graphs import apply, ops, parse

STEP = [SplitReductionsPass()]


def _text(op, axes, keepdims, dtype="f32", shape="2, 3, 4, 5"):
    return (f"input x: {dtype}[{shape}]\n"
            f"y = {op}(x, axes={axes}, keepdims={keepdims})\noutput y")


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [[0, 2], [0, 2, 3], [1, -1], [0, 1, 3]])
def test_rewrites(axes, keepdims):
    for op in ("REDUCE_SUM", "REDUCE_MEAN", "REDUCE_MAX"):
        assert ops(apply(STEP, _text(op, axes, keepdims))) == [op, op]
    moved = ops(apply(STEP, _text("REDUCE_L2", axes, keepdims)))
    assert moved == ["TRANSPOSE", "REDUCE_L2", *(["RESHAPE"] if keepdims else [])]


@pytest.mark.parametrize("text", [
    _text("REDUCE_SUM", [1, 2], False),
    _text("REDUCE_SUM", [-1], True),
    _text("REDUCE_SUM", [0, 1, 2, 3], False),
    _text("REDUCE_SUM", [0, 2], False, shape="2, 1, 4, 5"),
    "input x: f32[2, 3]\ny = SOFTMAX(x, axis=0)\noutput y",
])
def test_leaves_alone(text):
    assert ops(apply(STEP, text)) == ops(parse(text))


def test_half_precision_sums_keep_one_rounding():
    assert ops(apply(STEP, _text("REDUCE_SUM", [0, 2], False, "f16")))[0] == "TRANSPOSE"
    assert ops(apply(STEP, _text("REDUCE_MAX", [0, 2], False, "f16"))) == ["REDUCE_MAX"] * 2


def test_needs_its_licence():
    with properties.without("REDUCE_SUM", "mergeable"):
        assert ops(apply(STEP, _text("REDUCE_SUM", [0, 2], False)))[0] == "TRANSPOSE"


def test_keeps_the_invariants():
    graph = apply(STEP, _text("REDUCE_SUM", [0, 2], True, shape="B, 3, S, 5"), B=4, S=2)
    assert len(graph.nodes) == 2
