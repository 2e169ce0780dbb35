"""Predicted times: a device profile and what a launch costs on each axis, corrected by evidence.

A launch is waves of blocks over the multiprocessors. A block takes as long as the slowest of its
arithmetic, its traffic through L2 and its share of memory bandwidth; a wave that is not full still
takes a block's time. What the axes cannot know (how well a kernel schedules) is one factor per
kernel and device, or a line over sizes, learned from records; without any it is a default with a
wide uncertainty.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .device import DeviceProfile

LAUNCH_US = 2.0
PROLOGUE_US = 0.8  # filling a block's pipeline: about two trips to memory
L2_OVER_MEMORY = 2.5  # L2 bandwidth as a multiple of the copy rate
UNKNOWN = 0.5  # relative uncertainty of a kernel without evidence
SMALLEST = 0.03


@dataclass(frozen=True, slots=True)
class CostAxes:
    """What a variant does on a problem, in numbers that do not depend on the device.

    Attributes:
        kernel: name that corrections are learned under.
        blocks: in the grid. resident: blocks that share a multiprocessor.
        flops: of one block. tensor: on tensor cores.
        traffic: bytes that one block moves to or from L2.
        nbytes: distinct bytes of the whole problem: the least that memory moves.
        efficiency: share of the arithmetic peak that the inner loop can reach.
        launches: kernels, one after the other.
        size: extent that a correction may follow: of what is swept; 0 for none.
    """

    kernel: str
    blocks: int
    resident: int
    flops: float
    tensor: bool
    traffic: float
    nbytes: float
    efficiency: float
    launches: int = 1
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """A time in microseconds and its relative uncertainty (one standard deviation of the log)."""

    time_us: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Correction:
    """Measured over predicted time of a kernel.

    Attributes:
        factor: the median. scatter: how far single ones lie from what at() says, as a standard
            deviation of the logarithm.
        points: (log of the size, log of the factor), ascending, where the factor follows the size;
            none where it is one number.
    """

    factor: float
    scatter: float
    points: tuple[tuple[float, float], ...] = ()

    def at(self, size: float) -> float:
        """Return the factor for a size, between those of its neighbours."""
        if not self.points or size <= 0:
            return self.factor
        return math.exp(_between(self.points, math.log(size)))


def raw_time(axes: CostAxes, device: DeviceProfile) -> float:
    """Return the uncorrected time in microseconds."""
    peak = device.tensor_tflops if axes.tensor else device.fp32_tflops
    per_sm = peak * 1e6 * axes.efficiency / device.sm_count  # flops per microsecond
    l2_rate = device.copy_gbps * 1e3 * L2_OVER_MEMORY / device.sm_count  # bytes per microsecond
    slots = device.sm_count * axes.resident
    waves = math.ceil(axes.blocks / slots)
    # Blocks that share a multiprocessor share its units; the last wave may hold fewer of them.
    rest = axes.blocks - (waves - 1) * slots
    busiest = (waves - 1) * axes.resident + math.ceil(rest / device.sm_count)
    block = max(axes.flops / per_sm, axes.traffic / l2_rate)
    memory = axes.nbytes / (device.copy_gbps * 1e3)
    return axes.launches * LAUNCH_US + waves * PROLOGUE_US + max(busiest * block, memory)


class CostModel:
    """Predicts times on one device.

    Args:
        device: whose profile is used.
        corrections: by kernel name; see fit().
    """

    def __init__(self, device: DeviceProfile,
                 corrections: Mapping[str, Correction] | None = None) -> None:
        self.device = device
        self.corrections = dict(corrections or {})

    def predict(self, axes: CostAxes) -> Prediction:
        """Return the time of a launch."""
        correction = self.corrections.get(axes.kernel)
        raw = raw_time(axes, self.device)
        if correction is None:
            return Prediction(raw, UNKNOWN)
        return Prediction(raw * correction.at(axes.size), correction.scatter)


def fit(measured: Iterable[tuple[str, float, float]]) -> dict[str, Correction]:
    """Return corrections by kernel name, one number each.

    Args:
        measured: (kernel, uncorrected microseconds, measured microseconds).
    """
    ratios: dict[str, list[float]] = {}
    for kernel, raw_us, time_us in measured:
        if raw_us > 0 and time_us > 0:
            ratios.setdefault(kernel, []).append(math.log(time_us / raw_us))
    return {kernel: _correction(logs) for kernel, logs in ratios.items()}


def fit_by_size(measured: Iterable[tuple[CostAxes, float]], device: DeviceProfile
                ) -> dict[str, Correction]:
    """Return corrections by kernel name that follow the size, for problems that differ in that.

    Args:
        measured: what was timed, and its microseconds.
        device: whose rates the uncorrected times are of.
    """
    ratios: dict[str, dict[float, list[float]]] = {}
    for axes, time_us in measured:
        found = ratios.setdefault(axes.kernel, {}).setdefault(math.log(max(axes.size, 1.0)), [])
        found.append(math.log(time_us / raw_time(axes, device)))
    return {kernel: _line(points) for kernel, points in ratios.items()}


def _line(ratios: Mapping[float, Sequence[float]]) -> Correction:
    line = tuple((place, statistics.median(values)) for place, values in sorted(ratios.items()))
    plain = _correction([value for values in ratios.values() for value in values])
    if len(line) < 2:
        return plain
    if len(line) == 2:
        return Correction(plain.factor, plain.scatter, line)
    # How far each point lies from what the others say of it.
    misses = [abs(value - _between(line[:i] + line[i + 1:], place))
              for i, (place, value) in enumerate(line)]
    return Correction(plain.factor, max(1.48 * statistics.median(misses), SMALLEST), line)


def _between(points: Sequence[tuple[float, float]], place: float) -> float:
    """Return the value of a broken line; constant beyond its ends."""
    places = [p for p, _ in points]
    after = bisect.bisect_left(places, place)
    if after == 0 or after == len(points):
        return points[min(after, len(points) - 1)][1]
    (left, a), (right, b) = points[after - 1], points[after]
    return a + (b - a) * (place - left) / (right - left)


def _correction(logs: list[float]) -> Correction:
    middle = statistics.median(logs)
    if len(logs) < 2:
        return Correction(math.exp(middle), UNKNOWN / 2)
    scatter = 1.48 * statistics.median(abs(x - middle) for x in logs)  # as a standard deviation
    return Correction(math.exp(middle), max(scatter, SMALLEST))
