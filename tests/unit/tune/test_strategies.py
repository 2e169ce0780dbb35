"""Strategies: nothing twice, everything in the end, and what each is there for."""

from __future__ import annotations

import random
from importlib.util import find_spec

import pytest

from ge2.errors import Invalid
from ge2.evidence.device import profile_for
from ge2.launch.gemm_examples import gemm_problem
from ge2.tune.space import Space, build_space
from ge2.tune.strategies import FAILED, STRATEGIES, check_strategy, make_strategy

NAMES = [name for name in STRATEGIES if name != "optuna" or find_spec("optuna")]


@pytest.fixture(scope="module")
def space() -> Space:
    return build_space(gemm_problem(("f16", "f16", "f16"), shape=(1024, 1024, 1024)),
                       profile_for("sm_90a"))


def hidden(space: Space, seed: int) -> list[float]:
    """Times that the model does not know: its own, each kernel off by a factor, and scatter."""
    draw = random.Random(seed)
    factor = {e.variant.kernel.name: draw.uniform(0.7, 1.6) for e in space.entries}
    return [e.predicted_us * factor[e.variant.kernel.name] * draw.uniform(0.9, 1.25)
            for e in space.entries]


def searched(name: str, space: Space, times: list[float], trials: int, seed: int = 0
             ) -> list[int]:
    strategy = make_strategy(name, space, seed)
    seen: list[int] = []
    while len(seen) < trials:
        asked = strategy.ask(min(4, trials - len(seen)))
        if not asked:
            break
        for index in asked:
            strategy.tell(index, times[index])
        seen += asked
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_asks_for_everything_once_and_for_the_default_early(name: str, space: Space) -> None:
    seen = searched(name, space, hidden(space, 0), 10_000)
    assert sorted(seen) == list(range(len(space.entries)))
    assert 0 in seen[:4]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_asks_the_same(name: str, space: Space) -> None:
    times = hidden(space, 1)
    assert searched(name, space, times, 16, 3) == searched(name, space, times, 16, 3)


@pytest.mark.parametrize("name", NAMES)
def test_failures_do_not_stop_it(name: str, space: Space) -> None:
    times = [FAILED if i % 2 else t for i, t in enumerate(hidden(space, 2))]
    assert len(searched(name, space, times, 10_000)) == len(space.entries)


def test_the_guided_one_comes_near_the_best_in_16_trials(space: Space) -> None:
    shares = []
    for seed in range(20):
        times = hidden(space, seed)
        seen = searched("guided", space, times, 16)
        shares.append(min(times) / min(times[i] for i in seen))
    assert sum(shares) / len(shares) > 0.97
    assert min(shares) > 0.85


def test_neighbours_differ_in_one_param(space: Space) -> None:
    for index in range(len(space.entries)):
        here = space.entries[index].variant
        for other in space.neighbours(index):
            there = space.entries[other].variant
            assert there.kernel is here.kernel
            assert sum(there.param_map[n] != v for n, v in here.params) == 1


def test_strict_keeps_the_order_of_accumulation() -> None:
    problem = gemm_problem(("f16", "f16", "f16"), shape=(256, 256, 256))
    device = profile_for("sm_90a")
    wide, narrow = build_space(problem, device), build_space(problem, device, strict=True)
    assert {e.variant.numerics for e in narrow.entries} == {wide.default.variant.numerics}
    assert 0 < len(narrow.entries) < len(wide.entries)


def test_an_unknown_strategy_gets_near_matches() -> None:
    with pytest.raises(Invalid, match="Did you mean guided"):
        check_strategy("gided")
