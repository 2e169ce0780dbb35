"""Generated gradients run on the row kernels; long rows take one pass per stage."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_gradient import gradient
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import selector
from ge2.evidence.device import profile_for
from ge2.launch.row import row_problem
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "add_rms_norm", "logsumexp"])
@pytest.mark.parametrize(("kernel", "n"), [("row_warp", 60), ("row_block", 1003),
                                           ("row_loop", 5003)])
def test_agrees_with_float64(name: str, kernel: str, n: int) -> None:
    op = gradient(build_row_op(name))
    draw = np.random.default_rng(n)
    arrays = [draw.standard_normal((3, n)).astype("f4") for _ in range(op.n_inputs)]
    problem = row_problem(op, [TensorSpec.dense("f32", (3, n))] * op.n_inputs,
                          ["f32"] * len(op.outputs))
    if name == "logsumexp":
        arrays[-1] = arrays[-1][:, :1].repeat(n, 1)  # one dy per row
    found = run_problem(kernel, problem, arrays)
    for y, wanted in zip(found, evaluate_row(op.widened(), arrays), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-5)


def test_kernels_that_merge_are_no_candidates() -> None:
    op = gradient(build_row_op("softmax"))
    problem = row_problem(op, [TensorSpec.dense("f32", (2, 2**20))] * op.n_inputs, ["f32"])
    assert selector.select(problem, profile_for("sm_90a")).variant.kernel.name == "row_loop"
