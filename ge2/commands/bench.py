"""The stopping rule and the report of `ge2 run --bench`."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .. import paths
from .output import Report, human_time, warn

if TYPE_CHECKING:
    from ..model import Model


@dataclass(frozen=True, slots=True)
class Criteria:
    """When a measurement ends; the names are nvbench's.

    Attributes:
        min_time: seconds to measure at least.
        min_samples: samples to take at least.
        max_noise: percent; half width of the median's 95 % interval.
        timeout: seconds after which a measurement ends anyway.
    """

    min_time: float
    min_samples: int
    max_noise: float
    timeout: float

    def unmet(self, samples: Sequence[float]) -> list[str]:
        """Return the criteria that the samples do not meet yet."""
        missing = []
        if sum(samples) < self.min_time:
            missing.append(f"min-time {self.min_time:g} s (measured {sum(samples):.3g} s)")
        if len(samples) < self.min_samples:
            missing.append(f"min-samples {self.min_samples} (took {len(samples)})")
        noise = median_noise(samples)
        if noise > self.max_noise:
            missing.append(f"max-noise {self.max_noise:g} % (reached {noise:.2g} %)")
        return missing


@dataclass(frozen=True, slots=True)
class Statistics:
    """Seconds per run."""

    n: int
    median: float
    minimum: float
    mean: float
    deviation: float
    p5: float
    p95: float
    p99: float
    noise_percent: float
    outliers: int

    def report(self, label: str) -> str:
        """Return the line that a person reads."""
        return (f"  {label}: median {human_time(self.median)} (+-{self.noise_percent:.2g} %)  "
                f"min {human_time(self.minimum)}  mean {human_time(self.mean)} "
                f"+-{human_time(self.deviation)}  p5 {human_time(self.p5)}  "
                f"p95 {human_time(self.p95)}  p99 {human_time(self.p99)}  n {self.n}")


def median_noise(samples: Sequence[float]) -> float:
    """Return half the width of the median's 95 % confidence interval, in percent of the median.

    The interval comes from order statistics, so that it assumes no distribution; infinite for
    fewer than six samples, for which there is no such interval.
    """
    n = len(samples)
    if n < 6:
        return math.inf
    ordered = sorted(samples)
    reach = 0.98 * math.sqrt(n)
    low = ordered[max(0, math.floor(n / 2 - reach))]
    high = ordered[min(n - 1, math.ceil(n / 2 + reach))]
    middle = statistics.median(ordered)
    return 100 * (high - low) / 2 / middle if middle else math.inf


def summarise(samples: Sequence[float]) -> Statistics:
    """Return the statistics of some durations in seconds."""
    ordered = sorted(samples)

    def quantile(q: float) -> float:
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

    quartile = quantile(0.75) - quantile(0.25)
    limit = quantile(0.75) + 3 * quartile
    return Statistics(
        len(ordered), statistics.median(ordered), ordered[0], statistics.fmean(ordered),
        statistics.stdev(ordered) if len(ordered) > 1 else 0.0, quantile(0.05), quantile(0.95),
        quantile(0.99), median_noise(ordered), sum(1 for s in ordered if s > limit))


def measure_until(once: Callable[[], float], criteria: Criteria
                  ) -> tuple[list[float], list[str]]:
    """Call once() until the criteria are met or the time is up.

    Args:
        once: does the work and returns how many seconds count.

    Returns:
        The samples, and the criteria that were not met.
    """
    once()
    start = time.perf_counter()
    samples: list[float] = []
    check = criteria.min_samples
    while True:
        samples.append(once())
        elapsed = time.perf_counter() - start
        if len(samples) >= check or elapsed > criteria.timeout:
            unmet = criteria.unmet(samples)
            if not unmet or elapsed > criteria.timeout:
                return samples, unmet
            check = len(samples) + max(1, len(samples) // 4)


def bench_model(model: Model, feeds: Mapping[str, Any], criteria: Criteria, report: Report
                ) -> None:
    """Measure calls of a model and report wall time and, on a GPU, device time."""
    report.message(f"measuring at least {criteria.min_time:g} s ...")
    timers = {"wall time per run": _wall(model, feeds)}
    if model.backend == "cuda":
        timers = {"gpu time per run": _device(model, feeds), **timers}
    data = {}
    for label, once in timers.items():
        samples, unmet = measure_until(once, criteria)
        result = summarise(samples)
        report.line(result.report(label))
        for criterion in unmet:
            report.line(warn(f"    not met within {criteria.timeout:g} s: {criterion}"))
        if result.outliers > len(samples) // 100:
            report.line(warn(f"    {result.outliers} of {result.n} samples are outliers: other "
                             "work on this machine? Close it, or raise --min-time"))
        data[label.replace(" ", "_")] = {**asdict(result), "unmet": unmet, "samples": samples}
    report.data["bench"] = data


def _wall(model: Model, feeds: Mapping[str, Any]) -> Callable[[], float]:
    """Return a timer of one call as the user makes it: host arrays in, host arrays out."""

    def once() -> float:
        start = time.perf_counter()
        model.run(feeds)
        return time.perf_counter() - start

    return once


def _device(model: Model, feeds: Mapping[str, Any]) -> Callable[[], float]:
    """Return a timer of one call on arrays that are on the GPU already, by CUDA events."""
    paths.let_cupy_start()
    import cupy

    with cupy.cuda.Device(model.device):
        arrays = {name: cupy.asarray(array) for name, array in feeds.items()}
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()

    def once() -> float:
        with cupy.cuda.Device(model.device):
            begin.record()
            model.run(arrays)
            end.record()
            end.synchronize()
            return 1e-3 * float(cupy.cuda.get_elapsed_time(begin, end))

    return once
