"""Canonicalize, decompose, constant folding, common subexpressions, dead code."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import properties
from ge2.compiler.passes.canonicalize import CanonicalizePass
from ge2.compiler.passes.cse import CommonSubexpressionPass
from ge2.compiler.passes.dead_code import DeadCodePass
from ge2.compiler.passes.decompose import DecomposePass
from ge2.compiler.passes.fold_constants import FoldConstantsPass

from .graphs import apply, ops, parse, random_graph

CLEANUP = [DecomposePass(), CanonicalizePass(), FoldConstantsPass(), CommonSubexpressionPass(),
           DeadCodePass()]


def _canonical(body, outputs="y", inputs="input x: f32[2, 3, 4]"):
    return apply([CanonicalizePass(), DeadCodePass()], f"{inputs}\n{body}\noutput {outputs}")


# -- canonicalize -----------------------------------------------------------------------------

@pytest.mark.parametrize(("body", "left"), [
    ("a = IDENTITY(x)\ny = EXP(a)", ["EXP"]),
    ("a = EXP(x)\ny = IDENTITY(a)", ["EXP"]),
    ('a = CAST(x, to="f32")\ny = EXP(a)', ["EXP"]),
    ('a = CAST(x, to="f64")\ny = CAST(a, to="f16")', ["CAST"]),
    ('b = EXP(x)\na = CAST(b, to="f64")\ny = CAST(a, to="f32")', ["EXP"]),
    ("a = TRANSPOSE(x, perm=[0, 1, 2])\ny = EXP(a)", ["EXP"]),
    ("a = TRANSPOSE(x, perm=[1, 2, 0])\ny = TRANSPOSE(a, perm=[1, 2, 0])", ["TRANSPOSE"]),
    ("a = TRANSPOSE(x, perm=[1, 2, 0])\nb = TRANSPOSE(a, perm=[2, 0, 1])\ny = EXP(b)", ["EXP"]),
    ("a = RESHAPE(x, shape=[6, -1])\ny = RESHAPE(a, shape=[24])", ["RESHAPE"]),
    ("a = RESHAPE(x, shape=[6, -1])\nb = RESHAPE(a, shape=[2, 3, 4])\ny = EXP(b)", ["EXP"]),
    ("a = SLICE(x, starts=[0], ends=[99], axes=[1])\ny = EXP(a)", ["EXP"]),
    ("a = EXPAND(x, shape=[3, 1])\ny = EXP(a)", ["EXP"]),
    ("a = CONCAT(x, axis=1)\ny = EXP(a)", ["EXP"]),
    ("a = NEG(x)\nb = NEG(a)\ny = EXP(b)", ["EXP"]),
    ("a = RELU(x)\nb = RELU(a)\ny = EXP(b)", ["RELU", "EXP"]),
    ("const one: f32[1, 4] = [1, 1, 1, 1]\na = MUL(one, x)\nb = DIV(a, one)\ny = EXP(b)",
     ["EXP"]),
    ("const zero: f32[] = 0\na = SUB(x, zero)\ny = EXP(a)", ["EXP"]),
    ("const one: f32[] = 1\na = POW(x, one)\ny = EXP(a)", ["EXP"]),
    ("const two: f32[] = 2\ny = POW(x, two)", ["MUL"]),
])
def test_canonicalize_rewrites(body, left):
    assert ops(_canonical(body)) == left


@pytest.mark.parametrize("body", [
    "y = IDENTITY(x)",  # input and output need different names
    'a = CAST(x, to="f16")\ny = CAST(a, to="f32")',  # rounds
    "const two: f32[] = 2\ny = DIV(two, x)",
    "const one: f32[] = 1\ny = DIV(one, x)",
    "const zero: f32[] = 0\ny = SUB(zero, x)",
    "a = SLICE(x, starts=[3], ends=[-99], axes=[2], steps=[-1])\ny = EXP(a)",
    "a = EXP(x)\ny = EXP(a)",
])
def test_canonicalize_leaves_alone(body):
    text = f"input x: f32[2, 3, 4]\n{body}\noutput y"
    before = parse(text)
    assert ops(apply([CanonicalizePass()], text)) == ops(before)


def test_canonicalize_puts_constants_right():
    graph = _canonical("const c: f32[4]\na = ADD(c, x)\ny = SUB(c, a)")
    assert [n.inputs for n in graph.nodes] == [("x", "c"), ("c", "a")]


def test_broadcasting_by_one_is_not_dropped():
    graph = _canonical("const one: f32[3, 4] = [[1,1,1,1],[1,1,1,1],[1,1,1,1]]\ny = MUL(x, one)",
                       inputs="input x: f32[4]")
    assert ops(graph) == ["MUL"]


@pytest.mark.parametrize(("op", "name", "body"), [
    ("NEG", "involution", "a = NEG(x)\nb = NEG(a)\ny = EXP(b)"),
    ("RELU", "idempotent", "a = RELU(x)\nb = RELU(a)\ny = EXP(b)"),
    ("TRANSPOSE", "composes", "a = TRANSPOSE(x)\nb = TRANSPOSE(a)\ny = EXP(b)"),
    ("RESHAPE", "composes", "a = RESHAPE(x, shape=[24])\ny = RESHAPE(a, shape=[6, 4])"),
])
def test_canonicalize_needs_its_licence(op, name, body):
    assert ops(_canonical(body)).count(op) < body.count(op + "(")
    with properties.without(op, name):
        assert ops(_canonical(body)).count(op) == body.count(op + "(")


def test_swapping_operands_needs_its_licence():
    with properties.without("ADD", "commutative"):
        assert _canonical("const c: f32[4]\ny = ADD(c, x)").nodes[0].inputs == ("c", "x")


# -- decompose --------------------------------------------------------------------------------

def test_decompose_rewrites():
    graph = apply([DecomposePass()], """
        input x: f32[1, 3]
        input v: f32[3]
        a = SQUEEZE(x, axes=[0])
        b = MATMUL(a, v)
        y = UNSQUEEZE(b, axes=[0])
        output y
    """)
    assert ops(graph) == ["RESHAPE", "RESHAPE", "RESHAPE", "MATMUL", "RESHAPE", "RESHAPE"]


def test_decompose_leaves_alone():
    graph = apply([DecomposePass()], """
        input x: f32[2, 3]
        a = REDUCE_L2(x, axes=[1])
        y = MATMUL(x, x.t)
        output y, a
    """.replace("x.t", "t").replace("a =", "t = TRANSPOSE(x)\n        a ="))
    assert ops(graph) == ["TRANSPOSE", "REDUCE_L2", "MATMUL"]


# -- constant folding -------------------------------------------------------------------------

FOLDABLE = """
input x: f32[3]
const a: f32[3] = [1, 2, 3]
b = EXP(a)
c = ADD(b, a)
y = MUL(x, c)
output y
"""


def test_fold_constants_rewrites():
    graph = apply([FoldConstantsPass(), DeadCodePass()], FOLDABLE)
    assert ops(graph) == ["MUL"] and list(graph.constants) == ["c"]
    a = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(graph.constants["c"], np.exp(a) + a, rtol=1e-6)


def test_fold_constants_leaves_alone():
    # A broadcast that would take much more memory than its source, and an output.
    graph = apply([FoldConstantsPass()], """
        input x: f32[3]
        const a: f32[1] = [2]
        big = EXPAND(a, shape=[300, 300])
        y = EXP(a)
        z = ADD(big, a)
        output y, z
    """)
    assert ops(graph) == ["EXPAND", "EXP", "ADD"]


def test_fold_constants_needs_its_licence():
    with properties.without("EXP", "deterministic"):
        assert "EXP" in ops(apply([FoldConstantsPass()], FOLDABLE))


# -- common subexpressions --------------------------------------------------------------------

TWICE = """
input x: f32[3]
const c: f32[3] = [1, 2, 3]
const d: f32[3] = [1, 2, 3]
a = ADD(x, c)
b = ADD(d, x)
e = LEAKY_RELU(a)
f = LEAKY_RELU(b, alpha=0.01)
y = MUL(e, f)
output y
"""


def test_cse_rewrites():
    graph = apply([CommonSubexpressionPass()], TWICE)
    assert ops(graph) == ["ADD", "LEAKY_RELU", "MUL"]


def test_cse_leaves_alone():
    text = """
        input x: f32[3]
        a = LEAKY_RELU(x, alpha=0.1)
        b = LEAKY_RELU(x, alpha=0.2)
        c = SUB(a, b)
        d = SUB(b, a)
        e = EXP(x)
        f = EXP(x)
        output c, d, e, f
    """
    assert ops(apply([CommonSubexpressionPass()], text)) == ops(parse(text))


def test_cse_joins_an_output_with_what_is_none():
    graph = apply([CommonSubexpressionPass()], """
        input x: f32[3]
        a = EXP(x)
        y = EXP(x)
        b = EXP(x)
        c = NEG(a)
        d = ADD(b, c)
        output y, d
    """)
    assert ops(graph) == ["EXP", "NEG", "ADD"]


def test_cse_needs_its_licences():
    with properties.without("ADD", "commutative"):
        assert ops(apply([CommonSubexpressionPass()], TWICE)).count("ADD") == 2
    with properties.without("ADD", "deterministic"):
        assert ops(apply([CommonSubexpressionPass()], TWICE)).count("ADD") == 2


# -- dead code --------------------------------------------------------------------------------

def test_dead_code_rewrites():
    graph = apply([DeadCodePass()], """
        input x: f32[3]
        input unused: f32[1]
        const c: f32[3]
        const d: f32[3]
        a = ADD(x, c)
        b = EXP(a)
        y = ADD(x, d)
        output y
    """)
    assert ops(graph) == ["ADD"] and list(graph.constants) == ["d"]
    assert graph.inputs == ["x", "unused"] and "b" not in graph.types


def test_dead_code_leaves_alone():
    text = "input x: f32[3]\na = EXP(x)\ny = EXP(a)\noutput y, a"
    assert ops(apply([DeadCodePass()], text)) == ["EXP", "EXP"]


# -- all --------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("step", [*CLEANUP, None], ids=lambda s: s.name if s else "all")
def test_cleanup_keeps_the_invariants(seed, step):
    graph = random_graph(np.random.default_rng(seed))
    apply([step] if step else CLEANUP, graph)


def test_symbolic_extents_are_kept():
    graph = apply(CLEANUP, """
        input x: f32[B, 4]
        a = UNSQUEEZE(x, axes=[1])
        b = TRANSPOSE(a, perm=[1, 0, 2])
        c = RESHAPE(b, shape=[-1])
        d = RESHAPE(c, shape=[B, 4])
        y = EXP(d)
        output y
    """, B=5)
    assert ops(graph)[-1] == "EXP"
