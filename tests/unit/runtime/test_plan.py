"""Plans: views share memory, copies appear only where needed, memory stays near its bound."""

from __future__ import annotations

from pathlib import Path

import pytest

import ge2
from ge2.compiler import opdefs
from ge2.compiler.concrete import concretize
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.plan import BufferRef, Plan, make_plan
from ge2.evidence.device import profile_for
from ge2.problem import TensorSpec

H200 = profile_for("sm_90a")
EXAMPLES = Path(__file__).parents[3] / "examples" / "digits"


def _infer(op: str, types: list, attrs: dict) -> list:
    return opdefs.infer(op, types, attrs)


def _graph(text: str) -> Graph:
    return parse_graph(text, infer=_infer)


def _plan(text: str, **feeds: TensorSpec) -> Plan:
    return make_plan(_graph(text), H200, feeds=feeds)


def _ops(plan: Plan) -> list[str]:
    return [step.node.op for step in plan.steps]


def _root(plan: Plan, step: int, slot: int) -> str:
    ref = plan.steps[step].buffers[slot]
    assert ref is not None
    return plan.roots[ref.root].name


CHAIN = """
input x: f32[64, 128]
a = EXP(x)
b = TANH(a)
c = RELU(b)
d = EXP(c)
y = TANH(d)
output y
"""


def test_a_chain_ping_pongs_between_two_buffers() -> None:
    plan = _plan(CHAIN)
    assert plan.arena_bytes == 2 * 64 * 128 * 4 == plan.live_bound
    assert _root(plan, 4, 1) == "y" and plan.roots[plan.outputs["y"]].kind == "output"


def test_views_cost_no_step_and_share_the_buffer() -> None:
    plan = _plan("""
        input x: f32[8, 6]
        t = TRANSPOSE(x, perm=[1, 0])
        s = SLICE(t, starts=[2], ends=[5], axes=[0], steps=[1])
        y = EXP(s)
        output y
    """)
    assert _ops(plan) == ["EXP"]
    assert plan.steps[0].buffers[0] == BufferRef(plan.inputs["x"], 2 * 4)
    assert plan.steps[0].problem.inputs[0].strides == (1, 6)
    assert plan.steps[0].problem.inputs[0].align == 8


def test_a_reshape_that_is_no_view_gets_one_dense_copy() -> None:
    plan = _plan("""
        input x: f32[8, 6]
        t = TRANSPOSE(x, perm=[1, 0])
        r = RESHAPE(t, shape=[48])
        a = EXP(r)
        b = TANH(r)
        output a, b
    """)
    assert _ops(plan) == ["IDENTITY", "EXP", "TANH"]
    assert _root(plan, 1, 0) == "t.dense" == _root(plan, 2, 0)


def test_outputs_that_are_views_inputs_or_constants_are_copied() -> None:
    plan = _plan("""
        input x: f32[8, 6]
        const w: f32[3]
        t = TRANSPOSE(x, perm=[1, 0])
        output t, x, w
    """)
    assert _ops(plan) == ["IDENTITY"] * 3
    assert {plan.roots[r].kind for r in plan.outputs.values()} == {"output"}


def test_an_output_that_is_read_again_is_read_from_the_output_buffer() -> None:
    plan = _plan("""
        input x: f32[8]
        a = EXP(x)
        b = TANH(a)
        output a, b
    """)
    assert _root(plan, 1, 0) == "a" and plan.arena_bytes == 0


@pytest.mark.skipif("SPLIT" not in opdefs.OPS, reason="there is no SPLIT operator yet")
def test_pieces_of_a_split_are_views() -> None:
    plan = _plan("""
        input x: f32[8, 6]
        a, b = SPLIT(x, axis=1, num_outputs=2)
        y = ADD(a, b)
        output y
    """)
    assert _ops(plan) == ["ADD"]
    assert plan.steps[0].buffers[:2] == (BufferRef(0, 0), BufferRef(0, 12))


def test_a_state_is_written_into_its_input_after_the_last_reader() -> None:
    plan = _plan("""
        input x: f32[8]
        input cache: f32[8]
        new = ADD(x, cache)
        y = MUL(new, cache)
        alias new = cache
        output y, new
    """)
    assert plan.outputs["new"] == plan.inputs["cache"]
    assert _ops(plan) == ["ADD", "MUL", "IDENTITY"]
    assert _root(plan, 0, 2) == "new" and _root(plan, 2, 1) == "cache"


def test_strides_and_alignment_of_the_caller_reach_the_kernel() -> None:
    plan = _plan("input x: f32[4, 8]\ny = EXP(x)\noutput y\n",
                 x=TensorSpec("f32", (4, 8), (16, 1), align=4))
    spec = plan.steps[0].problem.inputs[0]
    assert spec.strides == (16, 1) and spec.align == 4


def test_empty_values_plan_no_launch() -> None:
    plan = _plan("input x: f32[0, 8]\ny = EXP(x)\noutput y\n")
    assert plan.records == [] and plan.steps[0].choice is None


def test_outputs_that_nobody_reads_are_written_too() -> None:
    """Row kernels write all that an operator has; the node may name fewer."""
    plan = _plan("input x: f32[4, 8]\ny = QUANTIZE_ROWS(x)\noutput y\n")
    assert [_root(plan, 0, slot) for slot in (1, 2)] == ["y", "y.unread"]


def test_the_caller_s_graph_is_left_alone() -> None:
    graph = _graph("input x: f32[8, 6]\nt = TRANSPOSE(x, perm=[1, 0])\noutput t\n")
    before = dict(graph.types)
    make_plan(graph, H200)
    assert graph.types == before


def test_explain_tells_choice_and_candidates() -> None:
    rows = _plan(CHAIN).explain()
    assert [row["node"] for row in rows] and all(row["kernel"] for row in rows)
    assert any(report.reasons for report in rows[0]["candidates"])


@pytest.mark.parametrize("width", [1, 2, 5])
def test_arena_is_within_a_tenth_of_the_bound_for_branches(width: int) -> None:
    """Branches of different sizes that live until a join."""
    lines = ["input x: f32[64, 64]"]
    for i in range(width):
        lines += [f"a{i} = EXP(x)",
                  f"s{i} = SLICE(a{i}, starts=[0], ends=[{8 * (i + 1)}], axes=[0])",
                  f"b{i} = TANH(s{i})", f"c{i} = EXP(b{i})", f"d{i} = EXP(c{i})"]
    lines += ["y = TANH(d0)", "output y" + "".join(f", d{i}" for i in range(1, width))]
    plan = _plan("\n".join(lines) + "\n")
    assert plan.arena_bytes <= 1.1 * plan.live_bound


@pytest.mark.parametrize("file", ["model.json", "conv.json"])
@pytest.mark.parametrize("batch", [1, 7, 360])
def test_examples_stay_within_a_tenth_of_the_bound(file: str, batch: int) -> None:
    model = ge2.load(EXAMPLES / file, backend="cpu")
    graph = concretize(model.optimized.graph, dict.fromkeys(model.symbols, batch))
    plan = make_plan(graph, H200)
    assert 0 < plan.live_bound <= plan.arena_bytes <= 1.1 * plan.live_bound
