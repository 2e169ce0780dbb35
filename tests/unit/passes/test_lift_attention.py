"""Attention out of products and softmax, in the shapes that exporters write."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import properties
from ge2.compiler.passes.canonicalize import CanonicalizePass
from ge2.compiler.passes.dead_code import DeadCodePass
from ge2.compiler.passes.lift_attention import LiftAttentionPass

from .graphs import apply, node, ops, parse, same_values

STEPS = [CanonicalizePass(), LiftAttentionPass(), CanonicalizePass(), DeadCodePass()]
HEAD = """
input q: f32[2, 3, 5, 4]
input k: f32[2, 3, 6, 4]
input v: f32[2, 3, 6, 8]
input far: f32[2, 6, 3, 4]
input mask: f32[2, 1, 1, 6]
input flags: bool[5, 6]
const scale: f32[] = 0.5
const root: f32[1] = 2.0
const low: f32[] = -1e9
"""
SWAP = "t = TRANSPOSE(k, perm=[0, 1, 3, 2])\n"
END = "\np = SOFTMAX(z, axis=3)\ny = MATMUL(p, v)\noutput y"
CASES = {
    "plain": (f"{SWAP}z = MATMUL(q, t)", 3, 1.0),
    "product": (f"{SWAP}s = MATMUL(q, t)\nz = MUL(s, scale)", 3, 0.5),
    "quotient": (f"{SWAP}s = MATMUL(q, t)\nz = DIV(s, root)", 3, 0.5),
    "scaled query": (f"{SWAP}a = MUL(scale, q)\nz = MATMUL(a, t)", 3, 0.5),
    "scaled both": (f"{SWAP}a = MUL(q, scale)\nb = MUL(t, scale)\nz = MATMUL(a, b)", 3, 0.25),
    "mask": (f"{SWAP}s = MATMUL(q, t)\nd = DIV(s, root)\nz = ADD(d, mask)", 4, 0.5),
    "mask first": (f"{SWAP}s = MATMUL(q, t)\nd = MUL(s, scale)\nz = ADD(mask, d)", 4, 0.5),
    "flags": (f"{SWAP}s = MATMUL(q, t)\nd = MUL(s, scale)\nz = WHERE(flags, d, low)", 4, 0.5),
    "heads split in place": ("t = TRANSPOSE(far, perm=[0, 2, 3, 1])\ns = MATMUL(q, t)\n"
                             "z = MUL(s, scale)", 3, 0.5),
}


@pytest.mark.parametrize(("body", "inputs", "scale"), CASES.values(), ids=CASES)
def test_rewrites(body, inputs, scale):
    graph = apply(STEPS, HEAD + body + END)
    views = [op for op in ops(graph) if op != "TRANSPOSE"]
    assert views == ["ATTENTION"]
    made = node(graph, "ATTENTION")
    assert len(made.inputs) == inputs and made.attrs == {"scale": pytest.approx(scale)}


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("low", [-np.inf, -65504.0])
def test_a_triangular_constant_is_causal(offset, low):
    plane = np.where(np.tri(5, 6, offset, dtype=bool), 0, low).astype(np.float32)
    text = HEAD + "const tri: f32[1, 1, 5, 6]\n" + CASES["product"][0].replace("z =", "d =")
    graph = parse(text + "\nz = ADD(d, tri)" + END, tri=plane)
    made = node(apply(STEPS, graph), "ATTENTION")
    assert made.attrs == {"scale": 0.5, "is_causal": True, "query_offset": offset}
    assert len(made.inputs) == 3


def test_another_constant_stays_a_mask():
    plane = np.where(np.tri(5, 6, dtype=bool), 0, -1.0).astype(np.float32)
    text = HEAD + "const tri: f32[1, 1, 5, 6]\n" + CASES["product"][0].replace("z =", "d =")
    graph = parse(text + "\nz = ADD(d, tri)" + END, tri=plane)
    assert len(node(apply(STEPS, graph), "ATTENTION").inputs) == 4


def test_an_added_choice_is_its_flags():
    text = (f"{SWAP}s = MATMUL(q, t)\nd = MUL(s, scale)\nm = WHERE(flags, zero, low)\n"
            "z = ADD(d, m)")
    graph = apply(STEPS, HEAD + "const zero: f32[] = 0.0\n" + text + END)
    assert node(graph, "ATTENTION").inputs[3] == "flags"


@pytest.mark.parametrize(("body", "scale", "cap"), [
    ("a = MUL(s, scale)\nb = DIV(a, root)\nc = TANH(b)\nd = MUL(c, root)\nz = ADD(d, mask)",
     0.5, 2.0),
    ("a = TANH(s)\nz = WHERE(flags, a, low)", 1.0, 1.0),
])
def test_a_tanh_between_scores_and_mask_is_a_soft_cap(body, scale, cap):
    graph = parse(HEAD + f"{SWAP}s = MATMUL(q, t)\n{body}" + END)
    result = apply(STEPS, graph)
    made = node(result, "ATTENTION")
    assert made.attrs == {"scale": pytest.approx(scale), "softcap": cap} and len(made.inputs) == 4
    same_values(graph, result)


GUARD = "\np = SOFTMAX(z, axis=3)\nn = ISNAN(p)\ng = WHERE(n, zero, p)\ny = MATMUL(g, v)\noutput y"


def test_rows_without_a_key_set_to_zero_are_attentions_own():
    head = HEAD.replace("low: f32[] = -1e9", "low: f32[] = -inf") + "const zero: f32[] = 0.0\n"
    text = f"{SWAP}s = MATMUL(q, t)\nm = WHERE(flags, zero, low)\nz = ADD(s, m)" + GUARD
    made = node(apply(STEPS, head + text), "ATTENTION")
    assert made.inputs[3] == "flags"
    with_nan = HEAD + "const zero: f32[] = 0.0\n" + CASES["product"][0] + GUARD
    assert "ATTENTION" not in ops(apply(STEPS, with_nan))  # nothing is masked: NaN is an error


LEAVES = {
    "another axis": (CASES["product"][0] + END).replace("axis=3", "axis=2"),
    "the weights are an output": CASES["product"][0] + END + ", p",
    "the scores are an output": CASES["product"][0] + END + ", z",
    "the scores are read elsewhere": CASES["product"][0] + "\nw = NEG(s)" + END + ", w",
    "the mask is scaled": f"{SWAP}s = MATMUL(q, t)\na = ADD(s, mask)\nz = MUL(a, scale)" + END,
    "a mild fill": (CASES["flags"][0] + END).replace("low)", "root)"),
    "something else in between": f"{SWAP}s = MATMUL(q, t)\nz = SIN(s)" + END,
    "two caps": f"{SWAP}s = MATMUL(q, t)\na = TANH(s)\nz = TANH(a)" + END,
    "the mask is capped": f"{SWAP}s = MATMUL(q, t)\na = ADD(s, mask)\nz = TANH(a)" + END,
    "two masks": f"{SWAP}s = MATMUL(q, t)\na = ADD(s, mask)\nz = ADD(a, mask)" + END,
}


@pytest.mark.parametrize("body", LEAVES.values(), ids=LEAVES)
def test_leaves_alone(body):
    assert "ATTENTION" not in ops(apply(STEPS, HEAD + body))


def test_needs_its_licence():
    with properties.without("SOFTMAX", "mergeable"):
        assert "ATTENTION" not in ops(apply(STEPS, HEAD + CASES["mask"][0] + END))
