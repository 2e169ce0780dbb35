"""Static memory planning: buffers with lifetimes into one arena."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from .ir.size import larger

ALIGNMENT = 256
_BLOCK = 16  # steps


@dataclass(frozen=True, slots=True)
class Interval:
    """A buffer of nbytes that is in use from step first to step last, both included."""

    nbytes: int
    first: int
    last: int

    @property
    def padded(self) -> int:
        """The size rounded up to the arena's alignment."""
        return -(-self.nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Layout:
    """Where buffers lie.

    Attributes:
        offsets: byte offset of each interval, a multiple of 256.
        nbytes: size of the arena.
        live_bound: the most bytes that are in use at one step; no layout can be smaller.
    """

    offsets: tuple[int, ...]
    nbytes: int
    live_bound: int


def plan_arena(intervals: Sequence[Interval]) -> Layout:
    """Return offsets such that buffers in use at the same step never overlap.

    Each order of placement puts every buffer into the lowest gap that fits; the best order wins.
    """
    bound = live_bound(intervals)
    best: Layout | None = None
    for order in _ORDERS:
        ranked = sorted(range(len(intervals)), key=lambda i: order(intervals[i]))
        layout = _place(intervals, ranked, bound)
        if best is None or layout.nbytes < best.nbytes:
            best = layout
        if best.nbytes <= bound:
            break
    return best or Layout((), 0, 0)


def live_bound(intervals: Sequence[Interval]) -> int:
    """Return the most bytes in use at one step."""
    changes: dict[int, int] = {}
    for interval in intervals:
        changes[interval.first] = changes.get(interval.first, 0) + interval.padded
        changes[interval.last + 1] = changes.get(interval.last + 1, 0) - interval.padded
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most


# By size, by area, by time: none is best for every graph.
_ORDERS: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda i: (-i.padded, i.first),
    lambda i: (-i.padded * (i.last - i.first + 1), i.first),
    lambda i: (i.first, -i.padded),
    lambda i: (i.first, -(i.last - i.first), -i.padded),
    lambda i: (-(i.last - i.first), -i.padded),
)


def _place(intervals: Sequence[Interval], order: Sequence[int], bound: int) -> Layout:
    offsets = [0] * len(intervals)
    # Those placed already, by the blocks of steps that they touch: a buffer is compared with its
    # neighbours in time and not with all others.
    placed: dict[int, list[int]] = {}
    for index in order:
        own = intervals[index]
        blocks = range(own.first // _BLOCK, own.last // _BLOCK + 1)
        near = {other for block in blocks for other in placed.get(block, ())}
        busy = sorted((offsets[other], offsets[other] + intervals[other].padded)
                      for other in near
                      if intervals[other].first <= own.last and own.first <= intervals[other].last)
        offsets[index] = _lowest_gap(busy, own.padded)
        for block in blocks:
            placed.setdefault(block, []).append(index)
    total = max((offsets[i] + v.padded for i, v in enumerate(intervals)), default=0)
    return Layout(tuple(offsets), total, bound)


def _lowest_gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for start, end in busy:
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset


def plan_slots(intervals: Sequence[Interval]) -> Layout:
    """Return offsets that hold for every size of a class, where byte counts are sizes.

    Buffers that are never in use at the same step share a slot as large as the largest of them;
    slots lie one behind the other. Which buffers share is decided at the class's example.
    """
    # A slot holds (first step, last step, buffer), in the order of steps.
    slots: list[list[tuple[int, int, int]]] = []
    by_size = sorted(range(len(intervals)), key=lambda i: -int.__index__(intervals[i].padded))
    for index in by_size:
        own = (intervals[index].first, intervals[index].last, index)
        slot = next((s for s in slots if _has_room(s, own)), None)
        if slot is None:
            slots.append([own])
        else:
            insort(slot, own)
    offsets, end = [0] * len(intervals), 0
    for slot in slots:
        for *_, index in slot:
            offsets[index] = end
        end += reduce(larger, dict.fromkeys(intervals[i].padded for *_, i in slot))
    return Layout(tuple(offsets), end, end)


def _has_room(slot: list[tuple[int, int, int]], own: tuple[int, int, int]) -> bool:
    place = bisect_left(slot, own)
    return ((place == len(slot) or own[1] < slot[place][0])
            and (place == 0 or slot[place - 1][1] < own[0]))
