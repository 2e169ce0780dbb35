"""Which of the finalists wins: paired times, noise, and a rule for ties that is always the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..evidence.measure import Timing

SIGMAS = 3.0
LEAST_NOISE = 0.002  # clocks and placement move that much between runs of one program


@dataclass(frozen=True, slots=True)
class Gain:
    """One candidate against another.

    Attributes:
        value: the other's time over this one's, minus one; positive where this one is faster.
        noise: three standard errors of that.
    """

    value: float
    noise: float

    @property
    def is_certain(self) -> bool:
        """Whether the gain exceeds its noise."""
        return self.value > self.noise


NO_GAIN = Gain(0.0, 0.0)


def gain(candidate: Timing, other: Timing) -> Gain:
    """Compare two candidates that were measured interleaved, sample by sample."""
    pairs = [b / a for a, b in zip(candidate.samples, other.samples, strict=False) if a > 0]
    if len(pairs) < 3 or len(candidate.samples) != len(other.samples):
        ratio = other.median / candidate.median
        spread = math.hypot(candidate.spread, other.spread) / math.sqrt(max(candidate.n, 1))
        return Gain(ratio - 1.0, max(SIGMAS * spread, LEAST_NOISE))
    quartiles = statistics.quantiles(pairs, n=4)
    deviation = (quartiles[2] - quartiles[0]) / 1.349
    # 1.2533: the standard error of a median over that of a mean.
    noise = SIGMAS * 1.2533 * deviation / math.sqrt(len(pairs))
    return Gain(statistics.median(pairs) - 1.0, max(noise, LEAST_NOISE))


def survivors(timings: Mapping[int, Timing], keep: int, always: Sequence[int]) -> list[int]:
    """Return the fastest `keep` candidates and those that always stay, in order of index."""
    fastest = sorted(timings, key=lambda i: (timings[i].median, i))[:keep]
    return sorted({*fastest, *(i for i in always if i in timings)})


def choose(timings: Mapping[int, Timing], incumbent: int) -> tuple[int, Gain]:
    """Return the winner and its gain over the incumbent.

    The fastest wins, or of those that it does not certainly beat the one with the lowest index:
    the rules' favourite. The incumbent stays unless the winner certainly beats it.

    Args:
        timings: of the finalists, measured together; the incumbent among them.
        incumbent: what would run otherwise.
    """
    fastest = min(timings, key=lambda i: (timings[i].median, i))
    tied = [i for i in timings if not gain(timings[fastest], timings[i]).is_certain]
    winner = min([fastest, *tied])
    against = gain(timings[winner], timings[incumbent])
    if winner != incumbent and not against.is_certain:
        against = gain(timings[fastest], timings[incumbent])
        winner = fastest
    if winner == incumbent or not against.is_certain:
        return incumbent, Gain(0.0, against.noise)
    return winner, against
