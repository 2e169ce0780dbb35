"""MATMUL + add + activation -> GEMM_BIAS_ACT, transposes as flags, formulas as epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir import properties
from ge2.compiler.passes.dead_code import DeadCodePass
from ge2.compiler.passes.fold_transposes import FoldTransposesPass
from ge2.compiler.passes.fuse_elementwise import FuseElementwisePass
from ge2.compiler.passes.fuse_epilogue import FuseEpiloguePass
from ge2.compiler.passes.fuse_gemm import FuseGemmPass

from .graphs import apply, node, ops, parse, random_graph

HEAD = """
input x: f32[B, 8]
input z: f32[B, 16]
const w: f32[8, 16]
const b: f32[16]
const s: f32[] = 0.5
const s1: f32[1] = 4.0
m = MATMUL(x, w)
"""


def _gemm(body, outputs="y", steps=None):
    return apply(steps or [FuseGemmPass()], f"{HEAD}{body}\noutput {outputs}")


@pytest.mark.parametrize(("body", "inputs", "attrs"), [
    ("y = ADD(m, b)", ("x", "w", "b"), {}),
    ("y = ADD(b, m)", ("x", "w", "b"), {}),
    ("a = ADD(m, b)\ny = RELU(a)", ("x", "w", "b"), {"act": "relu"}),
    ("y = TANH(m)", ("x", "w"), {"act": "tanh"}),
    ('a = ADD(m, b)\ny = GELU(a, approximate="tanh")', ("x", "w", "b"), {"act": "gelu_tanh"}),
    ("y = LEAKY_RELU(m, alpha=0.2)", ("x", "w"), {"act": "leaky_relu", "leaky_slope": 0.2}),
    ("y = CLIP(m, min=0.0, max=6.0)", ("x", "w"), {"act": "relu6"}),
    ("a = MUL(m, s)\nc = DIV(a, s1)\ny = ADD(c, b)", ("x", "w", "b"), {"alpha": 0.125}),
    ("a = MUL(s, m)\ny = ADD(a, b)", ("x", "w", "b"), {"alpha": 0.5}),
    ("y = ADD(m, z)", ("x", "w", "", "z"), {}),
    ("y = SUB(m, z)", ("x", "w", "", "z"), {"beta": -1.0}),
    ("a = MUL(z, s)\nc = ADD(a, m)\nd = ADD(c, b)\ny = SILU(d)", ("x", "w", "b", "z"),
     {"beta": 0.5, "act": "silu"}),
    ("a = ADD(m, b)\ny = ADD(a, b)", ("x", "w", "b", "b"), {}),
])
def test_fuse_gemm_rewrites(body, inputs, attrs):
    graph = _gemm(body)
    assert ops(graph) == ["GEMM_BIAS_ACT"]
    assert graph.nodes[0].inputs == inputs and graph.nodes[0].attrs == attrs
    assert graph.nodes[0].name == "y"


@pytest.mark.parametrize(("body", "outputs"), [
    ("y = MUL(m, m)", "y"),  # no scale: both operands are the product
    ("y = ADD(m, m)", "y"),
    ("y = ADD(m, b)", "y, m"),  # the product is an output
    ("y = ADD(m, b)\nv = NEG(m)", "y, v"),  # somebody else reads it
    ("y = SUB(b, m)", "y"),
    ("y = ELU(m, alpha=2.0)", "y"),
    ("y = DIV(s, m)", "y"),
    ("const t: f32[2, 1, 16]\ny = ADD(m, t)", "y"),  # makes the result larger
    ('y = CAST(m, to="f16")', "y"),
])
def test_fuse_gemm_leaves_alone(body, outputs):
    text = f"{HEAD}{body}\noutput {outputs}"
    assert ops(apply([FuseGemmPass()], text)) == ops(parse(text))


def test_nothing_follows_an_activation():
    graph = _gemm("a = RELU(m)\ny = ADD(a, b)")
    assert ops(graph) == ["GEMM_BIAS_ACT", "ADD"]


def test_scaled_operands_become_alpha():
    text = """
        input q: f32[2, 4, 8]
        input k: f32[2, 8, 4]
        const s: f32[] = 0.5
        a = MUL(q, s)
        b = DIV(k, s)
        c = MUL(q, s)
        n = NEG(c)
        y = MATMUL(a, b)
        z = MATMUL(c, k)
        output y, z, n
    """
    graph = apply([FuseGemmPass()], text)
    assert ops(graph) == ["MUL", "NEG", "GEMM_BIAS_ACT", "MATMUL"]
    assert node(graph, "GEMM_BIAS_ACT").attrs == {}  # 0.5 and 2 cancel
    with properties.without("MATMUL", "linear"):
        assert ops(apply([FuseGemmPass()], text)).count("MATMUL") == 2


@pytest.mark.parametrize("body", ["y = ADD(m, b)", "y = RELU(m)", "y = MUL(m, s)"])
def test_fuse_gemm_needs_its_licence(body):
    with properties.without("MATMUL", "epilogue"):
        assert ops(_gemm(body))[0] == "MATMUL"


def test_half_precision_rounds_once():
    text = HEAD.replace("f32", "f16") + "a = ADD(m, b)\ny = RELU(a)\noutput y"
    graph = apply([FuseGemmPass()], text)
    assert ops(graph) == ["GEMM_BIAS_ACT"] and graph.types["y"].dtype == "f16"


def test_integer_products_stay():
    text = "input x: i32[2, 2]\nm = MATMUL(x, x)\ny = ADD(m, x)\noutput y"
    assert ops(apply([FuseGemmPass(), FoldTransposesPass()], text)) == ["MATMUL", "ADD"]


# -- transposes -------------------------------------------------------------------------------

TRANSPOSED = """
input x: f32[3, 8, 4]
input v: f32[8]
const w: f32[16, 8]
a = TRANSPOSE(x, perm=[0, 2, 1])
b = TRANSPOSE(w)
y = MATMUL(a, b)
output y
"""


def test_fold_transposes_rewrites():
    graph = apply([FoldTransposesPass(), DeadCodePass()], TRANSPOSED)
    assert ops(graph) == ["GEMM_BIAS_ACT"] and graph.nodes[0].inputs == ("x", "w")
    assert graph.nodes[0].attrs == {"trans_a": True, "trans_b": True}


def test_a_flag_can_be_cleared_again():
    graph = apply([FoldTransposesPass(), DeadCodePass()], """
        input x: f32[8, 4]
        input w: f32[8, 4]
        a = TRANSPOSE(x)
        y = GEMM_BIAS_ACT(a, w, trans_a=True)
        z = GEMM_BIAS_ACT(a, w, trans_b=False)
        output y, z
    """.replace("y = GEMM_BIAS_ACT(a, w, trans_a=True)",
                "t = TRANSPOSE(w)\n        y = GEMM_BIAS_ACT(a, t, trans_a=True)"))
    assert [n.inputs for n in graph.nodes] == [("x", "w"), ("x", "w")]
    assert graph.nodes[0].attrs == {"trans_a": False, "trans_b": True}
    assert graph.nodes[1].attrs == {"trans_a": True, "trans_b": False}


@pytest.mark.parametrize("text", [
    TRANSPOSED.replace("perm=[0, 2, 1]", "perm=[0, 1, 2]").replace("f32[3, 8, 4]", "f32[3, 4, 8]")
    .replace("TRANSPOSE(w)", "TRANSPOSE(w, perm=[0, 1])").replace("f32[16, 8]", "f32[8, 16]"),
    TRANSPOSED.replace("perm=[0, 2, 1]", "perm=[2, 0, 1]").replace("f32[3, 8, 4]", "f32[3, 8, 4]")
    .replace("const w: f32[16, 8]", "const w: f32[8, 5]").replace("TRANSPOSE(w)", "EXP(w)"),
    "input x: f32[8]\nconst w: f32[8, 4]\na = TRANSPOSE(x)\ny = MATMUL(a, w)\noutput y",
])
def test_fold_transposes_leaves_alone(text):
    assert "GEMM_BIAS_ACT" not in ops(apply([FoldTransposesPass()], text))


def test_fold_transposes_needs_its_licence():
    with properties.without("MATMUL", "transposable"):
        assert "MATMUL" in ops(apply([FoldTransposesPass()], TRANSPOSED))


# -- epilogues --------------------------------------------------------------------------------

EPILOGUE = [FuseGemmPass(), FuseElementwisePass(), FuseEpiloguePass()]


@pytest.mark.parametrize("body", [
    "y = MUL(m, z)",
    "y = MUL(m, m)",
    "a = ADD(m, b)\nc = RELU(a)\nd = MUL(c, z)\ny = ADD(d, b)",
    "a = ADD(m, b)\nc = SIGMOID(a)\ny = MUL(c, z)",
    "a = ADD(m, b)\nc = EXP(a)\nd = SIN(a)\ny = MUL(c, d)",
    "y = SUB(s, m)",
])
def test_epilogue_rewrites(body):
    graph = _gemm(body, steps=EPILOGUE)
    assert ops(graph) == ["GEMM_BIAS_ACT"]


def test_factors_stay_run_time_scalars_of_the_epilogue():
    made = [_gemm(f"y = GEMM_BIAS_ACT(x, w, b, z, alpha={alpha}, beta=3.0)\nr = MUL(y, z)", "r",
                  [FuseEpiloguePass()]) for alpha in (2.0, 0.5)]
    first, second = (node(graph, "GEMM_BIAS_ACT").attrs for graph in made)
    assert first["epilogue"] == second["epilogue"] and first["epilogue"].n_scalars == 2
    assert (first["alpha"], second["alpha"], first["beta"]) == (2.0, 0.5, 3.0)


def test_the_later_of_two_products_takes_the_formula():
    graph = apply(EPILOGUE, """
        input x: f32[4, 8]
        const v: f32[8, 16]
        const w: f32[8, 16]
        g = MATMUL(x, v)
        u = MATMUL(x, w)
        a = SILU(g)
        y = MUL(a, u)
        output y
    """)
    # SILU made the first product the later one: it runs when the other factor is there.
    assert ops(graph) == ["MATMUL", "GEMM_BIAS_ACT"]
    assert graph.nodes[1].inputs == ("x", "v", "", "", "u")


@pytest.mark.parametrize(("body", "outputs"), [
    ("y = SIN(m)", "y, m"),
    ("y = SIN(m)\nv = COS(m)\nu = MATMUL(v, w2)", "y, u"),
    ("const t: f32[2, 1, 16]\ny = MUL(m, t)", "y"),
    ("c = GREATER(m, z)\ny = NOT(c)", "y"),
    ("i = CAST(z, to=\"i32\")\nc = CAST(m, to=\"i32\")\ny = ADD(c, i)", "y"),
])
def test_epilogue_leaves_alone(body, outputs):
    text = f"const w2: f32[16, 2]\n{HEAD}{body}\noutput {outputs}"
    assert "MATMUL" in ops(apply([FuseEpiloguePass()], text))


def test_an_operand_of_another_type_keeps_the_formula_out():
    text = f"input flag: bool[B, 16]\n{HEAD}y = WHERE(flag, m, z)\noutput y"
    assert ops(apply([FuseEpiloguePass()], text)) == ["MATMUL", "WHERE"]


def test_epilogue_needs_its_licence():
    with properties.without("MATMUL", "epilogue"):
        assert ops(_gemm("y = MUL(m, z)", steps=EPILOGUE)) == ["MATMUL", "MUL"]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_gemm_fusion_keeps_the_invariants(seed, dtype):
    graph = random_graph(np.random.default_rng(seed), dtype=dtype)
    apply([FoldTransposesPass(), *EPILOGUE], graph)
