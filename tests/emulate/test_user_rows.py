"""An operator that a user declares runs on the same kernels as a built-in one."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.expr import absolute, exp, maximum
from ge2.compiler.ir.row import row_op
from ge2.compiler.ir.row_check import check_row_op
from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.kernels import selector
from ge2.evidence.device import profile_for
from ge2.launch.row import row_problem
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem

# No stages, a state of two members, an extra, two outputs of different kinds.
OWN = row_op(
    "own", state={"peak": 0.0, "sum": 0.0}, extras=1, outputs=("row", "scalar"),
    update=lambda s, r: (maximum(s.peak, absolute(r.x)), s.sum + exp(r.x)),
    merge=lambda a, b: (maximum(a.peak, b.peak), a.sum + b.sum),
    finish=lambda s, r: (r.x / s.peak * r.extras[0], s.sum / r.n))


def test_declaration_is_sound() -> None:
    check_row_op(OWN)


@pytest.mark.parametrize("shape", [(7, 33), (6, 2000), (2, 40_000)])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_chosen_kernel_agrees_with_float64(shape: tuple[int, int], dtype: str) -> None:
    draw = np.random.default_rng(3)
    x = draw.standard_normal(shape).astype("f4" if dtype == "f32" else "f2")
    weight = draw.standard_normal(shape[1]).astype("f4")
    specs = [TensorSpec.dense(dtype, shape), TensorSpec.dense("f32", shape[1:])]
    problem = row_problem(OWN, specs, [dtype, "f32"])
    variant = selector.select(problem, profile_for("sm_90a")).variant
    scaled, mean = run_problem(variant, problem, [x, weight])
    wanted = evaluate_row(OWN.widened(), [x], [weight])
    step = 2e-6 if dtype == "f32" else 2e-3
    np.testing.assert_allclose(scaled, wanted[0], rtol=step, atol=step)
    np.testing.assert_allclose(mean, wanted[1], rtol=1e-5)
