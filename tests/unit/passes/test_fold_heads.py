"""Heads split and merged around ATTENTION become its own axes."""

from __future__ import annotations

import pytest

from ge2.compiler.passes.fold_heads import FoldHeadsPass

from .graphs import apply, node, ops

SPLIT = """
input q: f32[b, s, 8]
input k: f32[b, t, 8]
input v: f32[b, t, 8]
input other: f32[b, 2, t, 4]
input mask: f32[b, 1, 1, t]
qh = RESHAPE(q, shape=[0, 0, 2, 4])
kh = RESHAPE(k, shape=[0, 0, 2, 4])
vh = RESHAPE(v, shape=[0, 0, 2, 4])
qt = TRANSPOSE(qh, perm=[0, 2, 1, 3])
vt = TRANSPOSE(vh, perm=[0, 2, 1, 3])
kt = TRANSPOSE(kh, perm=[0, 2, 3, 1])
kk = TRANSPOSE(kt, perm=[0, 1, 3, 2])
"""
MERGE = "\nback = TRANSPOSE(a, perm=[0, 2, 1, 3])\ny = RESHAPE(back, shape=[0, 0, 8])\noutput y"


@pytest.mark.parametrize("rest", ["", ", mask"])
def test_heads_become_attributes(rest):
    graph = apply([FoldHeadsPass()], f"{SPLIT}a = ATTENTION(qt, kk, vt{rest}){MERGE}", t=5)
    made = node(graph, "ATTENTION")
    assert made.inputs[:3] == ("q", "k", "v") and made.outputs == ("y",)
    assert made.attrs == {"q_num_heads": 2, "kv_num_heads": 2}
    assert graph.nodes[-1] is made


def test_statistics_stay():
    text = f"{SPLIT}a, stats = ATTENTION(qt, kk, vt, lse=true){MERGE}, stats"
    made = node(apply([FoldHeadsPass()], text, t=5), "ATTENTION")
    assert made.outputs == ("y", "stats") and made.attrs["q_num_heads"] == 2


def test_flat_tokens_behind_are_a_view():
    text = (f"{SPLIT}a = ATTENTION(qt, kk, vt)\nback = TRANSPOSE(a, perm=[0, 2, 1, 3])\n"
            "y = RESHAPE(back, shape=[-1, 8])\noutput y")
    graph = apply([FoldHeadsPass()], text, t=5)
    assert ops(graph)[-2:] == ["ATTENTION", "RESHAPE"]


def test_heads_that_were_never_side_by_side_get_a_view():
    text = """
input x: f32[b, s, 2, 4]
xt = TRANSPOSE(x, perm=[0, 2, 1, 3])
a = ATTENTION(xt, xt, xt)
y = TRANSPOSE(a, perm=[0, 2, 1, 3])
output y
"""
    graph = apply([FoldHeadsPass()], text)
    assert "ATTENTION" in ops(graph) and ops(graph)[-1] == "RESHAPE"


LEAVES = {
    "heads stay in front": f"{SPLIT}a = ATTENTION(qt, kk, vt)\noutput a",
    "one operand has them in front": f"{SPLIT}a = ATTENTION(qt, kk, other){MERGE}",
    "another order behind": (f"{SPLIT}a = ATTENTION(qt, kk, vt)\n"
                             "y = TRANSPOSE(a, perm=[0, 2, 3, 1])\noutput y"),
    "read twice": f"{SPLIT}a = ATTENTION(qt, kk, vt)\nz = NEG(a){MERGE}, z",
}


@pytest.mark.parametrize("text", LEAVES.values(), ids=LEAVES)
def test_leaves_alone(text):
    made = node(apply([FoldHeadsPass()], text, t=5), "ATTENTION")
    assert "q_num_heads" not in made.attrs
