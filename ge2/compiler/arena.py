"""Static memory planning: buffers with lifetimes into one arena."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heappop, heappush
from math import inf

from .ir.size import larger

ALIGNMENT = 256
_BLOCK = 16  # steps
_NEIGHBOURS = 32  # buffers that one meets in time, on average, before a graph counts as crowded


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
    Where very many buffers are in use at once, only orders by time are tried: they need no look at
    all the others.
    """
    bound = live_bound(intervals)
    best: Layout | None = None
    orders = (*_BY_TIME, *(() if _is_crowded(intervals) else _ANY_TIME))
    for order in orders:
        ranked = sorted(range(len(intervals)), key=lambda i: order(intervals[i]))
        offsets = (_sweep if order in _BY_TIME else _place)(intervals, ranked)
        total = max((offsets[i] + v.padded for i, v in enumerate(intervals)), default=0)
        if best is None or total < best.nbytes:
            best = Layout(tuple(offsets), total, bound)
        if best.nbytes <= bound:
            break
    return best or Layout((), 0, 0)


def _is_crowded(intervals: Sequence[Interval]) -> bool:
    """Return whether buffers meet so many others that looking at all of them takes too long."""
    ends = sorted(interval.last for interval in intervals)
    pairs = sum(number - bisect_left(ends, first) for number, first in
                enumerate(sorted(interval.first for interval in intervals)))
    return pairs > _NEIGHBOURS * len(intervals)


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


# By time, by size, by area, by duration: none is best for every graph.
_BY_TIME: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda i: (i.first, -i.padded),
    lambda i: (i.first, -(i.last - i.first), -i.padded),
)
_ANY_TIME: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda i: (-i.padded, i.first),
    lambda i: (-i.padded * (i.last - i.first + 1), i.first),
    lambda i: (-(i.last - i.first), -i.padded),
)


def _sweep(intervals: Sequence[Interval], order: Sequence[int]) -> list[int]:
    """Place buffers in an order of their first steps; gaps are those of the time being."""
    offsets = [0] * len(intervals)
    gaps: list[tuple[float, float]] = [(0, inf)]
    busy: list[tuple[int, int]] = []
    for index in order:
        own = intervals[index]
        while busy and busy[0][0] < own.first:
            _, over = heappop(busy)
            _release(gaps, offsets[over], offsets[over] + intervals[over].padded)
        if own.padded:
            place = next(i for i, (start, end) in enumerate(gaps) if end - start >= own.padded)
            start, end = gaps.pop(place)
            offsets[index] = int(start)
            if start + own.padded < end:
                gaps.insert(place, (start + own.padded, end))
            heappush(busy, (own.last, index))
    return offsets


def _release(gaps: list[tuple[float, float]], start: float, end: float) -> None:
    """Add a gap, joined with those that it touches."""
    place = bisect_left(gaps, (start, end))
    if place < len(gaps) and gaps[place][0] == end:
        end = gaps.pop(place)[1]
    if place and gaps[place - 1][1] == start:
        place -= 1
        start = gaps.pop(place)[0]
    gaps.insert(place, (start, end))


def _place(intervals: Sequence[Interval], order: Sequence[int]) -> list[int]:
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
    return offsets


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
    slots = (_slots_by_time if _is_crowded(intervals) else _slots_by_size)(intervals)
    offsets, end = [0] * len(intervals), 0
    for slot in slots:
        for index in slot:
            offsets[index] = end
        end += reduce(larger, dict.fromkeys(intervals[i].padded for i in slot))
    return Layout(tuple(offsets), end, end)


def _example_size(interval: Interval) -> int:
    """Return the bytes at the class's example, which makes no condition of them."""
    return int.__index__(interval.padded)


def _slots_by_size(intervals: Sequence[Interval]) -> list[list[int]]:
    """Return the buffers of each slot: large ones first, each to the first slot with room."""
    # A slot holds (first step, last step, buffer), in the order of steps.
    slots: list[list[tuple[int, int, int]]] = []
    for index in sorted(range(len(intervals)), key=lambda i: -_example_size(intervals[i])):
        own = (intervals[index].first, intervals[index].last, index)
        slot = next((s for s in slots if _has_room(s, own)), None)
        if slot is None:
            slots.append([own])
        else:
            insort(slot, own)
    return [[index for *_, index in slot] for slot in slots]


def _slots_by_time(intervals: Sequence[Interval]) -> list[list[int]]:
    """Return the buffers of each slot: in order of time, each to the free slot that fits best."""
    slots: list[list[int]] = []
    sizes: list[int] = []
    free: list[tuple[int, int]] = []
    busy: list[tuple[int, int]] = []
    for index in sorted(range(len(intervals)), key=lambda i: (
            intervals[i].first, -_example_size(intervals[i]))):
        while busy and busy[0][0] < intervals[index].first:
            _, slot = heappop(busy)
            insort(free, (sizes[slot], slot))
        size = _example_size(intervals[index])
        if free:
            _, slot = free.pop(min(bisect_left(free, (size, -1)), len(free) - 1))
        else:
            slot = len(slots)
            slots.append([])
            sizes.append(0)
        slots[slot].append(index)
        sizes[slot] = max(sizes[slot], size)
        heappush(busy, (intervals[index].last, slot))
    return slots


def _has_room(slot: list[tuple[int, int, int]], own: tuple[int, int, int]) -> bool:
    place = bisect_left(slot, own)
    return ((place == len(slot) or own[1] < slot[place][0])
            and (place == 0 or slot[place - 1][1] < own[0]))
