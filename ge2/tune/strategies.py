"""Which candidate to try next: one ask/tell interface, several strategies."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Protocol

from ..errors import Invalid, near_matches
from .space import Space

FAILED = math.inf


class Strategy(Protocol):
    """Chooses among the entries of a space; never asks for one twice."""

    def ask(self, count: int) -> list[int]:
        """Return up to count indices that were not asked for yet; [] when nothing is left."""
        ...

    def tell(self, index: int, time_us: float) -> None:
        """Learn a time, or FAILED."""
        ...


class _Base:
    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self.draw = random.Random(seed)
        self.asked: set[int] = set()
        self.times: dict[int, float] = {}

    def tell(self, index: int, time_us: float) -> None:
        """Learn a time, or FAILED; also of a candidate that was not asked for."""
        self.asked.add(index)
        self.times[index] = time_us

    @property
    def left(self) -> list[int]:
        """What was not asked for, in order of promise."""
        return [i for i in self.space.order if i not in self.asked]

    def take(self, wanted: list[int], count: int) -> list[int]:
        """Return the first `count` of wanted that are new, and remember them."""
        chosen = [i for i in dict.fromkeys(wanted) if i not in self.asked][:count]
        self.asked.update(chosen)
        return chosen


class Guided(_Base):
    """The cost model's and the rules' favourites, then neighbours of the best, then the model
    corrected by what was measured.
    """

    def ask(self, count: int) -> list[int]:
        """Return the next candidates."""
        good = sorted((t, i) for i, t in self.times.items() if t < FAILED)
        if len(good) < 2:
            return self.take(self.left, count)
        near = [n for _, i in good[:2] for n in self.space.neighbours(i)]
        likely = sorted(self.left, key=self._expected)
        # Half for what is close to the best, half for what the corrected model expects.
        near.sort(key=self._expected)
        woven = [i for pair in zip(near, likely, strict=False) for i in pair]
        return self.take([*woven, *near, *likely], count)

    def _expected(self, index: int) -> float:
        """Return the predicted time, corrected by the kernel's measured ones and an optimism for
        what is not known yet.
        """
        entry = self.space.entries[index]
        logs = [math.log(t / self.space.entries[i].predicted_us) for i, t in self.times.items()
                if t < FAILED and self.space.entries[i].variant.kernel is entry.variant.kernel]
        if logs:
            return entry.predicted_us * math.exp(statistics.median(logs))
        every = [math.log(t / self.space.entries[i].predicted_us) for i, t in self.times.items()
                 if t < FAILED]
        shift = statistics.median(every) if every else 0.0
        return entry.predicted_us * math.exp(shift - entry.uncertainty / 2)


class Exhaustive(_Base):
    """Everything, the most promising first."""

    def ask(self, count: int) -> list[int]:
        """Return the next candidates."""
        return self.take(self.left, count)


class Random(_Base):
    """A seeded order; the default first, since the search compares with it."""

    def ask(self, count: int) -> list[int]:
        """Return the next candidates."""
        left = self.left
        self.draw.shuffle(left)
        return self.take([0, *left], count)


class Evolutionary(_Base):
    """Children of the best few: params of two parents of one kernel, some of them changed."""

    PARENTS = 4

    def ask(self, count: int) -> list[int]:
        """Return the next candidates."""
        good = [i for _, i in sorted((t, i) for i, t in self.times.items() if t < FAILED)]
        if len(good) < self.PARENTS:
            return self.take(self.left, count)
        return self.take([*self._children(good[:self.PARENTS], 4 * count), *self.left], count)

    def _children(self, parents: list[int], tries: int) -> list[int]:
        found = []
        for _ in range(tries):
            a, b = (self.space.entries[self.draw.choice(parents)].variant for _ in range(2))
            mixed = {n: (v if self.draw.random() < 0.5 else b.param_map.get(n, v))
                     for n, v in a.params}
            if mixed and self.draw.random() < 0.5:
                name = self.draw.choice(sorted(mixed))
                mixed[name] = self.draw.choice(dict(a.kernel.params)[name])
            found += [i for i, e in enumerate(self.space.entries)
                      if e.variant.kernel is a.kernel and e.variant.param_map == mixed]
        return found


class Optuna(_Base):
    """Optuna's sampler over kernels and their params; needs the optuna package."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space, seed)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._state = optuna.trial.TrialState
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self._trials: dict[int, Any] = {}

    def ask(self, count: int) -> list[int]:
        """Return the next candidates: the default, then what the sampler suggests."""
        chosen = self.take([0], count)
        for _ in range(8 * count):
            if len(chosen) >= count or not self.left:
                break
            trial = self._study.ask()
            index = self._index(trial)
            if index is None or index in self.asked:
                self._study.tell(trial, state=self._state.FAIL)
                continue
            self._trials[index] = trial
            chosen += self.take([index], 1)
        return chosen + self.take(self.left, count - len(chosen))

    def _index(self, trial: Any) -> int | None:
        kernels = sorted({e.variant.kernel.name for e in self.space.entries})
        name = trial.suggest_categorical("kernel", kernels)
        kernel = next(e.variant.kernel for e in self.space.entries
                      if e.variant.kernel.name == name)
        params = {n: trial.suggest_categorical(f"{name}.{n}", list(choices))
                  for n, choices in kernel.params}
        return next((i for i, e in enumerate(self.space.entries)
                     if e.variant.kernel is kernel and e.variant.param_map == params), None)

    def tell(self, index: int, time_us: float) -> None:
        """Learn a time, or FAILED."""
        super().tell(index, time_us)
        trial = self._trials.pop(index, None)
        if trial is None:
            return
        if time_us < FAILED:
            self._study.tell(trial, time_us)
        else:
            self._study.tell(trial, state=self._state.FAIL)


STRATEGIES: dict[str, Callable[[Space, int], Strategy]] = {
    "guided": Guided, "random": Random, "exhaustive": Exhaustive, "evolutionary": Evolutionary,
    "optuna": Optuna,
}


def check_strategy(name: str) -> None:
    """Refuse a strategy that there is not.

    Raises:
        Invalid: there is no such strategy, or it needs a package that is not there.
    """
    if name not in STRATEGIES:
        raise Invalid("no such strategy", argument="strategy", found=repr(name),
                      wanted=", ".join(STRATEGIES), hint=near_matches(name, STRATEGIES))
    if name == "optuna" and find_spec("optuna") is None:
        raise Invalid("the optuna strategy needs the optuna package",
                      hint="pip install optuna, or take another --strategy")


def make_strategy(name: str, space: Space, seed: int) -> Strategy:
    """Return a strategy by name.

    Raises:
        Invalid: as check_strategy.
    """
    check_strategy(name)
    return STRATEGIES[name](space, seed)
