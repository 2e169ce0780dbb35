"""The statistics behind verdicts and stopping rules."""

from __future__ import annotations

import random

import pytest

from ge2.commands.bench import Criteria, measure_until, median_noise, summarise
from ge2.commands.kernel_bench import SESSIONS, mean_interval, verdict


@pytest.mark.parametrize("interval,wanted", [
    ((0.90, 0.95), "FAST"), ((1.05, 1.10), "SLOW"), ((0.995, 1.004), "SAME"),
    ((0.95, 1.05), "UNDECIDED"), ((0.985, 0.995), "FAST"), ((0.95, 1.0005), "UNDECIDED"),
])
def test_verdict(interval: tuple[float, float], wanted: str) -> None:
    assert verdict(interval, 0.01) == wanted


def test_interval_covers_the_mean_19_times_of_20() -> None:
    draw = random.Random(1)
    covered = 0
    for _ in range(400):
        low, high = mean_interval([draw.gauss(1.1, 0.02) for _ in range(SESSIONS)])
        covered += low <= 1.1 <= high
    assert 365 <= covered <= 395


def test_noise_shrinks_with_samples() -> None:
    draw = random.Random(2)
    samples = [draw.gauss(1, 0.05) for _ in range(1000)]
    assert median_noise(samples[:5]) == float("inf")
    assert 0 < median_noise(samples) < median_noise(samples[:20])


def test_measuring_stops_when_the_criteria_are_met() -> None:
    samples, unmet = measure_until(lambda: 0.01, Criteria(0.05, 8, 1.0, 60))
    assert not unmet
    assert len(samples) == 8


def test_timeout_names_what_is_missing() -> None:
    draw = random.Random(3)
    _, unmet = measure_until(draw.random, Criteria(0.0, 10, 1e-6, 0.05))
    assert [text.split()[0] for text in unmet] == ["max-noise"]


def test_statistics() -> None:
    result = summarise([1.0] * 99 + [100.0])
    assert (result.median, result.minimum, result.n, result.outliers) == (1.0, 1.0, 100, 1)
