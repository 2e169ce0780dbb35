"""Adversarial rows give one answer in every realization: infinities, NaN, offsets, overflow."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry
from ge2.launch.row import row_problem
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem

# kernel, params, a row length that it holds; "column" rows are neighbours in memory.
REALIZATIONS = {
    "warp": ("row_warp", {"VECTORS": 2}, 200),
    "warp-odd": ("row_warp", {"VECTORS": 2}, 199),
    "block": ("row_block", {"VECTORS": 2, "REDUCE": "block"}, 1500),
    "tree": ("row_block", {"VECTORS": 4, "REDUCE": "shared_tree"}, 1501),
    "copied": ("row_copied", {"VECTORS": 4, "REDUCE": "warp_shuffle"}, 500),
    "copied-odd": ("row_copied", {"VECTORS": 2, "REDUCE": "block"}, 1501),
    "packed": ("row_block", {"VECTORS": 4, "REDUCE": "block", "UNPACK": "again"}, 2048),
    "early": ("row_warp", {"VECTORS": 2, "WEIGHTS": "early"}, 256),
    "cluster": ("row_cluster", {"BLOCKS": 2, "THREADS": 512, "VECTORS": 8}, 20_000),
    "loop": ("row_loop", {"THREADS": 128}, 3001),
    "split": ("row_split", {"THREADS": 256}, 33_001),
    "column": ("row_column", {"DOWN": 8}, 333),
}


def run(realization: str, op, rows: np.ndarray, out: str = "f32") -> np.ndarray:
    """Run op over rows [r, n] (f32 or f16) and return its first output."""
    name, params, n = REALIZATIONS[realization]
    assert rows.shape[1] == n
    variant = next(v for v in registry.get(name).variants
                   if all(v.param(k) == p for k, p in params.items()))
    dtype = "f16" if rows.dtype == np.float16 else "f32"
    spec, strides = TensorSpec.dense(dtype, rows.shape), ()
    if realization == "column":
        strides = (1, rows.shape[0])
        spec = TensorSpec(dtype, rows.shape, strides)
    extras = [np.ones(n, "f4")] * op.n_extras
    inputs = [spec, *(TensorSpec.dense("f32", (n,)) for _ in extras)]
    problem = row_problem(op, inputs, [out], strides)
    return run_problem(variant, problem, [rows, *extras])[0]


def normal(realization: str, count: int = 4) -> np.ndarray:
    n = REALIZATIONS[realization][2]
    return np.random.default_rng(n).standard_normal((count, n)).astype("f4")


@pytest.mark.parametrize("realization", REALIZATIONS)
def test_softmax_of_infinities_and_nan(realization: str) -> None:
    x = normal(realization, 8)
    x[0] = -np.inf
    x[1, :] = -np.inf
    x[1, -2] = 3.0
    x[2, 5] = np.inf
    x[3, 0] = np.nan
    x[4, -1] = np.nan
    x[5, : x.shape[1] // 2] = -np.inf
    x[6] = 1e4 + x[6]
    found = run(realization, build_row_op("softmax"), x)
    assert np.isnan(found[[0, 2, 3, 4]]).all()
    np.testing.assert_array_equal(np.flatnonzero(found[1]), [x.shape[1] - 2])
    assert found[1, -2] == 1.0
    wanted = evaluate_row(build_row_op("softmax").widened(), [x[5:]])[0]
    np.testing.assert_allclose(found[5:], wanted, rtol=2e-6)


@pytest.mark.parametrize("realization", REALIZATIONS)
def test_layer_norm_of_large_offsets_does_not_cancel(realization: str) -> None:
    x = normal(realization)
    x[0] = 1e4 + np.arange(x.shape[1]) * 1e-3
    x[1] += 1e5
    x[2, 0] = 1e5
    x[3] = 7.0
    op = build_row_op("layer_norm")
    found = run(realization, op, x)
    wanted = evaluate_row(op.widened(), [x], [1.0, 1.0])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("realization", REALIZATIONS)
def test_sums_of_f16_pass_its_range(realization: str) -> None:
    n = REALIZATIONS[realization][2]
    x = np.full((4, n), 60000.0, np.float16)
    found = run(realization, build_row_op("sum"), x)
    np.testing.assert_allclose(found, np.full(4, x[0, 0].astype("f8") * n), rtol=1e-6)


@pytest.mark.parametrize("realization", REALIZATIONS)
def test_maximum_and_its_place(realization: str) -> None:
    x = normal(realization)
    x[0, 0], x[1, -1] = np.nan, np.nan
    x[2, 7] = x[2, 100] = 50.0
    x[3] = -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(run(realization, build_row_op("max"), x), x.max(-1))
    found = run(realization, build_row_op("argmax"), x, "i64")
    np.testing.assert_array_equal(found, [0, x.shape[1] - 1, 7, 0])


@pytest.mark.parametrize("name", ["row_warp", "row_loop"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (1, 1), (5, 3)])
def test_tiny_rows(name: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    for op in ("sum", "layer_norm"):
        row = build_row_op(op)
        extras = [np.ones(shape[1], "f4")] * row.n_extras
        specs = [TensorSpec.dense("f32", shape), *(TensorSpec.dense("f32", shape[1:])
                                                   for _ in extras)]
        found, = run_problem(name, row_problem(row, specs, ["f32"]), [x, *extras])
        wanted, = evaluate_row(row.widened(), [x], [1.0] * len(extras))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
