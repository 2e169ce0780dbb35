"""The whole search on recorded evidence: no GPU, no worker, always the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from ge2.compiler.kernels.metadata import Variant
from ge2.errors import Invalid, NoKernelError
from ge2.evidence.device import profile_for
from ge2.evidence.keys import device_key, problem_key, shape_text
from ge2.evidence.record import Record
from ge2.evidence.records import EvidenceError, Store
from ge2.launch.gemm_examples import gemm_problem
from ge2.problem import Problem, TensorSpec
from ge2.tune.describe import Describer
from ge2.tune.problems import Request, Task, tasks_for
from ge2.tune.runner import ReplayRunner
from ge2.tune.search import Limits, Outcome, Search
from ge2.tune.session import Options, Session
from ge2.tune.space import build_space
from ge2.tune.worker import Target

H200 = profile_for("sm_90a")
PROBLEM = gemm_problem(("f16", "f16", "f16"), shape=(1024, 1024, 1024))


def recorded(problem: Problem, *, states: dict[int, str] | None = None, seed: int = 0,
             noise: float = 0.002, best: int | None = None) -> list[Record]:
    """Return made-up evidence of every candidate; entry `best` is 20 % faster than all others."""
    draw = random.Random(seed)
    records = []
    for index, entry in enumerate(build_space(problem, H200).entries):
        time_us = 5.0 if index == best else entry.predicted_us * draw.uniform(0.9, 1.3) + 6.0
        state = (states or {}).get(index, "ok")
        samples = tuple(time_us * draw.gauss(1.0, noise) for _ in range(25))
        records.append(Record(
            problem=problem_key(problem), op_type=problem.op_type, shape=shape_text(problem),
            variant=entry.variant.id, device=device_key(H200), cubin=f"c{index}", state=state,
            reason="" if state == "ok" else f"it was {state}", sources="",
            time_us=time_us if state == "ok" else 0.0, n=25, spread=noise, samples=samples))
    return records


def searched(records: Sequence[Record], trials: int = 16, store: Store | None = None,
             runner: Any = None, **options: Any) -> Outcome:
    search = Search(build_space(PROBLEM, H200, strict=options.get("strict", False)),
                    runner or ReplayRunner(records, H200), store or Store(None), Describer(H200),
                    **options)
    return search.run(Limits(trials))


def test_finds_the_best_and_remembers_all_it_measured() -> None:
    store = Store(None)
    records = recorded(PROBLEM, best=7)
    outcome = searched(records, 1000, store)
    count = len(records)
    assert outcome.decision is not None
    assert outcome.decision.variant == records[7].variant
    assert outcome.decision.default == records[0].variant
    assert outcome.gain.is_certain
    assert (outcome.tried, outcome.valid, outcome.complete) == (count, count, True)
    assert len(store.records()) == count
    assert store.decisions() == [outcome.decision]


def test_the_same_evidence_gives_the_same_decision() -> None:
    records = recorded(PROBLEM, seed=3)
    first, second = (searched(records).decision for _ in range(2))
    assert first is not None and second is not None
    assert first.variant == second.variant


@pytest.mark.parametrize("state", ["wrong", "compile_error", "timeout", "crashed",
                                   "launch_error", "compile_timeout"])
def test_what_is_not_right_is_recorded_and_never_chosen(state: str) -> None:
    store = Store(None)
    records = recorded(PROBLEM, best=3, states={3: state, 1: state})
    outcome = searched(records, 1000, store)
    assert outcome.decision is not None
    assert outcome.decision.variant not in (records[1].variant, records[3].variant)
    assert outcome.wrong + outcome.failed == 2
    bad = {r.variant: r for r in store.records() if not r.is_ok}
    assert set(bad) == {records[1].variant, records[3].variant}
    assert all(r.state == state and r.reason == f"it was {state}" for r in bad.values())
    assert outcome.first_error


def test_a_wrong_default_is_no_reason_to_choose_it() -> None:
    records = recorded(PROBLEM, states={0: "wrong"})
    outcome = searched(records)
    assert outcome.decision is not None
    assert outcome.decision.variant != records[0].variant


def test_nothing_valid_decides_nothing_and_names_the_first_error() -> None:
    states = dict.fromkeys(range(100), "wrong")
    outcome = searched(recorded(PROBLEM, states=states))
    assert outcome.decision is None
    assert "it was wrong" in outcome.first_error


class Interrupted(ReplayRunner):
    """Ctrl-C after some checks."""

    after = 6

    def check(self, variant: Variant) -> Any:
        if len(self.checked) == self.after:
            raise KeyboardInterrupt
        return super().check(variant)


def test_ctrl_c_keeps_what_was_measured_and_resume_measures_the_rest(
        monkeypatch: pytest.MonkeyPatch) -> None:
    store, records = Store(None), recorded(PROBLEM, best=1)
    for record in records:  # records count again where the sources are the same
        assert record.sources == ""
    monkeypatch.setattr(Describer, "sources", lambda *_: "")
    with pytest.raises(KeyboardInterrupt):
        searched(records, 16, store, Interrupted(records, H200))
    kept = {r.variant for r in store.records()}
    assert len(kept) == 4
    assert [d.variant for d in store.decisions()] == [records[1].variant]
    runner = ReplayRunner(records, H200)
    outcome = searched(records, 16, store, runner)
    assert outcome.known == 4
    assert outcome.tried == 16
    assert not kept & set(runner.checked)
    again = ReplayRunner(records, H200)
    outcome = searched(records, 16, store, again)
    assert (outcome.known, again.checked) == (16, [])
    assert outcome.decision == store.decisions()[-1]


def test_records_of_other_kernels_or_drivers_are_measured_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    store, records = Store(None), recorded(PROBLEM)
    searched(records, 8, store)
    monkeypatch.setattr(Describer, "sources", lambda *_: "edited")
    assert searched(records, 8, store).known == 0


def test_force_measures_again() -> None:
    store, records = Store(None), recorded(PROBLEM)
    searched(records, 8, store)
    assert searched(records, 8, store, resume=False).known == 0


def test_the_last_decision_stays_unless_it_is_certainly_beaten() -> None:
    store, records = Store(None), recorded(PROBLEM, best=5)
    first = searched(records, 100, store).decision
    assert first is not None
    # The winner lost its lead: another is 0.1 % faster now, within the noise.
    times = {r.variant: r.time_us for r in records}
    rival = sorted(times, key=lambda v: times[v])[1]
    changed = [r if r.variant != rival else
               Record(**{**{f: getattr(r, f) for f in r.__struct_fields__}, "time_us": 4.995,
                         "samples": tuple(s * 0.999 for s in records[5].samples[::-1])})
               for r in records]
    second = searched(changed, 100, store, resume=False).decision
    assert second is not None
    assert second.variant == first.variant


def test_strict_never_changes_the_numerics() -> None:
    outcome = searched(recorded(PROBLEM, best=12), 100, strict=True)
    assert outcome.decision is not None
    assert outcome.decision.strict
    assert outcome.decision.numerics == outcome.space.default.variant.numerics


def test_a_full_disk_ends_nothing() -> None:
    class Full(Store):
        def put(self, *items: Any) -> None:
            raise EvidenceError("evidence cannot be written", found="database or disk is full")

    seen: list[Any] = []
    outcome = searched(recorded(PROBLEM, best=2), 100, Full(None),
                       watch=lambda event, numbers: seen.append((event, numbers)))
    assert outcome.decision is not None
    warnings = [n["text"] for e, n in seen if e == "warning"]
    assert len(warnings) == 1
    assert "disk is full" in warnings[0]


# -- sessions -------------------------------------------------------------------------------------


def session(tasks: Sequence[Task], records: Sequence[Record], **options: Any) -> Session:
    return Session(tasks, Options(**options), None, [Target("emulate")],
                   runners=lambda target, seconds: ReplayRunner(records, H200))


def test_a_budget_leaves_problems_and_says_so() -> None:
    tasks = tasks_for(Request("GEMM_BIAS_ACT", ("64x64x64", "128x64x64")), H200)
    records = [r for t in tasks for r in recorded(t.problem)]
    made = session(tasks, records, budget=1e-9)
    results = made.run()
    assert [r.reached for r in results] == [False, False]


def test_several_workers_share_the_problems() -> None:
    tasks = tasks_for(Request("GEMM_BIAS_ACT", ("64x64x64", "128x64x64", "256x64x64")), H200)
    records = [r for t in tasks for r in recorded(t.problem)]
    made = session(tasks, records)
    made.targets = [Target("emulate"), Target("emulate")]
    results = made.run()
    assert all(r.outcome is not None and r.outcome.decision is not None for r in results)


# -- problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["GEMM_BIAS_ACT", "ROW", "ELEMENTWISE", "CONV2D", "POOL2D",
                                "CONCAT", "GATHER", "SOFTMAX", "TANH", "LAB_NORMALIZE_SUM"])
def test_every_operator_has_a_sweep_with_candidates(op: str) -> None:
    tasks = tasks_for(Request(op), H200)
    assert tasks
    assert len({problem_key(t.problem) for t in tasks}) == len(tasks)
    for task in tasks:
        assert build_space(task.problem, H200).entries


@pytest.mark.parametrize(("request_", "says"), [
    (Request("GEMM_BIAS_AC"), "Did you mean GEMM_BIAS_ACT"),
    (Request("GEMM_BIAS_ACT", ("M=1,N=2",)), "bad shape"),
    (Request("GEMM_BIAS_ACT", ("M=0,N=2,K=3",)), "at least 1"),
    (Request("GEMM_BIAS_ACT", ("M=1,M=2,N=2,K=3",)), "bad shape"),
    (Request("GEMM_BIAS_ACT", ("M=-1,N=2,K=3",)), "bad shape"),
    (Request("GEMM_BIAS_ACT", ("8x8x8",), ("f12",)), "dtype"),
    (Request("GEMM_BIAS_ACT", ("8x8x8",), act="gelo"), "Did you mean gelu"),
    (Request("SOFTMAX", ("0x4",)), "extent is 0"),
    (Request("SOFTMAX", ("4,4",)), "bad shape"),
    (Request("CONV2D", ("4x4",)), "does not take"),
    (Request("ROW", ("4x4",)), "no operator of graphs"),
])
def test_bad_requests_say_what_is_wanted(request_: Request, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        tasks_for(request_, H200)


def test_a_problem_without_kernels_lists_the_reasons() -> None:
    spec = TensorSpec.dense("f32", (4, 4))
    with pytest.raises(NoKernelError, match="no kernel serves"):
        build_space(Problem("LAB_NORMALIZE_SUM", (spec,), (spec,)), profile_for("sm_80"))


def test_a_standard_sweep_takes_the_problem_that_a_model_poses() -> None:
    from ge2.model import GraphBuilder
    from ge2.tune.problems import model_tasks

    g = GraphBuilder("m")
    x, w = g.input("x", "f32", ["batch", 64]), g.input("w", "f32", [64, 32])
    g.output("y", g.softmax(x @ w))
    model = g.model(backend="cpu")
    tasks = model_tasks(model, H200, [{"batch": 4}, {"batch": 8}, {"batch": 4}])
    assert len(tasks) == 4
    (softmax,) = tasks_for(Request("SOFTMAX", ("4x32",)), H200)
    assert problem_key(softmax.problem) in {problem_key(t.problem) for t in tasks}
