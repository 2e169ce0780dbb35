"""The search for one problem: ask, compile ahead, check, time, halve, decide, remember."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..compiler.kernels.metadata import Variant
from ..errors import EnvironmentUnusable, Ge2Error
from ..evidence.keys import problem_key
from ..evidence.measure import Timing
from ..evidence.record import Decision, Record
from ..evidence.records import EvidenceError, Store
from ..problem import Problem
from .bench import Checked
from .compile_ahead import CompileAhead
from .decide import NO_GAIN, Gain, choose, survivors
from .describe import Describer
from .runner import Runner
from .space import Space
from .strategies import FAILED, make_strategy

BATCH = 4
FINALISTS = 5
WITHIN = 1.10  # of the fastest: what the first, short measurement may have mistaken
SCOUT_ROUNDS = 7
HALVINGS = ((9, 3), (25, 2))  # rounds, and how many stay for the next


@dataclass(frozen=True, slots=True)
class Limits:
    """When a search ends.

    Attributes:
        trials: candidates to look at; those known from records count.
        deadline: time.monotonic() after which only the decision is made.
    """

    trials: int
    deadline: float = float("inf")


@dataclass(slots=True)
class Outcome:
    """The result of one problem.

    Attributes:
        problem: what was tuned. decision: None where nothing valid was found.
        tried, valid, wrong, failed, known: candidates by fate; known ones came from records.
        first_error: of the first candidate that failed.
        gain: over the default, measured against each other.
        seconds: it took. complete: whether the search ended by itself.
        roofline: of the chosen variant.
    """

    problem: Problem
    space: Space
    decision: Decision | None = None
    tried: int = 0
    valid: int = 0
    wrong: int = 0
    failed: int = 0
    known: int = 0
    first_error: str = ""
    gain: Gain = NO_GAIN
    seconds: float = 0.0
    complete: bool = False
    roofline: float = 0.0
    failures: list[Record] = field(default_factory=list)


Watch = Callable[[str, dict[str, Any]], None]
"""Called with what happened ("trial", "finals", ...) and the numbers to show."""


def ignore(_event: str, _numbers: dict[str, Any]) -> None:
    """Watch nothing."""


class Search:
    """One problem's search.

    Args:
        space: the candidates. runner: runs them. store: where records go as they are made.
        describe: makes records. compiler: compiles ahead; None where the runner needs none.
        strategy, seed: how candidates are chosen.
        resume: whether records of the same kernels count as measured.
        watch: told of every step.
    """

    def __init__(self, space: Space, runner: Runner, store: Store, describe: Describer, *,
                 compiler: CompileAhead | None = None, strategy: str = "guided", seed: int = 0,
                 resume: bool = True, strict: bool = False, watch: Watch = ignore) -> None:
        self.space = space
        self.outcome = Outcome(space.problem, space)
        self._runner = runner
        self._store = store
        self._describe = describe
        self._compiler = compiler
        self._name, self._seed = strategy, seed
        self._strategy = make_strategy(strategy, space, seed)
        self._resume = resume
        self._strict = strict
        self._watch = watch
        self._records: dict[int, Record] = {}
        self._loaded = False
        self._disk_failed = False

    # -- the whole ----------------------------------------------------------------------------

    def run(self, limits: Limits) -> Outcome:
        """Search, decide and return; Ctrl-C decides by what is known and goes on upwards."""
        start = time.monotonic()
        try:
            if not self._take_known(limits):
                self._explore(limits)
                self._finish()
            self.outcome.complete = True
        except KeyboardInterrupt:
            self._decide_by_records()
            raise
        finally:
            self.outcome.seconds = time.monotonic() - start
        return self.outcome

    def ahead(self, count: int) -> None:
        """Compile the first candidates in the background."""
        if self._compiler is not None:
            entries = [self.space.entries[i].variant for i in self.space.order[:count]]
            for at in range(0, len(entries), 2 * BATCH):
                self._compiler.add(self.space.problem, entries[at:at + 2 * BATCH])

    # -- records ------------------------------------------------------------------------------

    def _take_known(self, limits: Limits) -> bool:
        """Tell the strategy what records say; return whether they settle the problem."""
        if not self._resume:
            return False
        key, device = problem_key(self.space.problem), self._describe.key
        for record in self._store.records(problem=key, device=device):
            index = self.space.index(record.variant)
            if index is None or not self._is_current(record, index):
                continue
            self._records[index] = record
            self._strategy.tell(index, record.time_us if record.is_ok else FAILED)
            self._count(record)
            self.outcome.known += 1
        wanted = min(limits.trials, len(self.space.entries))
        if len(self._records) < wanted or 0 not in self._records:
            return False
        decisions = self._store.decisions(problem=key, device=device)
        if not decisions or decisions[-1].strict != self._strict:
            return False
        index = self.space.index(decisions[-1].variant)
        if index is None or index not in self._records or not self._records[index].is_ok:
            return False
        self.outcome.decision = decisions[-1]
        self.outcome.gain = Gain(decisions[-1].gain, decisions[-1].noise)
        self.outcome.roofline = self._records[index].roofline
        return True

    def _is_current(self, record: Record, index: int) -> bool:
        """Whether a record is of the very kernels and driver that would be measured now."""
        if record.driver != self._describe.driver or record.nvrtc != self._describe.nvrtc:
            return False
        variant = self.space.entries[index].variant
        return record.sources == self._describe.sources(self.space.problem, variant)

    def _keep(self, index: int, record: Record) -> None:
        """Write a record; a disk that takes none does not end the search."""
        self._records[index] = record
        self._put(record)

    def _put(self, item: Record | Decision) -> None:
        try:
            self._store.put(item)
        except EvidenceError as error:
            if not self._disk_failed:
                self._disk_failed = True
                self._watch("warning", {"text": f"{error}; results of this run are only shown"})

    def _count(self, record: Record) -> None:
        out = self.outcome
        out.tried += 1
        if record.is_ok:
            out.valid += 1
            return
        out.wrong += record.state == "wrong"
        out.failed += record.state != "wrong"
        out.failures.append(record)
        out.first_error = out.first_error or f"{record.variant}: {record.reason}"

    # -- exploring ----------------------------------------------------------------------------

    def _explore(self, limits: Limits) -> None:
        while self.outcome.tried < limits.trials and time.monotonic() < limits.deadline:
            asked = self._strategy.ask(min(BATCH, limits.trials - self.outcome.tried))
            if not asked:
                return
            self._try(asked)

    def _try(self, asked: Sequence[int]) -> None:
        """Check a batch one by one, time what is right together, remember both."""
        variants = [self.space.entries[i].variant for i in asked]
        if self._compiler is not None:
            self._compiler.add(self.space.problem, variants)
        right: dict[int, Checked] = {}
        for index, variant in zip(asked, variants, strict=True):
            found = self._check(variant)
            if found.state == "ok":
                right[index] = found
            else:
                self._settle(index, found, None)
        timings = self._measure(list(right), SCOUT_ROUNDS, right)
        for index, timing in timings.items():
            self._settle(index, right[index], timing)

    def _load(self) -> None:
        if not self._loaded:
            self._runner.load(self.space.problem, self._seed)
            self._loaded = True

    def _check(self, variant: Variant) -> Checked:
        if self._compiler is not None:
            reason = self._compiler.wait(self.space.problem, variant)
            if reason:
                state = "compile_timeout" if "did not end within" in reason else "compile_error"
                return Checked(state, reason,
                               sources=self._describe.sources(self.space.problem, variant))
        self._load()
        try:
            return self._runner.check(variant)
        except EnvironmentUnusable:
            raise
        except Ge2Error as error:
            return Checked("launch_error", str(error))

    def _measure(self, indices: Sequence[int], rounds: int, checked: dict[int, Checked],
                 cold: bool | None = None) -> dict[int, Timing]:
        """Time candidates together; those that fail now are settled as failures."""
        if not indices:
            return {}
        self._load()
        variants = [self.space.entries[i].variant for i in indices]
        found = self._runner.measure(variants, rounds=rounds, seed=self._seed, cold=cold)
        timings = {}
        for index, variant in zip(indices, variants, strict=True):
            result = found[variant.id]
            if isinstance(result, Timing):
                timings[index] = result
            else:
                self._settle(index, msgspec.structs.replace(
                    checked[index], state=result.state, reason=result.reason), None)
        return timings

    def _settle(self, index: int, found: Checked, timing: Timing | None) -> None:
        """Record a candidate's fate and tell the strategy."""
        record = self._describe.record(self.space.problem, self.space.entries[index].variant,
                                       found, timing)
        is_new = index not in self._records
        self._keep(index, record)
        self._strategy.tell(index, record.time_us if record.is_ok else FAILED)
        if is_new:
            self._count(record)
        best = self._best_known()
        self._watch("trial", {
            "tried": self.outcome.tried, "record": record,
            "best_us": best.time_us if best else 0.0,
            "default_us": self._records[0].time_us if 0 in self._records else 0.0})

    def _best_known(self) -> Record | None:
        good = [r for r in self._records.values() if r.is_ok]
        return min(good, key=lambda r: (r.time_us, r.variant)) if good else None

    # -- deciding -----------------------------------------------------------------------------

    def _finish(self) -> None:
        """Measure the finalists against each other and decide."""
        if 0 not in self._records:
            self._try([0])
        good = {i: r for i, r in self._records.items() if r.is_ok}
        if not good:
            return
        fastest = min(r.time_us for r in good.values())
        near = sorted((r.time_us, i) for i, r in good.items() if r.time_us <= WITHIN * fastest)
        incumbent = self._incumbent(good)
        racing = sorted({incumbent, *(i for _, i in near[:FINALISTS])})
        timings = self._race(racing, incumbent)
        if incumbent not in timings:
            timings = {i: t for i, t in timings.items() if i in good}
            incumbent = min(timings, key=lambda i: timings[i].median) if timings else -1
        if not timings:
            return
        winner, gained = choose(timings, incumbent)
        self._add_other_state(sorted({winner, incumbent}), timings)
        self._decide(winner, timings[winner].median, timings[incumbent].median, gained,
                     timings[winner].cold)

    def _add_other_state(self, indices: Sequence[int], timings: dict[int, Timing]) -> None:
        """Record also how long the chosen ones take with the caches in the other state."""
        checked = {i: self._describe.checked(self._records[i]) for i in indices}
        cold = timings[indices[0]].cold
        if not cold:
            return  # too many buffer sets would be needed
        for index, timing in self._measure(indices, SCOUT_ROUNDS, checked, cold=False).items():
            self._keep(index, msgspec.structs.replace(
                self._records[index], other_us=timing.median))

    def _incumbent(self, good: dict[int, Record]) -> int:
        """Return what would run without this search: the last decision, else the default."""
        decisions = self._store.decisions(problem=problem_key(self.space.problem),
                                          device=self._describe.key)
        index = self.space.index(decisions[-1].variant) if decisions else None
        if index is not None and index in good:
            return index
        return 0 if 0 in good else min(good, key=lambda i: good[i].time_us)

    def _race(self, racing: list[int], incumbent: int) -> dict[int, Timing]:
        """Return the finalists' last timings; with each halving more rounds for fewer."""
        always = [incumbent, 0]
        timings: dict[int, Timing] = {}
        if len(racing) == 1:
            return self._retime(racing, HALVINGS[0][0])
        for rounds, keep in HALVINGS:
            self._watch("finals", {"candidates": len(racing), "rounds": rounds})
            timings = self._retime(racing, rounds)
            racing = survivors(timings, keep, always)
        return {i: t for i, t in timings.items() if i in racing}

    def _retime(self, indices: Sequence[int], rounds: int) -> dict[int, Timing]:
        checked = {i: self._describe.checked(self._records[i]) for i in indices}
        timings = self._measure(indices, rounds, checked)
        for index, timing in timings.items():
            self._keep(index, self._describe.record(
                self.space.problem, self.space.entries[index].variant, checked[index], timing))
        return timings

    def _decide(self, winner: int, time_us: float, against_us: float, gained: Gain,
                cold: bool) -> None:
        record = self._records[winner]
        default = self._records.get(0)
        default_us = default.time_us if default is not None and default.is_ok else against_us
        decision = self._describe.decision(
            self.space, record, time_us=time_us, default_us=default_us,
            noise=gained.noise, cold=cold, strict=self._strict, strategy=self._name,
            tried=self.outcome.tried, valid=self.outcome.valid)
        self._put(decision)
        self.outcome.decision = decision
        self.outcome.gain = Gain(decision.gain, gained.noise)
        self.outcome.roofline = record.roofline

    def _decide_by_records(self) -> None:
        """Decide without measuring again: the best so far, where it clearly beats the default."""
        best, default = self._best_known(), self._records.get(0)
        if best is None or default is None or not default.is_ok:
            return
        noise = 2.0 * (best.spread + default.spread) + 0.01
        clear = default.time_us / best.time_us - 1.0 > noise
        index = self.space.index(best.variant) if clear else 0
        assert index is not None
        self._decide(index, self._records[index].time_us, default.time_us,
                     Gain(default.time_us / self._records[index].time_us - 1.0, noise),
                     default.cold)


__all__ = ["Limits", "Outcome", "Search", "Watch", "ignore"]
