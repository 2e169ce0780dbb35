"""A norm goes into the product behind it; look-alikes stay."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import properties
from ge2.compiler.passes.decompose import DecomposePass
from ge2.compiler.passes.fuse_norm_gemm import FuseNormGemmPass
from ge2.contract import numpy_dtype
from ge2.runtime.cpu import run_graph

from .graphs import apply, ops, parse

HEAD = """
input x: f32[b, 5, 8]
input t: f32[8]
const g: f32[8]
const h: f32[8]
const w: f32[8, 6]
const v: f32[6, 8]
const c: f32[6]
"""
RNG = np.random.default_rng(1)
VALUES = {"g": RNG.uniform(0.5, 1.5, 8).astype("f4"), "h": RNG.normal(size=8).astype("f4"),
          "w": RNG.normal(size=(8, 6)).astype("f4"), "v": RNG.normal(size=(6, 8)).astype("f4"),
          "c": RNG.normal(size=6).astype("f4")}
CASES = {
    "layer norm": "n = LAYER_NORM(x, g, h)\ny = MATMUL(n, w)\noutput y",
    "bias and activation": ("n = LAYER_NORM(x, g, h, epsilon=0.01)\n"
                            'y = GEMM_BIAS_ACT(n, v, c, trans_b=1, act="gelu")\noutput y'),
    "rms norm": "n = RMS_NORM(x, g)\ny = GEMM_BIAS_ACT(n, w, c)\noutput y",
    "the norm is read elsewhere": "n = LAYER_NORM(x, g, h)\ny = MATMUL(n, w)\nz = NEG(n)\n"
                                  "output y, z",
    "a factor": "n = LAYER_NORM(x, g)\ny = GEMM_BIAS_ACT(n, w, alpha=2.0)\noutput y",
    "a residual that is there": "r = SLICE(x, starts=[0], ends=[6], axes=[2])\nn = RMS_NORM(x, g)\n"
                                'y = GEMM_BIAS_ACT(n, w, "", r, beta=0.5)\noutput y',
    "the norm is an output": "n = LAYER_NORM(x, g)\ny = MATMUL(n, w)\noutput n, y",
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_rewrites(text):
    graph = apply([FuseNormGemmPass()], parse(HEAD + text, **VALUES))
    assert "NORM_GEMM" in ops(graph)
    assert not {"LAYER_NORM", "RMS_NORM", "MATMUL", "GEMM_BIAS_ACT"} & set(ops(graph))
    apart = apply([FuseNormGemmPass(), DecomposePass(native=frozenset())],
                  parse(HEAD + text, **VALUES))
    assert "NORM_GEMM" not in ops(apart)


LEAVES = {
    "two products": "n = LAYER_NORM(x, g)\ny = MATMUL(n, w)\nz = MATMUL(n, w)\noutput y, z",
    "a computed scale": "n = LAYER_NORM(x, t)\ny = MATMUL(n, w)\noutput y",
    "another axis": "n = LAYER_NORM(x, g, axis=-2)\ny = MATMUL(n, w)\noutput y",
    "a residual of the norm itself": "n = LAYER_NORM(x, g)\nr = NEG(n)\n"
                                     's = SLICE(r, starts=[0], ends=[6], axes=[2])\n'
                                     'y = GEMM_BIAS_ACT(n, w, "", s)\noutput y',
    "f32 on tensor cores": 'n = LAYER_NORM(x, g)\ny = GEMM_BIAS_ACT(n, w, f32="x3")\noutput y',
}


@pytest.mark.parametrize("text", LEAVES.values(), ids=LEAVES)
def test_leaves_alone(text):
    text = text.replace("LAYER_NORM(x, g, axis=-2)", "LAYER_NORM(x, g, axis=1)") if (
        "axis=-2" in text) else text
    graph = parse(HEAD.replace("const g: f32[8]", "const g: f32[5, 8]") + text,
                  **{**VALUES, "g": np.ones((5, 8), "f4")}) if "axis=1" in text else parse(
                      HEAD + text, **VALUES)
    assert "NORM_GEMM" not in ops(apply([FuseNormGemmPass()], graph))


@pytest.mark.parametrize(("mode", "fuses"), [("ieee", True), ("tf32", False), ("x3", False)])
def test_how_f32_is_multiplied_may_come_from_the_environment(monkeypatch, mode, fuses):
    monkeypatch.setenv("GE2_F32", mode)
    for dtype, expected in (("f32", fuses), ("f16", True)):
        text = (HEAD + CASES["layer norm"]).replace("f32", dtype)
        values = {name: array.astype(numpy_dtype(dtype))
                  for name, array in VALUES.items()}
        graph = apply([FuseNormGemmPass()], parse(text, **values))
        assert ("NORM_GEMM" in ops(graph)) == expected


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_values_stay(text):
    before = parse(HEAD + text, **VALUES)
    after = apply([FuseNormGemmPass()], before)
    given = {"x": RNG.normal(size=(3, 5, 8)).astype("f4"), "t": np.ones(8, "f4")}
    wanted = run_graph(before, given, dtype="f64")
    for name, found in run_graph(after, given).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("text", "outputs"), [(CASES["layer norm"], 1),
                                               (CASES["the norm is read elsewhere"], 2)])
def test_rows_are_stored_where_something_reads_them(text, outputs):
    node = apply([FuseNormGemmPass()], parse(HEAD + text, **VALUES)).nodes[0]
    assert (node.attrs["rows"], len(node.outputs)) == (outputs == 2, outputs)


def test_needs_its_licence():
    with properties.without("LAYER_NORM", "mergeable"):
        graph = apply([FuseNormGemmPass()], parse(HEAD + CASES["layer norm"], **VALUES))
    assert "NORM_GEMM" not in ops(graph)


def test_half_precision_rounds_the_rows_once():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype("f2") for s in ((4, 8), (8,), (8, 6))]
    y, rows = opdefs.reference("NORM_GEMM", arrays, {"norm": "RMS_NORM", "rounding": "f16"})
    apart = opdefs.reference("RMS_NORM", arrays[:2], {"axis": -1})[0]
    np.testing.assert_array_equal(rows, apart)
    np.testing.assert_array_equal(y, opdefs.reference("MATMUL", [apart, arrays[2]], {})[0])
