"""Plans of a class of sizes against plans made for each size, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.class_plans import ClassPlans
from ge2.compiler.concrete import concretize
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.kernels.class_choice import problem_at
from ge2.compiler.kernels.selector import Choice, select
from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import Plan, launch_offsets, make_plan
from ge2.compiler.size_class import classify
from ge2.compiler.sized_plan import SizedPlan, plan_at
from ge2.contract import numpy_dtype
from ge2.evidence.device import DeviceProfile, profile_for
from ge2.launch.patch import Args
from ge2.launch.record import LaunchRecord
from ge2.model import GraphBuilder
from ge2.problem import Problem
from tests.unit.runtime.fake_device import encode_map

from .encoder import encoder

ARCHS = ("sm_75", "sm_80", "sm_90a")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return encoder().optimized.graph


def _sizes(count: int, seed: int = 0, batch: int = 64, seq: int = 512) -> Iterator[dict[str, int]]:
    draw = random.Random(seed)
    for _ in range(count):
        yield {"batch": draw.randint(1, batch), "seq": draw.randint(1, seq)}


def _again(graph: Graph, values: dict[str, int], plan: Plan) -> Plan:
    """Plan one size with ints from the start, taking the same variants."""
    chosen = {problem_at(step.problem, values): step.choice for step in plan.steps}

    def same(problem: Problem, device: DeviceProfile) -> Choice:
        # What is not there was planned as its parts.
        return chosen.get(problem) or select(problem, device)

    return make_plan(concretize(graph, values), plan.device, choose=same)


def _launch(record: LaunchRecord) -> tuple[object, ...]:
    return (record.grid, record.block, record.smem, record.args, record.relocs,
            record.tensor_maps, record.workspace, record.semaphores)


@pytest.mark.parametrize("arch", ARCHS)
def test_numbers_equal_those_of_a_plan_of_that_size(graph: Graph, arch: str) -> None:
    plans = ClassPlans(graph, profile_for(arch))
    same = other = 0
    for values in _sizes(120, seed=1):
        # Extents of 1 drop out of a plan of one size; see the emulated test for those.
        values = {name: max(value, 2) for name, value in values.items()}
        sized = plans.find(values, {})
        assert sized is not None
        plan = plan_at(sized, values)
        again = _again(graph, values, plan)
        assert [s.node.name for s in plan.steps] == [s.node.name for s in again.steps]
        for mine, theirs in zip(plan.records, again.records, strict=True):
            if mine.kernel == theirs.kernel:
                same += 1
                assert _launch(mine) == _launch(theirs), (values, mine.kernel.entry)
            else:  # a class rests on less than one size: longer rows, narrower accesses
                other += 1
    assert same > 7 * other


def test_memory_in_use_at_the_same_time_never_overlaps(graph: Graph) -> None:
    plans = ClassPlans(graph, profile_for("sm_90a"))
    for values in _sizes(40, seed=2):
        sized = plans.find(values, {})
        assert sized is not None
        plan = plan_at(sized, values)
        used: dict[int, list[int]] = {}
        for index, step in enumerate(plan.steps):
            for ref in (*step.buffers, step.workspace):
                if ref is not None and plan.roots[ref.root].in_arena:
                    used.setdefault(ref.root, []).append(index)
        spans = [(plan.roots[r].offset, plan.roots[r].offset + plan.roots[r].nbytes, min(s), max(s))
                 for r, s in used.items()]
        for i, (low, high, first, last) in enumerate(spans):
            assert low % 256 == 0 and high <= plan.arena_bytes
            for low2, high2, first2, last2 in spans[:i]:
                assert last < first2 or last2 < first or high <= low2 or high2 <= low
        assert plan.arena_bytes <= 1.5 * plan.live_bound + 256 * len(spans)


def test_writing_a_size_into_args_gives_its_records(graph: Graph) -> None:
    """One Args block goes through all sizes of its class, as in a lease."""
    plans = ClassPlans(graph, profile_for("sm_90a"))
    blocks: dict[SizedPlan, list[Args]] = {}
    for values in _sizes(200, seed=3):
        sized = plans.find(values, {})
        assert sized is not None
        if sized not in blocks:
            blocks[sized] = [Args(record, encode_map) for record in sized.plan.records]
        numbers, plan = sized.numbers(*values.values()), plan_at(sized, values)
        steps = [step for step in plan.steps for _ in step.records]
        for index, (args, launch, record, step) in enumerate(zip(
                blocks[sized], sized.launches, plan.records, steps, strict=True)):
            args.resize(numbers, launch.fields, launch.addends, launch.tensor_maps(numbers))
            fresh = Args(record, encode_map)
            slots = range(1, 1 + len(step.buffers))
            for block in (args, fresh):
                block.patch([4096 * slot for slot in slots], 1 << 20, 1 << 21)
            assert args.tobytes() == fresh.tobytes()
            assert launch.grid(numbers) == record.grid
            assert sized.launch_offsets[index](numbers) == launch_offsets(step)
        assert sized.nbytes(numbers) == tuple(root.nbytes for root in plan.roots)
        assert sized.offsets(numbers) == tuple(root.offset for root in plan.roots)


def test_which_plan_serves_a_size_does_not_depend_on_the_order_of_sizes(graph: Graph) -> None:
    sizes = list(_sizes(60, seed=4, seq=2048))
    found = []
    for order in (sizes, sizes[::-1]):
        plans = ClassPlans(graph, profile_for("sm_90a"))
        made = {}
        for values in order:
            sized = plans.find(values, {})
            assert sized is not None
            made[tuple(values.items())] = plan_at(sized, values)
        found.append(made)
    for key, plan in found[0].items():
        other = found[1][key]
        assert plan.records == other.records and plan.roots == other.roots


@pytest.mark.parametrize("arch", ARCHS)
def test_a_thousand_sizes_need_few_kernels(graph: Graph, arch: str) -> None:
    plans = ClassPlans(graph, profile_for(arch))
    kernels = set()
    for values in _sizes(1000):
        sized = plans.find(values, {})
        assert sized is not None
        kernels |= {record.kernel for record in sized.plan.records}
    assert len(kernels) <= 12


def test_sizes_without_a_class_are_refused(graph: Graph) -> None:
    assert classify({"batch": 0, "seq": 4}) is None
    assert ClassPlans(graph, profile_for("sm_90a")).find({"batch": 0, "seq": 4}, {}) is None


def test_rows_of_a_table_up_to_a_named_dimension_have_a_class_plan() -> None:
    """A slice's end below the table's length is a condition of the class."""
    g = GraphBuilder("positions")
    x = g.input("x", "f16", ["batch", "seq", 8])
    table = g.weight("table", np.ones((512, 8), np.float16))
    g.output("y", g.add(x, g.slice(table, starts=(0,), ends=(x.shape[1],), axes=(0,))))
    plans = ClassPlans(g.model(backend="cpu").optimized.graph, profile_for("sm_90a"))
    for length in (24, 488, 512):
        sized = plans.find({"batch": 3, "seq": length}, {})
        assert sized is not None
        assert plan_at(sized, {"batch": 3, "seq": length}).steps[0].problem.inputs[1] is not None


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("batch", [1, 8, 32, 256])
def test_products_of_few_and_of_many_rows_have_kernels_of_their_own(dtype: str, batch: int) -> None:
    """The plan that sizes share takes for each product what would be best for one size."""
    g = GraphBuilder("products")
    x = g.input("x", dtype, ["batch", "seq", 384])
    for rows, columns in ((1536, 384), (384, 1536)):
        weight = np.ones((rows, columns), numpy_dtype(dtype))
        x = g.gemm_bias_act(x, g.weight(f"w{rows}", weight), trans_b=True)
    g.output("y", x)
    values, profile = {"batch": batch, "seq": 128}, profile_for("sm_90a")
    graph = optimize(g.graph).graph
    sized = ClassPlans(graph, profile).find(values, {})
    assert sized is not None
    alone = make_plan(concretize(graph, values), profile)
    shared = plan_at(sized, values)
    assert [step.choice and step.choice.variant for step in shared.steps] == [
        step.choice and step.choice.variant for step in alone.steps]
    if batch > 1:  # extents of 1 drop out of a plan of one size
        assert list(map(_launch, shared.records)) == list(map(_launch, alone.records))


def test_products_of_what_a_slice_leaves_have_a_class_plan() -> None:
    """Rows that a slice leaves none of at small sizes are no reason to fail."""
    g = GraphBuilder("sliced")
    x = g.input("x", "f16", ["rows", 64])
    kept = g.slice(x, starts=(100,), ends=(2**31 - 1,), axes=(0,))
    g.output("y", g.matmul(kept, g.weight("w", np.ones((64, 32), np.float16))))
    plans = ClassPlans(optimize(g.graph).graph, profile_for("sm_90a"))
    for rows in (150, 700, 5000):
        sized = plans.find({"rows": rows}, {})
        assert sized is not None
        assert plan_at(sized, {"rows": rows}).steps[-1].problem.outputs[0].shape[-2] == rows - 100


@pytest.mark.parametrize("values", [{"a": 1, "b": 128}, {"a": 8, "b": 691}, {"a": 3, "b": 5000}])
def test_other_members_are_of_the_class_and_some_have_few_rows(values: dict[str, int]) -> None:
    known = classify(values)
    assert known is not None
    others = list(known.others(values))
    assert others and all(classify(other) is known and other != values for other in others)
    few = values["a"] * values["b"] * 2
    assert any(other["a"] * other["b"] <= few for other in others)


@pytest.mark.parametrize(("x", "w", "attrs"), [
    ("[N, 3, H, W]", "[64, 3, 7, 7]", "strides=[2, 2], pads=[3, 3, 3, 3]"),
    ("[N, 64, H, W]", "[64, 64, 3, 3]", "pads=[1, 1, 1, 1]"),
    ("[N, 64, 14, 14]", "[64, 64, 3, 3]", "pads=[1, 1, 1, 1]")])
def test_convolutions_launch_what_a_plan_of_their_size_would(x: str, w: str, attrs: str) -> None:
    graph = parse_graph(f"input x: f16{x}\ninput w: f16{w}\ny = CONV2D(x, w, {attrs})\noutput y",
                        infer=opdefs.infer)
    plans = ClassPlans(graph, profile_for("sm_90a"))
    for sizes in ((32, 56, 56), (8, 28, 30), (16, 55, 57), (3, 65, 64)):
        values = {name: size for name, size in zip("NHW", sizes, strict=True) if name in x}
        sized = plans.find(values, {})
        assert sized is not None
        plan = plan_at(sized, values)
        again = _again(graph, values, plan)
        assert [_launch(r) for r in plan.records] == [_launch(r) for r in again.records]
