"""When a norm is computed inside of the product behind it, and when before it."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.class_plans import ClassPlans
from ge2.compiler.concrete import concretize
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.cost import axes_of
from ge2.compiler.kernels.norm_gemm_plans import block_groups, most_rows, runs_apart
from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import Plan, make_plan
from ge2.compiler.sized_plan import plan_at
from ge2.evidence.device import PROFILES
from ge2.launch.norm_gemm import norm_gemm_problem
from ge2.model import GraphBuilder

HIDDEN, INNER = 768, 3072
ROWS = 1 << 14  # enough for the slower product to cost more than a launch


def graph(dtype: str, trans: bool = False) -> Graph:
    """Return gelu(norm(x) w + c), and the norm itself, which a residual sum would read."""
    g = GraphBuilder("one")
    x = g.input("x", dtype, ["rows", 4, HIDDEN])
    draw = np.random.default_rng(0)
    kind = {"f32": "f4", "f16": "f2", "f64": "f8"}[dtype]
    scale, shift = (g.weight(n, draw.normal(size=HIDDEN).astype(kind)) for n in "gh")
    w = g.weight("w", draw.normal(size=(HIDDEN, INNER)).astype(kind))
    rows = g.layer_norm(x, scale, shift)
    g.output("y", g.gemm_bias_act(rows, w, act="gelu"))
    g.output("z", g.neg(rows))
    return optimize(g.graph).graph


def operators(plan: Plan) -> list[str]:
    return [step.node.op for step in plan.steps]


@pytest.mark.parametrize(("dtype", "arch", "rows", "apart"), [
    ("f32", "sm_90a", 8, False), ("f32", "sm_90a", ROWS, True),
    ("f16", "sm_90a", 8, False), ("f16", "sm_90a", ROWS, False), ("f16", "sm_80", ROWS, False),
    ("f16", "sm_75", 8, True), ("f64", "sm_90a", 8, True)])
def test_one_launch_or_two(dtype: str, arch: str, rows: int, apart: bool) -> None:
    """Two where the rows are many and the product alone is much faster, or no kernel does both."""
    plan = make_plan(concretize(graph(dtype), {"rows": rows}), PROFILES[arch])
    product = ["LAYER_NORM", "GEMM_BIAS_ACT"] if apart else ["NORM_GEMM"]
    assert operators(plan)[:-1] == product
    assert set(plan.outputs) == {"y", "z"}


def test_a_slower_kernel_is_left_earlier() -> None:
    """Of the kernels of one problem, by how much faster the product alone would be."""
    device = PROFILES["sm_90a"]
    problem = norm_gemm_problem("f16", (ROWS, INNER, HIDDEN))
    mma, wgmma = (registry.get(f"norm_gemm_{name}").variants[0] for name in ("mma", "wgmma"))
    assert most_rows(problem, mma, device) < ROWS < most_rows(problem, wgmma, device)
    assert runs_apart(problem, mma, device) and not runs_apart(problem, wgmma, device)
    few = norm_gemm_problem("f16", (64, INNER, HIDDEN))
    assert not runs_apart(few, mma, device)


def test_a_class_of_sizes_has_both_plans() -> None:
    """The number of rows that decides is a condition of each."""
    plans = ClassPlans(graph("f32"), PROFILES["sm_90a"])
    found = {}
    for rows in (1040, 4000):
        sized = plans.find({"rows": rows}, {})
        assert sized is not None
        found[rows] = operators(plan_at(sized, {"rows": rows}))[0]
        again = make_plan(concretize(graph("f32"), {"rows": rows}), PROFILES["sm_90a"])
        assert operators(again)[0] == found[rows]
    assert found == {1040: "NORM_GEMM", 4000: "LAYER_NORM"}


@pytest.mark.parametrize(("rows", "columns"), [(1, 9), (64, 9), (33, 24), (1000, 12)])
def test_groups_leave_no_block_without_work(rows: int, columns: int) -> None:
    groups = block_groups(rows, columns, 100_000, PROFILES["sm_90a"])
    share = -(-columns // groups)
    assert 1 <= groups <= columns and (groups - 1) * share < columns


def test_tensor_maps_are_not_used_where_they_do_not_reach() -> None:
    problem = norm_gemm_problem("f16", (128, 260, 96))
    reports = selector.rank(problem, PROFILES["sm_90a"])
    assert reports[0].variant_id.startswith("gemm/norm_gemm_mma")
    reasons = [r.reasons for r in reports if "wgmma" in r.variant_id]
    assert all("16 bytes" in reason[0] for reason in reasons)


def test_cost_axes_count_the_product() -> None:
    """A cost model sees the arithmetic of a product, not a pass over memory."""
    problem = norm_gemm_problem("f32", (256, 512, 384))
    axes = axes_of(problem, registry.get("norm_gemm_f32").variants[0])
    assert axes.blocks * axes.flops == 2.0 * 256 * 512 * 384
