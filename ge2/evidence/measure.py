"""The one place that times kernels.

A sample is one CUDA graph of many launches, so that host overhead is no part of it. Cold: the
launches rotate over buffer sets that together exceed the L2 cache three times. Hot: one set. The
candidates of a call are measured interleaved, in a new random order each round, after a warm-up
that all of them share; the caller fills the buffers with random data (zeros time too well).
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from .. import paths
from ..errors import Invalid

L2_MULTIPLE = 3
SAMPLE_US = 1000.0
WARM_UP_US = 100_000.0
MAX_LAUNCHES = 4096

Enqueue = Callable[[int], object]
"""Enqueues one execution on a raw stream; must not synchronise."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something to time.

    Attributes:
        launches: one callable per buffer set, all doing the same work.
        nbytes: bytes that one set reads and writes; needed for cold timings.
        capture: False for work that cannot be captured into a graph; host overhead then counts.
    """

    launches: Sequence[Enqueue]
    nbytes: int = 0
    capture: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one execution.

    Attributes:
        median: microseconds.
        spread: interquartile range over median.
        n: samples. per_sample: executions in each.
        samples: microseconds per execution, in the order taken.
        cold: whether operands came from memory rather than from L2.
    """

    median: float
    spread: float
    n: int
    per_sample: int
    samples: tuple[float, ...]
    cold: bool

    def __str__(self) -> str:
        state = "cold" if self.cold else "hot"
        return f"{self.median:.2f} us ± {100 * self.spread:.1f} % ({state}, n={self.n})"


class Timer(Protocol):
    """What runs and times batches of launches."""

    def batch(self, launches: Sequence[Enqueue], capture: bool) -> Callable[[], None]:
        """Return a call that enqueues all launches in order."""
        ...

    def time(self, batches: Sequence[Callable[[], None]]) -> list[float]:
        """Run the batches back to back and return the microseconds of each."""
        ...


def rotations(nbytes: int, l2_bytes: int) -> int:
    """Return how many buffer sets of nbytes make every access miss an L2 of l2_bytes."""
    return max(2, -(-L2_MULTIPLE * l2_bytes // max(nbytes, 1)))


def measure(candidates: Mapping[str, Candidate | Enqueue], *, cold: bool, l2_bytes: int = 0,
            rounds: int = 20, seed: int = 0, timer: Timer | None = None,
            warm_up_us: float = WARM_UP_US, sample_us: float = SAMPLE_US,
            idle_s: float = 0.0) -> dict[str, Timing]:
    """Time candidates against each other.

    Args:
        candidates: name -> what to time; a plain callable is a hot candidate of one buffer set.
        cold: whether the buffer sets must exceed L2_MULTIPLE * l2_bytes.
        l2_bytes: L2 size of the device; needed for cold timings.
        rounds: samples per candidate.
        seed: of the order within rounds.
        timer: stands in for the GPU in tests.
        warm_up_us: how long the candidates run before the first sample.
        sample_us: about how long one sample lasts.
        idle_s: pause before each sample. Without one, a long series of heavy kernels runs at the
            clock that the power limit sustains; after a pause, short samples see the full clock.

    Raises:
        Invalid: a cold candidate's buffer sets fit into the cache, or nothing is to be timed.
    """
    full = {name: c if isinstance(c, Candidate) else Candidate([c])
            for name, c in candidates.items()}
    if rounds < 1:
        raise Invalid("measure needs at least one round", argument="rounds", found=rounds)
    for name, candidate in full.items():
        _check_rotation(name, candidate, cold, l2_bytes)
    clock = timer or GpuTimer()
    batches, counts = {}, {}
    for name, candidate in full.items():
        batches[name], counts[name] = _sized_batch(candidate, cold, clock, sample_us)
    _warm_up(list(batches.values()), clock, warm_up_us)
    order = list(full)
    shuffle = random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in full}
    for _ in range(rounds):
        shuffle.shuffle(order)
        for name, elapsed in zip(order, _round([batches[n] for n in order], clock, idle_s),
                                 strict=True):
            samples[name].append(elapsed / counts[name])
    return {name: _timing(samples[name], counts[name], cold) for name in full}


def _check_rotation(name: str, candidate: Candidate, cold: bool, l2_bytes: int) -> None:
    if not candidate.launches:
        raise Invalid(f"candidate {name!r} has nothing to launch", argument=name)
    have, wanted = len(candidate.launches) * candidate.nbytes, L2_MULTIPLE * l2_bytes
    if cold and (l2_bytes <= 0 or have < wanted):
        raise Invalid(f"the buffers of candidate {name!r} stay in the L2 cache", argument=name,
                      found=f"{have} bytes in {len(candidate.launches)} sets",
                      wanted=f"at least {wanted} bytes")


def _sized_batch(candidate: Candidate, cold: bool, clock: Timer, sample_us: float
                 ) -> tuple[Callable[[], None], int]:
    """Return a batch that lasts about sample_us, in whole turns over the buffer sets."""
    turn = list(candidate.launches) if cold else [candidate.launches[0]]
    probe = clock.batch(turn, candidate.capture)
    once = min(clock.time([probe, probe, probe])[1:])
    turns = max(1, min(int(sample_us / max(once, 0.1)), MAX_LAUNCHES // len(turn)))
    if turns == 1:
        return probe, len(turn)
    return clock.batch(turn * turns, candidate.capture), len(turn) * turns


def _round(batches: Sequence[Callable[[], None]], clock: Timer, idle_s: float) -> list[float]:
    if not idle_s:
        return clock.time(batches)
    times = []
    for batch in batches:
        time.sleep(idle_s)
        times += clock.time([batch])
    return times


def _warm_up(batches: Sequence[Callable[[], None]], clock: Timer, least_us: float) -> None:
    spent = 0.0
    while spent < least_us:
        spent += max(sum(clock.time(batches)), 1.0)


def _timing(samples: Sequence[float], per_sample: int, cold: bool) -> Timing:
    median = statistics.median(samples)
    quartiles = statistics.quantiles(samples, n=4) if len(samples) > 1 else [median] * 3
    spread = (quartiles[2] - quartiles[0]) / median if median else 0.0
    return Timing(median, spread, len(samples), per_sample, tuple(samples), cold)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect garbage now and not inside: a graph that is destroyed while a stream is capturing
    spoils the capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class GpuTimer:
    """Times on the current CuPy device with events on a stream of its own."""

    def __init__(self) -> None:
        paths.let_cupy_start()
        import cupy

        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def batch(self, launches: Sequence[Enqueue], capture: bool) -> Callable[[], None]:
        """Capture the launches into a graph; without capture, enqueue them one by one."""
        stream = self._stream

        def enqueue() -> None:
            for launch in launches:
                launch(stream.ptr)

        if not capture:
            return enqueue
        with stream, _no_collection():
            launches[0](stream.ptr)  # loads and allocates outside the capture
            stream.synchronize()
            stream.begin_capture(self._cupy.cuda.runtime.streamCaptureModeThreadLocal)
            enqueue()
            graph = stream.end_capture()
        return lambda: graph.launch(stream)

    def time(self, batches: Sequence[Callable[[], None]]) -> list[float]:
        """Enqueue all batches without a gap, then read the events between them."""
        make = self._cupy.cuda.Event
        events: list[Any] = [make() for _ in range(len(batches) + 1)]
        with self._stream:
            for event, batch in zip(events, batches, strict=False):
                event.record(self._stream)
                batch()
            events[-1].record(self._stream)
        events[-1].synchronize()
        elapsed = self._cupy.cuda.get_elapsed_time
        return [1e3 * elapsed(a, b) for a, b in pairwise(events)]

