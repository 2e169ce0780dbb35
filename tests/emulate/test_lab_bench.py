"""Cost evidence on the emulator, with a clock that is made up: records, resuming, cutting short."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ge2.evidence.measure import Enqueue
from ge2.evidence.records import Store
from ge2.lab import bench, sweep
from ge2.launch.lab_primitives import fuse_problem
from ge2.problem import Problem
from ge2.runtime.device import EmulatedDevice


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


def test_time_that_is_up_leaves_the_rest_for_another_run() -> None:
    with Store() as store:
        found = bench.run(EmulatedDevice(), store, ["boundary"], seconds=-1.0, timer=Clock,
                          problems=small)
    assert found.measured == 0 and found.left == 10
