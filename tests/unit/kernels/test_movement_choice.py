"""Which kernels move data and walk windows, of one size and of a class of sizes."""

from __future__ import annotations

import pytest

from ge2.compiler import opdefs
from ge2.compiler.class_plans import ClassPlans
from ge2.compiler.concrete import concretize
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import Plan, make_plan
from ge2.compiler.sized_plan import plan_at
from ge2.evidence.device import PROFILES

H200 = PROFILES["sm_90a"]


def _graph(inputs: str, node: str) -> Graph:
    lines = [f"input {text.strip()}" for text in inputs.split(";")]
    text = "\n".join([*lines, f"y = {node}", "output y"])
    return optimize(parse_graph(text, infer=opdefs.infer)).graph


def _entries(plan: Plan) -> list[str]:
    return [record.kernel.entry for record in plan.records]


@pytest.mark.parametrize(("inputs", "node", "chosen"), [
    # Most of each row is picked; few rows, or little of each, or whole slices.
    ("x: f32[4096, 4096]; i: i64[4096]", "GATHER(x, i, axis=1)", ["gather_staged"]),
    ("x: f32[16, 4096]; i: i64[4096]", "GATHER(x, i, axis=1)", ["gather"]),
    ("x: f32[4096, 4096]; i: i64[64]", "GATHER(x, i, axis=1)", ["gather"]),
    ("x: f32[4096, 4096]; i: i64[4096]", "GATHER(x, i, axis=0)", ["gather"]),
    # Pieces of odd widths; of whole words; too short to have few ends.
    ("a: f16[64, 1001]; b: f16[64, 1047]", "CONCAT(a, b, axis=1)", ["concat_rows"]),
    ("a: f16[64, 1024]; b: f16[64, 512]", "CONCAT(a, b, axis=1)", ["concat_copy"] * 2),
    ("a: f16[64, 1001]; b: f16[64, 3]", "CONCAT(a, b, axis=1)", ["concat_copy"] * 2),
    # Short rows; long ones; rows that stay aligned.
    ("x: f16[32, 128, 128]", "PAD(x, pads=[1, 1, 1, 1], axes=[1, 2])", ["pad_rows"]),
    ("x: f32[64, 4096]", "PAD(x, pads=[1, 1, 1, 1])", ["pad"]),
    ("x: f16[64, 112]", "PAD(x, pads=[8, 8], axes=[1])", ["pad"]),
    # Images that grow; that shrink; that are picked from.
    ("x: f16[32, 64, 64, 64]", 'RESIZE(x, scales=[2, 2], axes=[2, 3], mode="linear")',
     ["resample_staged"]),
    ("x: f16[32, 64, 64, 64]", 'RESIZE(x, scales=[0.5, 0.5], axes=[2, 3], mode="linear")',
     ["resample"]),
    ("x: f16[32, 64, 64, 64]", 'RESIZE(x, scales=[2, 2], axes=[2, 3], mode="nearest")',
     ["resample"]),
    ("x: f16[256, 2048, 7, 7]", "GLOBAL_AVG_POOL(x)", ["row_thread"]),
])
def test_choice_on_an_h200(inputs: str, node: str, chosen: list[str]) -> None:
    assert _entries(make_plan(_graph(inputs, node), H200)) == chosen


@pytest.mark.parametrize(("inputs", "node"), [
    ("x: f32[b, s, 64]; i: i64[64]", "GATHER(x, i, axis=2)"),
    ("x: f16[b, 8, s]", "PAD(x, pads=[1, 1, 1, 1], axes=[1, 2])"),
    ("x: f16[b, s, 128]", "PAD(x, pads=[1, 1, 1, 1], axes=[1, 2])"),
    ("x: f16[b, s, 999]; z: f16[b, s, 1001]", "CONCAT(x, z, axis=2)"),
    ("x: f16[b, s, 64, 64]", 'RESIZE(x, scales=[2, 2], axes=[2, 3], mode="linear")'),
    ("x: f16[b, s, 7, 7]", "GLOBAL_AVG_POOL(x)"),
    ("x: f16[b, 16, s, 112]", "AVG_POOL(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])"),
])
def test_named_dimensions_have_a_class_plan(inputs: str, node: str) -> None:
    """Its numbers are those of a plan of that size, where both take the same kernel."""
    graph, same = _graph(inputs, node), 0
    plans = ClassPlans(graph, H200)
    for values in ({"b": 700, "s": 333}, {"b": 64, "s": 1021}, {"b": 3, "s": 40}):
        sized = plans.find(values, {})
        assert sized is not None
        shared, alone = plan_at(sized, values), make_plan(concretize(graph, values), H200)
        for mine, theirs in zip(shared.records, alone.records, strict=False):
            if mine.kernel == theirs.kernel:
                same += 1
                assert (mine.grid, mine.block, mine.smem, mine.args) == (
                    theirs.grid, theirs.block, theirs.smem, theirs.args)
    assert same
