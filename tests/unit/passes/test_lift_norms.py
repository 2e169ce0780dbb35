"""Norms and softmax out of chains, in the shapes that exporters write; look-alikes stay."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import properties
from ge2.compiler.passes.canonicalize import CanonicalizePass
from ge2.compiler.passes.cse import CommonSubexpressionPass
from ge2.compiler.passes.dead_code import DeadCodePass
from ge2.compiler.passes.lift_norms import LiftNormsPass
from ge2.compiler.passes.lift_softmax import LiftSoftmaxPass

from .graphs import apply, node, ops, parse, random_graph

NORMS = [CanonicalizePass(), CommonSubexpressionPass(), DeadCodePass(), LiftNormsPass()]
SOFTMAX = [CanonicalizePass(), CommonSubexpressionPass(), DeadCodePass(), LiftSoftmaxPass()]
HEAD = """
input x: f32[B, 5, 8]
input r: f32[B, 5, 8]
const w: f32[8]
const w3: f32[1, 1, 8]
const b: f32[8]
const two: f32[] = 2.0
const eps: f32[1] = 0.001
const half: f32[] = 0.5
const minus: f32[] = -0.5
const one: f32[] = 1.0
"""
CENTRE = "m = REDUCE_MEAN(x, axes=[-1])\nd = SUB(x, m)\n"
TORCH = (f"{CENTRE}p = POW(d, two)\nv = REDUCE_MEAN(p, axes=[-1])\na = ADD(v, eps)\n"
         "s = SQRT(a)\nn = DIV(d, s)\n")
LAYER = {
    "torch": f"{TORCH}g = MUL(n, w)\ny = ADD(g, b)",
    "operands swapped": (f"{CENTRE}p = MUL(d, d)\nv = REDUCE_MEAN(p, axes=[2])\na = ADD(eps, v)\n"
                         "s = RSQRT(a)\nn = MUL(s, d)\ng = MUL(w3, n)\ny = ADD(b, g)"),
    "reciprocal": (f"{CENTRE}p = POW(d, two)\nv = REDUCE_MEAN(p, axes=[-1])\na = ADD(v, eps)\n"
                   "s = SQRT(a)\ni = RECIPROCAL(s)\nn = MUL(d, i)\ng = MUL(n, w)\ny = ADD(g, b)"),
    "one over": (f"{CENTRE}p = POW(d, two)\nv = REDUCE_MEAN(p, axes=[-1])\na = ADD(v, eps)\n"
                 "s = POW(a, half)\ni = DIV(one, s)\nn = MUL(i, d)\ng = MUL(n, w)\ny = ADD(g, b)"),
    "centred twice": (f"{CENTRE}e = SUB(x, m)\np = POW(e, two)\nv = REDUCE_MEAN(p, axes=[-1])\n"
                      "a = ADD(v, eps)\ns = SQRT(a)\nn = DIV(d, s)\ng = MUL(n, w)\ny = ADD(g, b)"),
}


@pytest.mark.parametrize("body", LAYER.values(), ids=LAYER)
def test_layer_norm(body):
    graph = apply(NORMS, f"{HEAD}{body}\noutput y")
    assert ops(graph) == ["LAYER_NORM"]
    attrs = graph.nodes[0].attrs
    assert attrs["axis"] == -1 and attrs["epsilon"] == pytest.approx(1e-3)
    assert graph.nodes[0].inputs[0] == "x" and len(graph.nodes[0].inputs) == 3


BATCH_FORM = ("p = MUL(d, d)\nv = REDUCE_MEAN(p, axes=[-1])\na = ADD(v, eps)\ns = SQRT(a)\n"
              "i = RECIPROCAL(s)\nf = MUL(i, w)\nk = MUL(m, f)\nt = SUB(b, k)\nz = MUL(x, f)\n")


@pytest.mark.parametrize("last", ["y = ADD(z, t)", "y = ADD(t, z)"])
def test_layer_norm_written_as_a_batch_norm(last):
    graph = apply(NORMS, f"{HEAD}{CENTRE}{BATCH_FORM}{last}\noutput y")
    assert ops(graph) == ["LAYER_NORM"]
    assert graph.nodes[0].inputs == ("x", "w", "b")
    assert graph.nodes[0].attrs == {"axis": -1, "epsilon": pytest.approx(1e-3)}


@pytest.mark.parametrize("text", [
    BATCH_FORM.replace("SUB(b, k)", "SUB(k, b)") + "y = ADD(z, t)\noutput y",
    BATCH_FORM.replace("SUB(b, k)", "SUB(r, k)") + "y = ADD(z, t)\noutput y",
    BATCH_FORM.replace("MUL(m, f)", "MUL(r, f)") + "y = ADD(z, t)\noutput y",
    BATCH_FORM + "y = SUB(z, t)\noutput y",
    BATCH_FORM + "y = ADD(z, t)\noutput y, f",
    BATCH_FORM + "y = ADD(z, t)\noutput y, d",
])
def test_look_alikes_of_the_batch_form_stay(text):
    assert "LAYER_NORM" not in ops(apply(NORMS, f"{HEAD}{CENTRE}{text}"))


def test_layer_norm_without_affine_and_over_more_axes():
    graph = apply(NORMS, f"{HEAD}{TORCH}y = TANH(n)\noutput y".replace("[-1]", "[1, 2]"))
    assert ops(graph) == ["LAYER_NORM", "TANH"] and graph.nodes[0].attrs["axis"] == -2
    graph = apply(NORMS, f"{HEAD}{TORCH}g = MUL(n, w)\ny = ADD(g, r)\noutput y")
    assert ops(graph) == ["LAYER_NORM", "ADD"]  # r is a residual, not a bias


ROOTS = {
    "rsqrt": "s = RSQRT(a)\nn = MUL(x, s)",
    "swapped": "s = RSQRT(a)\nn = MUL(s, x)",
    "sqrt and div": "s = SQRT(a)\nn = DIV(x, s)",
    "reciprocal": "s = SQRT(a)\ni = RECIPROCAL(s)\nn = MUL(x, i)",
    "power": "s = POW(a, minus)\nn = MUL(x, s)",
}


@pytest.mark.parametrize("square", ["p = POW(x, two)", "p = MUL(x, x)"])
@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
def test_rms_norm(root, square):
    body = f"{square}\nv = REDUCE_MEAN(p, axes=[-1])\na = ADD(v, eps)\n{root}\ny = MUL(w, n)"
    graph = apply(NORMS, f"{HEAD}{body}\noutput y")
    assert ops(graph) == ["RMS_NORM"] and graph.nodes[0].inputs == ("x", "w")


def test_rms_norm_of_a_half_precision_stream():
    # As language models export it: computed in f32, cast back, then scaled.
    body = ('f = CAST(h, to="f32")\np = POW(f, two)\nv = REDUCE_MEAN(p, axes=[-1])\n'
            'a = ADD(v, eps)\ns = RSQRT(a)\nn = MUL(f, s)\nk = CAST(n, to="f16")\ny = MUL(w16, k)')
    text = f"{HEAD}input h: f16[B, 8]\nconst w16: f16[8]\n{body}\noutput y"
    assert ops(apply(NORMS, text)) == ["CAST", "RMS_NORM", "CAST", "MUL"]


NO_LAYER = {
    "another axis of the mean": LAYER["torch"].replace("m = REDUCE_MEAN(x, axes=[-1])",
                                                       "m = REDUCE_MEAN(x, axes=[1])"),
    "an axis in the middle": LAYER["torch"].replace("axes=[-1]", "axes=[1]"),
    "the square divided": TORCH.replace("DIV(d, s)", "DIV(p, s)") + "y = MUL(n, w)",
    "divided upside down": TORCH.replace("DIV(d, s)", "DIV(s, d)") + "y = MUL(n, w)",
    "a sum of squares": TORCH.replace("v = REDUCE_MEAN", "v = REDUCE_SUM") + "y = MUL(n, w)",
    "another value divided": TORCH.replace("DIV(d, s)", "DIV(r, s)") + "y = MUL(n, w)",
}


@pytest.mark.parametrize("body", NO_LAYER.values(), ids=NO_LAYER)
def test_what_only_looks_like_a_layer_norm_stays(body):
    assert "LAYER_NORM" not in ops(apply(NORMS, f"{HEAD}{body}\noutput y"))


@pytest.mark.parametrize("seen", ["v", "s", "p", "a"])
def test_a_norm_whose_inside_is_an_output_stays(seen):
    graph = apply(NORMS, f"{HEAD}{LAYER['torch']}\noutput y, {seen}")
    assert not {"LAYER_NORM", "RMS_NORM"} & set(ops(graph))


def test_a_centred_value_that_others_read_is_only_rms_normalised():
    graph = apply(NORMS, f"{HEAD}{TORCH}y = MUL(n, w)\nz = NEG(d)\noutput y, z")
    assert "RMS_NORM" in ops(graph) and "LAYER_NORM" not in ops(graph)


def test_missing_keepdims_is_another_function():
    text = """
        input x: f32[8, 8]
        p = MUL(x, x)
        v = REDUCE_MEAN(p, axes=[-1], keepdims=False)
        s = RSQRT(v)
        y = MUL(x, s)
        output y
    """
    assert "RMS_NORM" not in ops(apply(NORMS, text))


def test_norms_need_their_licence():
    with properties.without("REDUCE_MEAN", "mergeable"):
        assert "LAYER_NORM" not in ops(apply(NORMS, f"{HEAD}{LAYER['torch']}\noutput y"))


# -- softmax ----------------------------------------------------------------------------------

SHIFT = "m = REDUCE_MAX(x, axes=[AXIS])\ns = SUB(x, m)\n"
SOFTMAXES = {
    "shifted": f"{SHIFT}e = EXP(s)\nt = REDUCE_SUM(e, axes=[AXIS])\ny = DIV(e, t)",
    "plain": "e = EXP(x)\nt = REDUCE_SUM(e, axes=[AXIS])\ny = DIV(e, t)",
    "reciprocal": (f"{SHIFT}e = EXP(s)\nt = REDUCE_SUM(e, axes=[AXIS])\ni = RECIPROCAL(t)\n"
                   "y = MUL(i, e)"),
    "one over": "e = EXP(x)\nt = REDUCE_SUM(e, axes=[AXIS])\ni = DIV(one, t)\ny = MUL(e, i)",
}


@pytest.mark.parametrize("axis", ["-1", "1"])
@pytest.mark.parametrize("body", SOFTMAXES.values(), ids=SOFTMAXES)
def test_softmax(body, axis):
    graph = apply(SOFTMAX, f"{HEAD}{body}\noutput y".replace("AXIS", axis))
    assert ops(graph) == ["SOFTMAX"] and graph.nodes[0].attrs == {"axis": int(axis) % 3}


@pytest.mark.parametrize("body", [
    f"{SHIFT}e = EXP(s)\nt = REDUCE_SUM(e, axes=[AXIS])\nl = LOG(t)\ny = SUB(s, l)",
    f"{SOFTMAXES['shifted'].replace('y =', 'q =')}\ny = LOG(q)",
    "q = SOFTMAX(x, axis=2)\ny = LOG(q)",
])
def test_log_softmax(body):
    graph = apply(SOFTMAX, f"{HEAD}{body}\noutput y".replace("AXIS", "-1"))
    assert ops(graph) == ["LOG_SOFTMAX"]


NO_SOFTMAX = {
    "another axis": SOFTMAXES["plain"].replace("AXIS", "0, 1"),
    "upside down": SOFTMAXES["plain"].replace("DIV(e, t)", "DIV(t, e)"),
    "another exponential": SOFTMAXES["plain"].replace("DIV(e, t)", "DIV(r, t)"),
    "a mean": SOFTMAXES["plain"].replace("REDUCE_SUM", "REDUCE_MEAN"),
    "no exponential": SOFTMAXES["plain"].replace("EXP", "SIN"),
}


@pytest.mark.parametrize("body", NO_SOFTMAX.values(), ids=NO_SOFTMAX)
def test_what_only_looks_like_a_softmax_stays(body):
    graph = apply(SOFTMAX, f"{HEAD}{body}\noutput y".replace("AXIS", "-1"))
    assert not {"SOFTMAX", "LOG_SOFTMAX"} & set(ops(graph))


def test_a_shift_along_another_axis_stays_outside():
    body = SOFTMAXES["shifted"].replace("m = REDUCE_MAX(x, axes=[AXIS])",
                                        "m = REDUCE_MAX(x, axes=[1])").replace("AXIS", "-1")
    graph = apply(SOFTMAX, f"{HEAD}{body}\noutput y")
    assert ops(graph) == ["REDUCE_MAX", "SUB", "SOFTMAX"]


@pytest.mark.parametrize("seen", ["e", "t"])
def test_a_softmax_whose_inside_is_an_output_stays(seen):
    text = f"{HEAD}{SOFTMAXES['shifted']}\noutput y, {seen}".replace("AXIS", "-1")
    assert "SOFTMAX" not in ops(apply(SOFTMAX, text))


def test_softmax_needs_its_licences():
    text = f"{HEAD}{SOFTMAXES['plain']}\noutput y".replace("AXIS", "-1")
    with properties.without("SOFTMAX", "shift_invariant"):
        assert "SOFTMAX" not in ops(apply(SOFTMAX, text))
    with properties.without("REDUCE_SUM", "mergeable"):
        assert "SOFTMAX" not in ops(apply(SOFTMAX, text))


@pytest.mark.parametrize("seed", range(15))
def test_lifting_keeps_the_invariants(seed):
    graph = random_graph(np.random.default_rng(seed))
    assert len(apply([LiftNormsPass(), LiftSoftmaxPass()], graph).nodes) <= len(graph.nodes)


def test_values_that_look_alike_are_compared_by_value():
    # The same text with two different inputs: nothing may be joined.
    text = f"{HEAD}e = EXP(x)\nf = EXP(r)\nt = REDUCE_SUM(f, axes=[-1])\ny = DIV(e, t)\noutput y"
    assert ops(apply(SOFTMAX, text)) == ops(parse(text))
    assert node(parse(text), "DIV").inputs == ("e", "t")
