"""Attention at its edges: huge scores, rows that see no key, keys behind the length, formulas."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.concrete import concretize
from ge2.compiler.ir.expr import ExprBundle, cast, coord, input
from ge2.compiler.kernels import selector
from ge2.compiler.plan import make_plan
from ge2.contract import numpy_dtype
from ge2.evidence.device import profile_for
from ge2.launch.attention_examples import attention_problem
from ge2.model import GraphBuilder
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem
from ge2.runtime.problem_reference import reference

KERNELS = [("attention/attention_mma[BM=64,BN=32]", "f16"),
           ("attention/attention_simt[BM=32]", "f32")]
BOTH = pytest.mark.parametrize(("kernel", "dtype"), KERNELS)


def _values(dtype, q, keys, *, scale=1.0):
    draw = np.random.default_rng(keys)
    k = (q[0], q[1], keys, q[3])
    return [(draw.standard_normal(s) * f).astype(numpy_dtype(dtype))
            for s, f in ((q, scale), (k, scale), (k, 1.0))]


@BOTH
def test_of_huge_scores_the_largest_key_is_left(kernel, dtype):
    """Scores up to thousands, of both signs: no overflow, and no row of NaN."""
    shape = (1, 1, 34, 32)
    arrays = [*_values(dtype, shape, 34, scale=60.0), None, None, None, None]
    problem = attention_problem(dtype, shape, lse=True)
    y, lse = run_problem(kernel, problem, arrays)
    wanted, statistics = reference(problem, arrays)
    assert np.abs(statistics).max() > 5000
    np.testing.assert_allclose(y.astype("f4"), wanted, atol=4e-3)
    np.testing.assert_allclose(lse, statistics, rtol=1e-5)


@BOTH
def test_rows_that_see_no_key_are_zero(kernel, dtype):
    """By place, by flags and by -inf; the statistic says -inf, and other rows are as ever."""
    shape = (1, 2, 20, 32)
    arrays = _values(dtype, shape, 40)
    before = attention_problem(dtype, shape, keys=40, causal=True, offset=-7, lse=True)
    flags = np.random.default_rng(1).random((1, 2, 20, 40)) > 0.5
    flags[:, :, ::3] = False
    chosen, added = (attention_problem(dtype, shape, keys=40, mask=kind, lse=True)
                     for kind in ("bool", dtype))
    low = np.where(flags, 0, -np.inf).astype(numpy_dtype(dtype))
    for problem, mask in ((before, None), (chosen, flags), (added, low)):
        given = [*arrays, mask, None, None, None]
        y, lse = run_problem(kernel, problem, given)
        wanted, statistics = reference(problem, given)
        empty = np.isneginf(statistics)
        assert empty.any() and not empty.all() and not y[empty].any()
        np.testing.assert_array_equal(np.isneginf(lse), empty)
        np.testing.assert_allclose(y.astype("f4"), wanted, atol=4e-3)


@BOTH
def test_keys_behind_the_length_are_not_read(kernel, dtype):
    """NaN there changes nothing, also in a tile that the length cuts."""
    shape = (2, 1, 5, 32)
    q, k, v = _values(dtype, shape, 70)
    length = np.array([37, 3], np.int32)
    problem = attention_problem(dtype, shape, keys=70, length="i32", lse=True)
    wanted = reference(problem, [q, k, v, None, length, None, None])
    for b, n in enumerate(length):
        k[b, :, n:] = v[b, :, n:] = np.nan
    found = run_problem(kernel, problem, [q, k, v, None, length, None, None])
    for y, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y.astype("f4"), expected, atol=4e-3)


@BOTH
def test_a_formula_sees_its_coordinates_and_forbids_keys(kernel, dtype):
    score = ExprBundle((input(0) + cast(coord(1) * 3 + coord(0), "f32") * input(1) * 0.1,
                        cast(coord(2) + coord(3), "i32").apply("bit_and", 3).ne(0)))
    extra = TensorSpec.dense("f32", (1, 1, 1, 24))
    shape = (2, 2, 10, 16)
    problem = attention_problem(dtype, shape, keys=24, score=score, extras=(extra,), lse=True)
    slopes = np.broadcast_to(np.linspace(-1, 1, 24, dtype=np.float32), (2, 2, 10, 24))
    given = [*_values(dtype, shape, 24), None, None, None, None, slopes]
    for y, expected in zip(run_problem(kernel, problem, given), reference(problem, given),
                           strict=True):
        np.testing.assert_allclose(y.astype("f4"), expected, atol=4e-3)


def test_gpus_without_asynchronous_copies_use_their_tensor_cores():
    shape = (1, 2, 37, 64)
    problem = attention_problem("f16", shape, keys=70, causal=True, offset=33, lse=True)
    assert selector.select(problem, profile_for("sm_75")).variant.kernel.name == "attention_mma"
    given = [*_values("f16", shape, 70), None, None, None, None]
    found = run_problem("attention_mma", problem, given, device=profile_for("sm_75"))
    for y, expected in zip(found, reference(problem, given), strict=True):
        np.testing.assert_allclose(y.astype("f4"), expected, atol=4e-3)


def test_one_launch_reads_slices_of_a_projection_and_writes_for_the_next():
    """Between the products of an encoder's attention nothing is launched but attention."""
    g = GraphBuilder("block")
    draw = np.random.default_rng(3)
    x = g.input("x", "f16", ["batch", "length", 32])
    allowed = g.unsqueeze(g.input("mask", "bool", ["batch", "length"]), axes=(1, 2))
    weights = [g.weight(f"w{i}", (draw.standard_normal((32, 32)) / 6).astype(np.float16))
               for i in range(4)]
    q, k, v = (g.matmul(x, w) for w in weights[:3])
    seen = g.attention(q, k, v, allowed, q_num_heads=2, kv_num_heads=2)
    g.output("y", g.matmul(seen, weights[3]))
    feeds = {"x": draw.standard_normal((2, 9, 32)).astype(np.float16),
             "mask": np.arange(9) < np.array([[9], [4]])}
    found, wanted = (g.model(backend=backend).run(feeds)["y"] for backend in ("emulate", "cpu"))
    np.testing.assert_allclose(found.astype("f4"), wanted.astype("f4"), atol=4e-3)
    plan = make_plan(concretize(g.model(backend="emulate").optimized.graph,
                                {"batch": 2, "length": 9}), profile_for("sm_90a"))
    assert [s.problem.op_type for s in plan.steps] == ["GEMM_BIAS_ACT", "ATTENTION",
                                                       "GEMM_BIAS_ACT"]
