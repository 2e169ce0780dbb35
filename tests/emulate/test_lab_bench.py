"""Cost evidence on the emulator, with a clock that is made up: records, resuming, cutting short."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from ge2.errors import LaunchFailed
from ge2.evidence.keys import problem_key
from ge2.evidence.measure import Enqueue
from ge2.evidence.record import Record
from ge2.evidence.records import Store
from ge2.lab import bench, sweep
from ge2.lab.realizations import realizations
from ge2.launch.lab_primitives import fuse_problem
from ge2.problem import Problem
from ge2.runtime.device import EmulatedDevice
from ge2.tune.bench import Bench, Checked, Way
from ge2.tune.describe import Describer


class Clock:
    """Counts launches as microseconds, without running them."""

    def batch(self, launches: Sequence[Enqueue], capture: bool) -> Callable[[], None]:
        return lambda: None

    def time(self, batches: Sequence[Callable[[], None]]) -> list[float]:
        return [5.0 + i for i in range(len(batches))]


def small(_family: str) -> list[Problem]:
    return [fuse_problem(2, 64), fuse_problem(3, 100)]


def test_a_run_writes_records_and_a_second_one_knows_them() -> None:
    device, told = EmulatedDevice(), []
    with Store() as store:
        first = bench.run(device, store, ["boundary"], timer=Clock, problems=small, rounds=2,
                          tell=told.append)
        assert (first.measured, first.resumed, first.failed) == (10, 0, 0)
        records = store.records()
        assert len(records) == 10 and all(r.time_us > 0 and r.ulp < 20 for r in records)
        assert len(bench.newest(records)) == 10
        again = bench.run(device, store, ["boundary"], timer=Clock, problems=small, rounds=2)
    assert (again.measured, again.resumed) == (0, 10)
    assert told == [f"boundary: {sweep.label(p)}" for p in small("")]


def test_a_fault_ends_the_run_and_is_not_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kernel's fault nothing else runs in a process; another one goes on behind it."""
    usual, name = Bench.check, "lab/lab_fuse[FUSE=epilogue]"

    def check(self: Bench, way: Way) -> Checked:
        found = usual(self, way)
        return replace(found, state="launch_error", fatal=True) if way.id == name else found

    monkeypatch.setattr(Bench, "check", check)
    with Store() as store:
        with pytest.raises(LaunchFailed, match="left the device unusable"):
            bench.run(EmulatedDevice(), store, ["boundary"], timer=Clock, problems=small, rounds=2)
        assert [(r.variant, r.state) for r in store.records()] == [(name, "launch_error")]
        monkeypatch.undo()
        again = bench.run(EmulatedDevice(), store, ["boundary"], timer=Clock, problems=small,
                          rounds=2)
        assert (again.measured, again.resumed) == (9, 1)


def test_what_is_of_older_sources_is_told() -> None:
    problem, profile = sweep.SWEEP["streaming"]()[0], EmulatedDevice().profile
    one, other = bench.candidates("streaming", problem, realizations("streaming"))[:2]
    digest = Describer(profile).sources(problem, one)
    known = {(problem_key(problem), way.id): Record(
        problem=problem_key(problem), op_type="LAB_STREAM", shape="", variant=way.id, device="d",
        cubin="c", state="ok", sources=digest) for way in (one, other)}
    assert bench.stale(profile, known) == {(problem_key(problem), other.id)}


def test_time_that_is_up_leaves_the_rest_for_another_run() -> None:
    with Store() as store:
        found = bench.run(EmulatedDevice(), store, ["boundary"], seconds=-1.0, timer=Clock,
                          problems=small)
    assert found.measured == 0 and found.left == 10
