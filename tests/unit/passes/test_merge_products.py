"""Projections of one input become one product; each result is a slice."""

from __future__ import annotations

import pytest

from ge2.compiler.ir import properties
from ge2.compiler.passes.dead_code import DeadCodePass
from ge2.compiler.passes.merge_products import MergeProductsPass
from ge2.compiler.passes.pipeline import optimize

from .graphs import apply, node, ops, parse, same_values

STEPS = [MergeProductsPass(), DeadCodePass()]
HEAD = """
input x: f32[B, 3, 8]
input u: f32[B, 3, 8]
input free: f32[8, 8]
const wq: f32[8, 16]
const wk: f32[8, 4]
const wv: f32[8, 4]
const wt: f32[4, 8]
const bq: f32[16]
const bk: f32[1, 4]
"""
TAIL = "\na = NEG(q)\nb = NEG(k)\nc = NEG(v)\noutput a, b, c"


@pytest.mark.parametrize("body", [
    "q = MATMUL(x, wq)\nk = MATMUL(x, wk)\nv = MATMUL(x, wv)",
    "q = GEMM_BIAS_ACT(x, wq, bq)\nk = GEMM_BIAS_ACT(x, wk, bk)\nv = MATMUL(x, wv)",
    "q = GEMM_BIAS_ACT(x, wq, bq, alpha=0.5)\nk = MATMUL(x, wk)\nv = GEMM_BIAS_ACT(x, wv, bk)",
])
def test_rewrites(body):
    graph = apply(STEPS, f"{HEAD}{body}{TAIL}")
    assert ops(graph) == ["GEMM_BIAS_ACT", "SLICE", "NEG", "SLICE", "NEG", "SLICE", "NEG"] or (
        sorted(ops(graph)) == sorted(["GEMM_BIAS_ACT", *["SLICE", "NEG"] * 3]))
    assert len(graph.constants) == (1 if "GEMM" not in body else 2)


def test_transposed_weights_and_activations_merge_among_their_own():
    graph = apply(STEPS, f"""{HEAD}
        q = GEMM_BIAS_ACT(x, wt, trans_b=True, act="relu")
        k = GEMM_BIAS_ACT(x, wt, bk, trans_b=True, act="relu")
        v = MATMUL(x, wv)
        {TAIL}
    """)
    assert ops(graph).count("GEMM_BIAS_ACT") == 1 and ops(graph).count("MATMUL") == 1
    assert node(graph, "GEMM_BIAS_ACT").attrs == {"trans_b": True, "act": "relu"}


LEAVES = {
    "another input": "q = MATMUL(x, wk)\nk = MATMUL(u, wk)\nv = NEG(x)",
    "computed weights": "q = MATMUL(x, free)\nk = MATMUL(x, wk)\nv = NEG(x)",
    "another activation": ('q = GEMM_BIAS_ACT(x, wk, act="relu")\n'
                           'k = GEMM_BIAS_ACT(x, wk, act="tanh")\nv = NEG(x)'),
    "a residual": ("m = SLICE(u, starts=[0], ends=[4], axes=[2])\n"
                   "q = GEMM_BIAS_ACT(x, wk, None, m)\nk = MATMUL(x, wk)\nv = NEG(x)"),
    "alone": "q = MATMUL(x, wq)\nk = NEG(q)\nv = NEG(x)",
}


@pytest.mark.parametrize("body", LEAVES.values(), ids=LEAVES)
def test_leaves_alone(body):
    text = f"{HEAD}{body}{TAIL}"
    assert ops(apply(STEPS, text)) == ops(parse(text))


def test_outputs_and_readers_that_need_dense_memory_stay():
    text = f"{HEAD}q = MATMUL(x, wq)\nk = MATMUL(x, wk)\nb = NEG(k)\noutput q, b"
    assert "SLICE" not in ops(apply(STEPS, text))
    text = (f"{HEAD}input i: i64[2]\nq = MATMUL(x, wq)\nk = MATMUL(x, wk)\n"
            "a = GATHER(q, i, axis=1)\nb = GATHER(k, i, axis=1)\noutput a, b")
    assert "SLICE" not in ops(apply(STEPS, text))


def test_needs_its_licence():
    text = f"{HEAD}q = MATMUL(x, wq)\nk = MATMUL(x, wk)\nv = NEG(x){TAIL}"
    assert "SLICE" in ops(apply(STEPS, text))
    with properties.without("MATMUL", "columnwise"):
        assert "SLICE" not in ops(apply(STEPS, text))


ATTENTION = """
input x: f32[B, S, 8]
const scale: f32[] = 0.5
const wq: f32[8, 8]
const wk: f32[8, 8]
const wv: f32[8, 8]
const wo: f32[8, 8]
const bq: f32[8]
q0 = MATMUL(x, wq)
q1 = ADD(q0, bq)
k1 = MATMUL(x, wk)
v1 = MATMUL(x, wv)
q2 = RESHAPE(q1, shape=[B, S, 2, 4])
k2 = RESHAPE(k1, shape=[B, S, 2, 4])
v2 = RESHAPE(v1, shape=[B, S, 2, 4])
q = TRANSPOSE(q2, perm=[0, 2, 1, 3])
k = TRANSPOSE(k2, perm=[0, 2, 3, 1])
v = TRANSPOSE(v2, perm=[0, 2, 1, 3])
s0 = MATMUL(q, k)
s1 = MUL(s0, scale)
p = SOFTMAX(s1, axis=-1)
o0 = MATMUL(p, v)
o1 = TRANSPOSE(o0, perm=[0, 2, 1, 3])
o2 = RESHAPE(o1, shape=[B, S, 8])
o3 = MATMUL(o2, wo)
y = ADD(o3, x)
output y
"""


def test_an_attention_block_reads_its_input_once():
    graph = parse(ATTENTION)
    result = optimize(graph).graph
    same_values(graph, result, B=2, S=5)
    views = {"RESHAPE", "TRANSPOSE", "SLICE"}
    assert [op for op in ops(result) if op not in views] == [
        "GEMM_BIAS_ACT", "ATTENTION", "GEMM_BIAS_ACT"]
