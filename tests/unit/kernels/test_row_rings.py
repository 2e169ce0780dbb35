"""Which rows groups of blocks walk over, how many blocks share one, and what they keep."""

from __future__ import annotations

import pytest

import ge2.launch_table as table
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.row_ring_plans import ring_plan
from ge2.evidence.device import profile_for
from ge2.launch.row import row_problem
from ge2.problem import Problem, TensorSpec

H200 = profile_for("sm_90a")


def rows_of(name: str, dtype: str, rows: int, n: int, weights: str = "") -> Problem:
    op = build_row_op(name)
    specs = [TensorSpec.dense(dtype, (rows, n))] * op.n_inputs
    specs += [TensorSpec(weights or dtype, (rows, n), (0, 1))] * op.n_extras
    return row_problem(op, specs, [dtype] * len(op.outputs))


@pytest.mark.parametrize("dtype, n, kernel, blocks", [
    ("bf16", 65536, "row_ring", 4), ("f32", 65536, "row_ring", 8), ("bf16", 131072, "row_ring", 8),
    ("bf16", 262144, "row_ring", 16), ("f32", 262144, "row_pipe", 32),
    ("bf16", 1 << 20, "row_pipe", 32), ("f32", 1 << 20, "row_pipe", 64)])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_long_rows_go_to_groups_of_blocks(name: str, dtype: str, n: int, kernel: str,
                                          blocks: int) -> None:
    problem = rows_of(name, dtype, max((1 << 27) // n, 1), n)
    variant = selector.select(problem, H200).variant
    plan = ring_plan(problem, variant, H200)
    assert variant.kernel.name == kernel and plan is not None
    assert plan.blocks == blocks and plan.full
    assert plan.keep == (name != "softmax")
    assert plan.per_sm * plan.smem <= H200.smem_per_sm
    assert plan.groups * plan.blocks <= plan.per_sm * H200.sm_count


def test_rows_that_a_block_holds_stay_with_one() -> None:
    for name in ("softmax", "rms_norm"):
        kernel = selector.select(rows_of(name, "bf16", 8192, 16384), H200).variant.kernel
        assert kernel.name in ("row_block", "row_copied")


@pytest.mark.parametrize("kernel", ["row_pipe", "row_ring"])
def test_unequal_slices_are_told_from_full_ones(kernel: str) -> None:
    problem = rows_of("softmax", "f32", 64, 50_000)
    reports = selector.rank(problem, H200, kernels=[registry.get(kernel)])
    usable = [registry.variant(r.variant_id) for r in reports if r.score is not None]
    assert usable
    for variant in usable:
        plan = ring_plan(problem, variant, H200)
        assert plan is not None and not plan.full
        held = plan.blocks * variant.param("THREADS") * variant.param("VECTORS")
        assert held >= 50_000 // 4


def test_extras_that_do_not_fit_or_differ_are_not_kept() -> None:
    variant = next(v for v in registry.get("row_pipe").variants if v.param("THREADS") == 256)
    own = rows_of("rms_norm", "f32", 64, 1 << 18)
    x = own.inputs[0]
    assert x is not None
    each = Problem("ROW", (x, x), own.outputs, own.attrs)
    plans = [ring_plan(p, variant, H200) for p in (own, each)]
    assert [plan.keep for plan in plans if plan] == [True, False]


def test_only_groups_beyond_a_cluster_need_a_cooperative_launch() -> None:
    for n, cooperative in ((1 << 20, True), (1 << 16, False)):
        problem = rows_of("softmax", "bf16", 128, n)
        (record,) = table.bind(problem, selector.select(problem, H200).variant, H200)
        assert record.cooperative == cooperative == (record.semaphores > 0)
        assert (record.cluster[0] > 1) != cooperative
