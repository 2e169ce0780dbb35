"""Weights along rows that start off access boundaries: two aligned accesses make one vector."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry
from ge2.compiler.kernels.row_plans import NEAR, row_access
from ge2.launch.row import row_problem
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem


@pytest.mark.parametrize("kernel, dtype, n", [
    ("row_warp", "f2", 333), ("row_warp", "f4", 131), ("row_block", "f2", 1003),
    ("row_loop", "f2", 1101)])
def test_unaligned_rows_meet_their_weights(kernel: str, dtype: str, n: int) -> None:
    draw = np.random.default_rng(n)
    x = draw.standard_normal((11, n)).astype(dtype)
    scale, bias = (draw.standard_normal((1, n)).astype(dtype) for _ in range(2))
    name = {"f2": "f16", "f4": "f32"}[dtype]
    full, weight = TensorSpec.dense(name, x.shape), TensorSpec(name, x.shape, (0, 1))
    op = build_row_op("layer_norm")
    problem = row_problem(op, [full, weight, weight], [name])
    assert row_access(problem).steps[1:3] == (NEAR, NEAR)
    variant = next(v for v in registry.get(kernel).variants
                   if v.param_map.get("VECTORS") in (None, 2, 4)
                   and v.param_map.get("WEIGHTS") in (None, "early"))
    weights = [np.broadcast_to(w, x.shape) for w in (scale, bias)]
    (found,) = run_problem(variant, problem, [x, *weights])
    (wanted,) = evaluate_row(op.widened(), [x.astype("f8")], [w.astype("f8") for w in weights])
    tolerance = 2e-3 if dtype == "f2" else 3e-6
    np.testing.assert_allclose(found.astype("f8"), wanted, rtol=tolerance, atol=tolerance)
