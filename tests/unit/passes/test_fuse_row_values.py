"""Sums and maxima of a product's rows go into the product; look-alikes stay."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.concrete import concretize
from ge2.compiler.ir import properties
from ge2.compiler.passes.fuse_row_values import FuseRowValuesPass
from ge2.compiler.plan import make_plan
from ge2.evidence.device import PROFILES
from ge2.runtime.cpu import run_graph

from .graphs import apply, ops, parse

HEAD = """
input x: f32[b, 5, 8]
const w: f32[8, 6]
const c: f32[6]
"""
RNG = np.random.default_rng(1)
VALUES = {"w": RNG.normal(size=(8, 6)).astype("f4"), "c": RNG.normal(size=6).astype("f4")}
CASES = {
    "a sum": "y = MATMUL(x, w)\nr = REDUCE_SUM(y, axes=[-1])\noutput y, r",
    "squares of an activation": ('y = GEMM_BIAS_ACT(x, w, c, act="gelu")\n'
                                 "r = REDUCE_SUMSQUARE(y, axes=[2], keepdims=0)\noutput y, r"),
    "a maximum that alone reads the product": ("y = GEMM_BIAS_ACT(x, w, c)\n"
                                               "r = REDUCE_MAX(y, axes=[-1])\noutput r"),
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_rewrites(text):
    before = parse(HEAD + text, **VALUES)
    after = apply([FuseRowValuesPass()], before)
    assert ops(after)[0] == "GEMM_BIAS_ACT" and not any("REDUCE" in op for op in ops(after))
    given = {"x": RNG.normal(size=(3, 5, 8)).astype("f4")}
    wanted = run_graph(before, given, dtype="f64")
    for name, found in run_graph(after, given).items():
        assert found.shape == wanted[name].shape
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)


LEAVES = {
    "another axis": "y = MATMUL(x, w)\nr = REDUCE_SUM(y, axes=[1])\noutput y, r",
    "all axes": "y = MATMUL(x, w)\nr = REDUCE_SUM(y, axes=[0, 1, 2])\noutput y, r",
    "another reduction": "y = MATMUL(x, w)\nr = REDUCE_PROD(y, axes=[-1])\noutput y, r",
    "no product": "y = NEG(x)\nr = REDUCE_SUM(y, axes=[-1])\noutput y, r",
    "rounded products": ('y = GEMM_BIAS_ACT(x, w, f32="tf32")\nr = REDUCE_SUM(y, axes=[-1])\n'
                         "output y, r"),
}


@pytest.mark.parametrize("text", LEAVES.values(), ids=LEAVES)
def test_leaves_alone(text):
    graph = apply([FuseRowValuesPass()], parse(HEAD + text, **VALUES))
    assert any("REDUCE" in op for op in ops(graph))


def test_leaves_products_that_the_environment_has_rounded(monkeypatch):
    monkeypatch.setenv("GE2_F32", "x3")
    graph = apply([FuseRowValuesPass()], parse(HEAD + CASES["a sum"], **VALUES))
    assert "REDUCE_SUM" in ops(graph)


def test_one_of_two_reductions():
    """A product says one thing of its rows."""
    text = ("y = MATMUL(x, w)\nr = REDUCE_SUM(y, axes=[-1])\ns = REDUCE_MAX(y, axes=[-1])\n"
            "output r, s")
    graph = apply([FuseRowValuesPass()], parse(HEAD + text, **VALUES))
    assert ops(graph) == ["GEMM_BIAS_ACT", "REDUCE_MAX"]


def test_needs_its_licence():
    with properties.without("REDUCE_SUM", "mergeable"):
        graph = apply([FuseRowValuesPass()], parse(HEAD + CASES["a sum"], **VALUES))
    assert "REDUCE_SUM" in ops(graph)


@pytest.mark.parametrize(("dtype", "arch", "launches"), [
    ("f32", "sm_90a", 1), ("f16", "sm_80", 1), ("f16", "sm_90a", 2)])
def test_a_plan_keeps_the_kernel_that_is_fastest_without(dtype, arch, launches):
    """wgmma kernels say nothing of rows."""
    head = HEAD.replace("[b, 5, 8]", "[b, 512]").replace("[8, 6]", "[512, 1024]").replace(
        "c: f32[6]", "c: f32[1024]").replace("f32", dtype)
    kind = {"f32": "f4", "f16": "f2"}[dtype]
    values = {"w": np.ones((512, 1024), kind), "c": np.ones(1024, kind)}
    text = CASES["squares of an activation"].replace(
        "axes=[2], keepdims=0", "axes=[1]")
    graph = apply([FuseRowValuesPass()], parse(head + text, **values))
    plan = make_plan(concretize(graph, {"b": 2000}), PROFILES[arch])
    assert len(plan.records) == launches
