"""The memory plan: buffers in use together never overlap, and the arena stays near its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ge2.compiler import arena
from ge2.compiler.arena import ALIGNMENT, Interval, Layout, live_bound, plan_arena, plan_slots

intervals = st.lists(
    st.builds(lambda size, first, length: Interval(size, first, first + length),
              st.integers(0, 5000), st.integers(0, 12), st.integers(0, 6)),
    max_size=14)


def assert_apart(layout: Layout, buffers: list[Interval]) -> None:
    """Buffers that are in use together do not overlap."""
    for i, a in enumerate(buffers):
        assert layout.offsets[i] % ALIGNMENT == 0
        assert layout.offsets[i] + a.nbytes <= layout.nbytes
        for j, b in enumerate(buffers[:i]):
            if a.first <= b.last and b.first <= a.last and a.nbytes and b.nbytes:
                assert (layout.offsets[i] + a.nbytes <= layout.offsets[j]
                        or layout.offsets[j] + b.nbytes <= layout.offsets[i])


@pytest.mark.parametrize("crowd", [0, arena._NEIGHBOURS], ids=["crowded", "sparse"])
@pytest.mark.parametrize("plan", [plan_arena, plan_slots])
@given(buffers=intervals)
def test_buffers_alive_together_never_overlap(plan, crowd: int, buffers: list[Interval]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arena, "_NEIGHBOURS", crowd)
        assert_apart(plan(buffers), buffers)


@given(intervals)
def test_bound_is_the_largest_sum_alive(buffers: list[Interval]) -> None:
    sums = [sum(-(-b.nbytes // 256) * 256 for b in buffers if b.first <= t <= b.last)
            for t in range(20)]
    assert live_bound(buffers) == max(sums)
    assert plan_arena(buffers).nbytes >= live_bound(buffers)


def test_a_chain_takes_two_buffers() -> None:
    chain = [Interval(1000, step, step + 1) for step in range(10)]
    assert plan_arena(chain).nbytes == 2 * 1024


def test_a_residual_network_stays_within_a_tenth_of_the_bound() -> None:
    """Blocks of a wide hidden layer with a residual that lives across it, sizes as in a MLP."""
    buffers = []
    for block in range(12):
        start = 4 * block
        buffers += [Interval(768_000, start, start + 4), Interval(3_072_000, start + 1, start + 2),
                    Interval(768_000, start + 2, start + 3), Interval(12_000, start, start + 1)]
    layout = plan_arena(buffers)
    assert layout.nbytes <= 1.1 * layout.live_bound


@pytest.mark.parametrize("plan", [plan_arena, plan_slots])
def test_very_many_buffers_alive_at_once_lie_side_by_side(plan) -> None:
    buffers = [Interval(1000, step, 4000 - step) for step in range(2000)]
    assert plan(buffers).nbytes == 2000 * 1024


def test_nothing_takes_nothing() -> None:
    assert plan_arena([]).nbytes == 0
