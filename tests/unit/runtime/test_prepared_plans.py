"""Plans whose kernels need other forms of weights: what is made once, what in every call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.facts import Facts
from ge2.compiler.kernels.gemm_plans import wgmma_time
from ge2.compiler.kernels.selector import Choice
from ge2.compiler.plan import Plan, make_plan
from ge2.errors import LaunchFailed
from ge2.evidence.device import DeviceProfile, profile_for
from ge2.model import GraphBuilder
from ge2.problem import Problem
from ge2.runtime import weights
from ge2.runtime.executor import Executable
from ge2.tune.problems import Request, tasks_for

from .fake_cuda import FakeArray, FakeCuda, cuda  # noqa: F401 - a fixture

H200 = profile_for("sm_90a")
X3 = registry.variant("gemm/gemm_bias_act_wgmma_f32"
                      "[MODE=x3,SCHEDULE=single,BM=64,BN=128,PROMOTE=1]")
PLANES = 256 + 3 * 2 * 64 * 64  # flags of one tile, three planes of bf16


@pytest.fixture(autouse=True)
def _x3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_F32", "x3")


def choose(problem: Problem, device: DeviceProfile) -> Choice:
    if problem.op_type == "GEMM_BIAS_ACT":
        return Choice(X3, 0.0, ())
    return selector.select(problem, device)


def planned(text: str) -> Plan:
    return make_plan(parse_graph(text, infer=opdefs.infer), H200, choose=choose)


def entries(plan: Plan) -> list[str]:
    return [record.kernel.entry.removeprefix("gemm_bias_act_wgmma_f32") for record in plan.records]


def test_weights_are_split_once_and_activations_in_every_call() -> None:
    plan = planned("""
        input x: f32[80, 64]
        const w: f32[64, 64]
        y = MATMUL(x, w)
        output y
    """)
    assert entries(plan) == ["_prepare", ""]
    (preparation,) = plan.preparations
    assert preparation.records[0].kernel.entry.endswith("_prepare")
    assert plan.roots[preparation.buffers[0].root].name == "w"
    assert plan.prepared_bytes == PLANES
    (row,) = plan.explain()
    assert (row["launches"], row["prepared"]) == (2, PLANES)
    # The workspace holds the activations' planes alone.
    assert plan.arena_bytes == row["workspace"] == 256 + 3 * 2 * 80 * 64


def test_steps_share_what_is_made_of_the_same_weights() -> None:
    plan = planned("""
        input x: f32[80, 64]
        const w: f32[64, 64]
        a = MATMUL(x, w)
        b = EXP(a)
        y = MATMUL(b, w)
        output y
    """)
    assert len(plan.preparations) == 1 and plan.prepared_bytes == PLANES
    assert plan.steps[0].buffers[-1] == plan.steps[2].buffers[-1]


def test_memory_can_be_had_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_PREPARE", "0")
    plan = planned("""
        input x: f32[80, 64]
        const w: f32[64, 64]
        y = MATMUL(x, w)
        output y
    """)
    assert entries(plan) == ["_prepare", "_prepare", ""] and not plan.preparations
    assert plan.prepared_bytes == 0 and plan.steps[0].problem.constant == ()


@pytest.mark.parametrize("given", ["input", "computed", "state"])
def test_what_may_change_is_split_in_every_call(given: str) -> None:
    lines = {
        "input": ["input w: f32[64, 64]", "y = MATMUL(x, w)", "output y"],
        "computed": ["const v: f32[64, 64]", "input s: f32[64, 64]", "w = ADD(v, s)",
                     "y = MATMUL(x, w)", "output y"],
        "state": ["input w: f32[64, 64]", "const d: f32[64, 64]", "n = ADD(w, d)",
                  "y = MATMUL(x, w)", "output y", "output n"]}[given]
    graph = parse_graph("\n".join(["input x: f32[80, 64]", *lines]), infer=opdefs.infer)
    if given == "state":
        graph.aliases = {"n": "w"}
    plan = make_plan(graph, H200, choose=choose)
    assert not plan.preparations and plan.prepared_bytes == 0
    assert entries(plan).count("_prepare") == 2
    assert all(step.problem.constant == () for step in plan.steps)


def test_sizes_and_leases_share_one_form_that_goes_with_its_plans(
        cuda: FakeCuda) -> None:  # noqa: F811
    g = GraphBuilder("m")
    x = g.input("x", "f32", ["rows", 64])
    g.output("y", g.matmul(x, np.ones((64, 64), np.float32)))
    executable = Executable(g.model(backend="cpu").optimized.graph, "cuda", cuda, choose=choose)

    def run(rows: int, stream: int = 5) -> int:
        cuda.launched.clear()
        executable.run({"x": FakeArray(1 << 20, rows, 64)}, stream=stream,
                       outputs={"y": FakeArray(1 << 30, rows, 64)})
        return len(cuda.launched)

    assert run(80) == 1 + 2  # once, and in every call
    assert run(80) == run(144) == run(80, stream=6) == 2
    (made,) = executable.weights._prepared.values()
    for bound in executable.plans.exact.values():
        assert list(bound.prepared.values()) == [made]
    del made, bound
    executable.plans.exact.clear()
    executable._routes.clear()
    assert len(executable.weights._prepared) == 0


def test_a_capture_keeps_what_its_launches_read(
        cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    relaxed: list[bool] = []
    loaded: list[bool] = []

    @contextmanager
    def own_stream(_device: object) -> Iterator[int]:
        relaxed.append(True)
        yield 99
        relaxed.pop()

    load = cuda.prepare
    monkeypatch.setattr(weights, "_own_stream", own_stream)
    monkeypatch.setattr(cuda, "prepare", lambda records: (loaded.append(bool(relaxed)),
                                                          load(records))[1])
    g = GraphBuilder("m")
    g.output("y", g.matmul(g.input("x", "f32", [80, 64]), np.ones((64, 64), np.float32)))
    executable = Executable(g.model(backend="cpu").optimized.graph, "cuda", cuda, choose=choose)
    cuda.capturing = {5}
    executable.run({"x": FakeArray(1 << 20, 80, 64)}, stream=5,
                   outputs={"y": FakeArray(1 << 30, 80, 64)})
    (owned,) = cuda.kept
    (bound,) = executable.plans.exact.values()
    assert bound.prepared and bound.prepared in owned
    assert any(executable.weights._constants in part for part in owned if type(part) is tuple)
    assert loaded[0]  # loading modules is not allowed beside a capture


def test_errors_name_the_node_that_weights_are_prepared_for(
        cuda: FakeCuda) -> None:  # noqa: F811
    g = GraphBuilder("m")
    g.output("y", g.matmul(g.input("x", "f32", [80, 64]), np.ones((64, 64), np.float32)))
    executable = Executable(g.model(backend="cpu").optimized.graph, "cuda", cuda, choose=choose)

    def run() -> None:
        executable.run({"x": FakeArray(1 << 20, 80, 64)}, stream=5,
                       outputs={"y": FakeArray(1 << 30, 80, 64)})

    cuda.launch_error = LaunchFailed("it failed")
    with pytest.raises(LaunchFailed, match=r"matmul_0.*_prepare: it failed"):
        run()
    cuda.launch_error = None
    run()  # nothing half made is left
    assert [record.prepares for record, *_ in cuda.launched] == [1, -1, -1]


def test_scores_know_what_is_made_once() -> None:
    def time(*constant: int) -> float:
        (task,) = tasks_for(Request("GEMM_BIAS_ACT", ("256x384x384",), ("f32",),
                                    constant_weights=bool(constant)), H200)
        assert task.problem.constant == constant
        return wgmma_time(X3, Facts(task.problem), H200)

    assert time(1) < time() - 3.0  # a launch and more


def test_explanations_tell_of_memory_beside_the_weights() -> None:
    g = GraphBuilder("m")
    g.output("y", g.matmul(g.input("x", "f16", [80, 64]), np.ones((64, 71), np.float16)))
    found = g.model(backend="cpu").explain(arch="sm_90a")
    assert "prepared:" not in found.text() and found.as_dict()["prepared_bytes"] == 0
    g = GraphBuilder("m")
    x = g.input("x", "f32", [4096, 512])
    g.output("y", g.matmul(x, np.ones((512, 512), np.float32)))
    found = g.model(backend="cpu").explain(arch="sm_90a")
    assert "prepared: 1573120 bytes beside the weights, made of them once by 1" in found.text()
    assert "const f32[512, 512]" in found.text()
    told = found.as_dict()
    assert (told["launches"], told["preparations"], told["prepared_bytes"]) == (2, 1, 1573120)


def test_classes_of_sizes_share_one_form(cuda: FakeCuda) -> None:  # noqa: F811
    """Kernels by the rules: different ones for few and for many rows, the same planes."""
    g = GraphBuilder("m")
    x = g.input("x", "f32", ["rows", 512])
    g.output("y", g.matmul(x, np.ones((512, 512), np.float32)))
    executable = Executable(g.model(backend="cpu").optimized.graph, "cuda", cuda)
    launches = {}
    for rows in (1024, 2048, 30000, 2048, 4000):
        cuda.launched.clear()
        executable.run({"x": FakeArray(1 << 20, rows, 512)}, stream=5,
                       outputs={"y": FakeArray(1 << 30, rows, 512)})
        launches[rows] = [record.kernel.entry for record, *_ in cuda.launched]
    assert len(executable.plans.shared) > 1 and not executable.plans.exact
    variants = {bound.plan.steps[0].choice.variant for bound in executable.plans.shared.values()}
    assert len(variants) > 1 and all(v.param("MODE") == "x3" for v in variants)
    assert [len(found) for found in launches.values()] == [3, 2, 2, 2]
    (made,) = executable.weights._prepared.values()
    assert made.memory.nbytes == 256 + 3 * 2 * 512 * 512
