"""Groups of blocks that walk over long rows together: rings that wrap, many rounds, odd slices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ge2.compiler.ir.row import RowOp
from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry
from ge2.evidence.device import profile_for
from ge2.launch.row import row_problem
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem

VARIANT = next(v for v in registry.get("row_pipe").variants
               if v.param("THREADS") == 256 and v.param("VECTORS") == 8 and v.param("STAGES") == 3)


def run(op: RowOp, arrays: list[np.ndarray], dtype: str, sm_count: int,
        weights: str = "f32") -> list[np.ndarray]:
    """Run op on a device of a few multiprocessors."""
    device = replace(profile_for("sm_90a"), sm_count=sm_count)
    shape = arrays[0].shape
    specs = [TensorSpec.dense(dtype, shape)] * op.n_inputs
    specs += [TensorSpec(weights, shape, (0, 1))] * op.n_extras
    problem = row_problem(op, specs, [dtype if kind == "row" else "f32" for kind in op.outputs])
    return run_problem(VARIANT, problem, arrays, device=device)


@pytest.mark.parametrize("sm_count, rows, n", [(2, 9, 16384), (3, 7, 20_008), (1, 3, 12_288)])
def test_softmax_over_many_rounds(sm_count: int, rows: int, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((rows, n)).astype("f4")
    x[1, 5] = np.inf
    x[2] = -np.inf
    x[0, : n // 2] = -np.inf
    op = build_row_op("softmax")
    (found,) = run(op, [x], "f32", sm_count)
    with np.errstate(invalid="ignore"):
        (wanted,) = evaluate_row(op.widened(), [x.astype("f8")])
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-12)
