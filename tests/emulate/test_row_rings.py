"""Groups and clusters of blocks that walk over long rows: rings that wrap, rounds, odd slices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ge2.compiler.ir.row import RowOp
from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry
from ge2.compiler.kernels.metadata import Variant
from ge2.evidence.device import profile_for
from ge2.launch.row import row_problem
from ge2.problem import TensorSpec
from ge2.runtime.emulate import run_problem

PIPE = next(v for v in registry.get("row_pipe").variants if v.param("THREADS") == 256)
RING = next(v for v in registry.get("row_ring").variants if v.param("BLOCKS") == 2)


def run(variant: Variant, op: RowOp, arrays: list[np.ndarray], sm_count: int) -> list[np.ndarray]:
    """Run op in f32 on a device of a few multiprocessors."""
    device = replace(profile_for("sm_90a"), sm_count=sm_count)
    shape = arrays[0].shape
    specs = [TensorSpec.dense("f32", shape)] * op.n_inputs
    specs += [TensorSpec("f32", shape, (0, 1))] * op.n_extras
    problem = row_problem(op, specs, ["f32"] * len(op.outputs))
    return run_problem(variant, problem, arrays, device=device)


@pytest.mark.parametrize("variant, sm_count, rows, n", [
    (PIPE, 2, 9, 16384), (PIPE, 3, 7, 20_008), (RING, 1, 5, 20_008), (RING, 2, 5, 32768)],
    ids=["pipe", "pipe-odd", "ring-odd", "ring"])
def test_softmax_over_many_rounds(variant: Variant, sm_count: int, rows: int, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((rows, n)).astype("f4")
    x[1, 5] = np.inf
    x[2] = -np.inf
    x[0, : n // 2] = -np.inf
    op = build_row_op("softmax")
    (found,) = run(variant, op, [x], sm_count)
    with np.errstate(invalid="ignore"):
        (wanted,) = evaluate_row(op.widened(), [x.astype("f8")])
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-12)


@pytest.mark.parametrize("variant", [PIPE, RING], ids=["pipe", "ring"])
def test_weights_and_first_elements_belong_to_their_rows(variant: Variant) -> None:
    """Far-off rows: a first element or a statistic of another row would show."""
    draw = np.random.default_rng(7)
    n = 20_008
    x = (draw.standard_normal((5, n)) + 1000.0 * np.arange(5)[:, None]).astype("f4")
    scale, bias = (draw.standard_normal((1, n)).astype("f4") for _ in range(2))
    op = build_row_op("layer_norm", statistics=True)
    weights = [np.broadcast_to(w, x.shape) for w in (scale, bias)]
    found = run(variant, op, [x, *weights], 3)
    wanted = evaluate_row(op.widened(), [x.astype("f8")], [w.astype("f8") for w in weights])
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.reshape(ours.shape), rtol=3e-5, atol=3e-5)
