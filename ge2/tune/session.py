"""Several problems, one budget, one or more GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..compiler.kernels.metadata import Variant
from ..errors import EnvironmentUnusable, Ge2Error, NoKernelError
from ..evidence.costmodel import Correction, CostModel, fit
from ..evidence.device import DeviceProfile
from ..evidence.exchange import shipped
from ..evidence.keys import device_key, problem_key
from ..evidence.record import Decision, Record
from ..evidence.records import Store
from ..problem import Problem
from .compile_ahead import CompileAhead
from .describe import Describer
from .problems import Task
from .runner import Runner, WorkerRunner
from .search import Limits, Outcome, Search, Watch, ignore
from .space import Space, build_space
from .worker import Target


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look: candidates per problem, and seconds for everything."""

    trials: int
    budget: float


EFFORTS = {
    "quick": Effort(8, 60.0),
    "normal": Effort(16, 300.0),
    "full": Effort(10_000, 3600.0),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a session is asked for.

    Attributes:
        trials: candidates per problem. budget: seconds for all problems.
        strategy, seed: of each search. strict: stay within the default's numerics id.
        resume: take what records know. compile_seconds, run_seconds: limits of one candidate.
    """

    trials: int = EFFORTS["normal"].trials
    budget: float = EFFORTS["normal"].budget
    strategy: str = "guided"
    seed: int = 0
    strict: bool = False
    resume: bool = True
    compile_seconds: float = 60.0
    run_seconds: float = 30.0


@dataclass(slots=True)
class Result:
    """What became of one task: an outcome, or why there is none."""

    task: Task
    outcome: Outcome | None = None
    error: str = ""
    reached: bool = False


@dataclass(slots=True)
class Session:
    """Tunes tasks.

    Attributes:
        tasks: what to tune, the most important first.
        options: how.
        store_path: the database; None keeps evidence in memory.
        targets: one worker each; tasks are spread over them.
        watch: told of every step, from the thread of the worker.
        runners: makes the runner of a target; tests put others in.
        results: one per task, filled as they end.
    """

    tasks: Sequence[Task]
    options: Options
    store_path: Path | None
    targets: Sequence[Target]
    watch: Watch = ignore
    runners: Callable[[Target, float], Runner] = WorkerRunner
    results: list[Result] = field(default_factory=list)
    _next: int = 0
    _stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> list[Result]:
        """Tune everything that fits the budget.

        Raises:
            KeyboardInterrupt: after what is known so far was decided.
            EnvironmentUnusable: a worker does not start.
        """
        self.results = [Result(task) for task in self.tasks]
        deadline = time.monotonic() + self.options.budget
        if len(self.targets) == 1:
            _Lane(self, self.targets[0], deadline).work()
            return self.results
        failures: list[BaseException] = []
        threads = [threading.Thread(target=self._guarded, args=(t, deadline, failures),
                                    daemon=True) for t in self.targets]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        except KeyboardInterrupt:
            self._stopped = True
            for thread in threads:
                thread.join(30.0)
            raise
        if failures:
            raise failures[0]
        return self.results

    def _guarded(self, target: Target, deadline: float, failures: list[BaseException]) -> None:
        try:
            _Lane(self, target, deadline).work()
        except BaseException as error:
            failures.append(error)

    def take(self) -> Result | None:
        """Return the next task's result to fill, None where nothing is left."""
        with self._lock:
            if self._stopped or self._next >= len(self.results):
                return None
            self._next += 1
            return self.results[self._next - 1]

    def waiting(self, count: int) -> list[Task]:
        """Return the next tasks that nobody has taken yet."""
        with self._lock:
            return [r.task for r in self.results[self._next:self._next + count]]

    @property
    def weight_left(self) -> float:
        """Weight of the tasks that nobody has taken yet."""
        with self._lock:
            return sum(r.task.weight for r in self.results[self._next:])


class _Lane:
    """One worker and its database connection."""

    def __init__(self, session: Session, target: Target, deadline: float) -> None:
        self._session = session
        self._options = session.options
        self._deadline = deadline
        self._store = Store(session.store_path)
        self._runner = session.runners(target, self._options.run_seconds)
        real = target.kind == "cuda"
        self._describe = Describer(self._runner.device, target.index if real else None,
                                   emulated=not real)
        self._compiler = (CompileAhead(self._runner.device, self._options.compile_seconds)
                          if real and isinstance(self._runner, WorkerRunner) else None)
        self._evidence = Evidence(self._runner.device, self._store)

    def work(self) -> None:
        """Take tasks until none or no time is left."""
        try:
            while (result := self._session.take()) is not None:
                if time.monotonic() >= self._deadline:
                    self._session.watch("skipped", {"task": result.task})
                    continue
                self._one(result)
        finally:
            if self._compiler is not None:
                self._compiler.stop()
            self._runner.close()
            self._store.close()

    def _one(self, result: Result) -> None:
        result.reached = True
        watch = self._session.watch
        watch("start", {"task": result.task})
        try:
            search = self._search(result.task)
        except NoKernelError as error:
            result.error = str(error)
            watch("end", {"result": result})
            return
        result.outcome = search.outcome
        search.ahead(self._options.trials)
        self._compile_next()
        try:
            search.run(Limits(self._options.trials, self._share(result.task)))
        except EnvironmentUnusable:
            raise  # no worker starts: there is nothing to go on with
        except Ge2Error as error:
            result.error = str(error)
        watch("end", {"result": result})

    def _search(self, task: Task) -> Search:
        space = self._evidence.space(task.problem, strict=self._options.strict)
        return Search(space, self._runner, self._store, self._describe,
                      compiler=self._compiler, strategy=self._options.strategy,
                      seed=self._options.seed, resume=self._options.resume,
                      strict=self._options.strict, watch=self._session.watch)

    def _compile_next(self) -> None:
        """Queue the next problem's first candidates behind this one's."""
        if self._compiler is None:
            return
        for task in self._session.waiting(1):
            try:
                space = build_space(task.problem, self._runner.device)
            except NoKernelError:
                continue
            first: list[Variant] = [space.entries[i].variant for i in space.order[:8]]
            self._compiler.add(task.problem, first)

    def _share(self, task: Task) -> float:
        """Return until when a task may search: its weight's share of the time left, doubled.

        Doubled since most searches end early; what is over goes to those that come later.
        """
        left = self._deadline - time.monotonic()
        total = task.weight + self._session.weight_left
        share = left * min(1.0, 2.0 * task.weight * len(self._session.targets) / total)
        return time.monotonic() + max(share, min(left, 3.0))


class Evidence:
    """What records say before a search: corrections of the cost model, and hints.

    Args:
        device: to be tuned for. store: of this user; records that ship with ge2 count, too.
    """

    def __init__(self, device: DeviceProfile, store: Store) -> None:
        self.device = device
        self._records = [*store.records(), *(i for i in shipped() if isinstance(i, Record))]
        self._decisions = [*store.decisions(),
                           *(i for i in shipped() if isinstance(i, Decision))]
        self.model = CostModel(device, corrections(self._records, device))

    def space(self, problem: Problem, *, strict: bool = False) -> Space:
        """Return the problem's candidates, ordered by what is known of this kind of device.

        What other GPUs, drivers and kernels did are hints: tried early, never taken over.
        """
        key = problem_key(problem)
        hints = [d.variant for d in self._decisions if d.problem == key]
        return build_space(problem, self.device, self.model, strict=strict, hints=hints)


def corrections(records: Iterable[Record], device: DeviceProfile) -> dict[str, Correction]:
    """Return what records of this kind of device say of the cost model, by kernel."""
    key = device_key(device)
    return fit((r.variant.partition("[")[0].rpartition("/")[2], r.predicted_us, r.time_us)
               for r in records if r.is_ok and r.device == key)


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Return the counts over all tasks."""
    outcomes = [r.outcome for r in results if r.outcome is not None]
    return {
        "problems": len(results),
        "tuned": sum(o.decision is not None for o in outcomes),
        "skipped": sum(not r.reached for r in results),
        **{name: sum(getattr(o, name) for o in outcomes)
           for name in ("tried", "valid", "wrong", "failed", "known")},
    }
