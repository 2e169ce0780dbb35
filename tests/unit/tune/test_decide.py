"""Who wins: only certain gains displace the incumbent, and ties always break the same way."""

from __future__ import annotations

import random
import statistics

from ge2.evidence.measure import Timing
from ge2.tune.decide import choose, gain, survivors


def timing(mean: float, noise: float = 0.003, seed: int = 0, n: int = 25,
           drift: list[float] | None = None) -> Timing:
    draw = random.Random(seed)
    drift = drift or [1.0] * n
    samples = tuple(mean * drift[i] * draw.gauss(1.0, noise) for i in range(n))
    quartiles = statistics.quantiles(samples, n=4)
    median = statistics.median(samples)
    return Timing(median, (quartiles[2] - quartiles[0]) / median, n, 1, samples, True)


def test_a_clear_gain_wins() -> None:
    winner, found = choose({0: timing(10.0), 3: timing(9.0, seed=1)}, 0)
    assert winner == 3
    assert abs(found.value - 1 / 9) < 0.01
    assert found.is_certain


def test_a_gain_within_the_noise_changes_nothing() -> None:
    changed = 0
    for seed in range(100):
        winner, found = choose({0: timing(10.0, 0.01, seed), 1: timing(9.99, 0.01, seed + 100)}, 0)
        changed += winner != 0
        assert winner != 0 or found.value == 0.0
    assert changed <= 3  # three standard errors; quartiles of 25 samples are no exact ones


def test_drift_that_both_see_is_no_noise() -> None:
    drift = [1.0 + 0.01 * i for i in range(25)]
    found = gain(timing(9.8, drift=drift), timing(10.0, seed=1, drift=drift))
    assert found.is_certain
    assert found.noise < 0.01


def test_ties_go_to_the_lowest_index_whatever_was_fastest() -> None:
    winners = []
    for seed in range(40):
        timings = {0: timing(12.0, seed=seed), 2: timing(10.0, seed=seed + 50),
                   5: timing(9.999, seed=seed + 99)}
        winners.append(choose(timings, 0)[0])
    assert winners.count(2) >= 38


def test_halving_keeps_the_incumbent() -> None:
    timings = {i: timing(10.0 + i, seed=i) for i in range(6)}
    assert survivors(timings, 2, [5]) == [0, 1, 5]
