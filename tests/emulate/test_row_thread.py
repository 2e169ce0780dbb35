"""A thread per short row: several blocks, the last of them not full, rows that start anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry, selector
from ge2.evidence.device import PROFILES
from ge2.launch.row import row_problem
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem

ROWS = 259


@pytest.mark.parametrize(("name", "n", "dtype"), [
    ("mean", 49, "f16"), ("argmax", 13, "f32"), ("logsumexp", 14, "f16"), ("variance", 7, "f32")])
def test_values_per_row_agree_with_float64(name: str, n: int, dtype: str) -> None:
    x = np.random.default_rng(n).standard_normal((ROWS, n)).astype(
        {"f16": "f2", "f32": "f4"}[dtype])
    x[3, n // 2], x[200] = np.nan, 60000.0
    op, out = build_row_op(name), "i64" if name == "argmax" else "f32"
    problem = row_problem(op, [TensorSpec.dense(dtype, x.shape)], [out])
    found = run_problem(registry.get("row_thread").variants[0], problem, [x])[0]
    wanted = evaluate_row(op.widened(), [x.astype("f8")])[0].reshape(found.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "n", "chosen"), [
    (1 << 19, 49, True), (1 << 19, 64, False), (1 << 10, 49, False)])
def test_many_rows_that_start_anywhere_are_worth_it(rows: int, n: int, chosen: bool) -> None:
    problem = row_problem(build_row_op("mean"), [TensorSpec.dense("f16", (rows, n))], ["f16"])
    kernel = selector.select(problem, PROFILES["sm_90a"]).variant.kernel.name
    assert (kernel == "row_thread") == chosen
