"""The measuring protocol, on a timer that plays the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ge2.errors import Invalid
from ge2.evidence.measure import Candidate, Enqueue, measure, rotations

L2 = 1000


class FakeTimer:
    """Runs launches at once; a launch says how many microseconds it takes."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.clock = 0.0

    def launch(self, name: str, us: float) -> Enqueue:
        def enqueue(_stream: int) -> None:
            self.order.append(name)
            self.clock += us

        return enqueue

    def batch(self, launches: Sequence[Enqueue], capture: bool) -> Callable[[], None]:
        return lambda: [launch(0) for launch in launches] and None

    def time(self, batches: Sequence[Callable[[], None]]) -> list[float]:
        times = []
        for batch in batches:
            start = self.clock
            batch()
            times.append(self.clock - start)
        return times


def test_medians_are_per_execution() -> None:
    timer = FakeTimer()
    found = measure({"a": timer.launch("a", 10.0), "b": timer.launch("b", 25.0)}, cold=False,
                    timer=timer)
    assert found["a"].median == pytest.approx(10.0) and found["b"].median == pytest.approx(25.0)
    assert found["a"].n == 20 and found["a"].spread == pytest.approx(0.0)
    assert not found["a"].cold


def test_candidates_are_interleaved_in_changing_order() -> None:
    timer = FakeTimer()
    measure({name: timer.launch(name, 1200.0) for name in "abc"}, cold=False, timer=timer,
            rounds=10)
    tail = timer.order[-30:]
    rounds = [tuple(tail[i:i + 3]) for i in range(0, 30, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len(set(rounds)) > 1


def test_the_order_is_that_of_the_seed() -> None:
    runs = []
    for _ in range(2):
        timer = FakeTimer()
        measure({name: timer.launch(name, 1200.0) for name in "abc"}, cold=False, timer=timer,
                seed=3)
        runs.append(timer.order)
    assert runs[0] == runs[1]


def test_cold_samples_turn_over_all_buffer_sets() -> None:
    timer = FakeTimer()
    sets = [timer.launch(f"set{i}", 100.0) for i in range(4)]
    found = measure({"a": Candidate(sets, nbytes=800)}, cold=True, l2_bytes=L2, timer=timer)
    assert found["a"].cold and found["a"].per_sample % 4 == 0
    assert timer.order[-8:] == ["set0", "set1", "set2", "set3"] * 2


def test_hot_samples_use_one_set() -> None:
    timer = FakeTimer()
    sets = [timer.launch(f"set{i}", 100.0) for i in range(4)]
    measure({"a": Candidate(sets, nbytes=800)}, cold=False, timer=timer)
    assert set(timer.order) == {"set0"}


def test_buffers_that_stay_in_the_cache_are_no_cold_measurement() -> None:
    timer = FakeTimer()
    few = Candidate([timer.launch("a", 1.0)] * 3, nbytes=800)
    with pytest.raises(Invalid, match="stay in the L2 cache"):
        measure({"a": few}, cold=True, l2_bytes=L2, timer=timer)


def test_all_candidates_are_warmed_up_before_the_first_sample() -> None:
    timer = FakeTimer()
    measure({"a": timer.launch("a", 1000.0)}, cold=False, timer=timer, rounds=1)
    assert timer.clock >= 100_000


def test_rotations_exceed_the_cache_three_times() -> None:
    assert rotations(800, L2) * 800 >= 3 * L2
    assert rotations(10**9, L2) == 2
