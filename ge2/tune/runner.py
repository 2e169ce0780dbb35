"""What runs candidates and times them: a worker process, or recorded evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from ..compiler.kernels.metadata import Variant
from ..errors import EnvironmentUnusable, Ge2Error
from ..evidence.device import DeviceProfile, profile_for
from ..evidence.keys import problem_key
from ..evidence.measure import Timing
from ..evidence.record import Record
from ..problem import Problem
from .bench import Checked
from .worker import Target, Worker, WorkerLost

LOAD_SECONDS = 120.0


class Runner(Protocol):
    """Runs candidates of one problem at a time."""

    device: DeviceProfile

    def load(self, problem: Problem, seed: int) -> None:
        """Turn to a problem."""
        ...

    def check(self, variant: Variant) -> Checked:
        """Run once into poisoned outputs and compare with float64."""
        ...

    def measure(self, variants: Sequence[Variant], *, rounds: int, seed: int,
                cold: bool | None = None) -> dict[str, Timing | Checked]:
        """Time candidates, interleaved; a Checked for one that failed meanwhile."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class WorkerRunner:
    """A worker process that is replaced when a candidate kills it.

    Args:
        target: what to run on.
        seconds: time limit of one candidate's check, and of its share of a measurement.
    """

    def __init__(self, target: Target, seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self._worker: Worker | None = None
        self._problem: tuple[Problem, int] | None = None
        self.replaced = 0
        self.device = profile_of(target)
        self._pool = ThreadPoolExecutor(1)
        # It starts while the first kernels compile.
        self._starting: Future[Worker] | None = self._pool.submit(Worker, target)

    def _start(self) -> Worker:
        """Return a worker that has the problem at hand."""
        if self._worker is None:
            starting, self._starting = self._starting, None
            self._worker = starting.result() if starting else Worker(self._target)
            if self._problem:
                problem, seed = self._problem
                self._worker.request("load", LOAD_SECONDS, problem=problem, seed=seed)
        return self._worker

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None
        self.replaced += 1

    def load(self, problem: Problem, seed: int) -> None:
        """Turn to a problem.

        Raises:
            Ge2Error: its operands do not fit on the device, or it has no reference.
        """
        self._problem = None
        worker = self._start()
        try:
            worker.request("load", LOAD_SECONDS, problem=problem, seed=seed)
        except WorkerLost as error:
            self._drop()
            raise Ge2Error(f"the operands of the problem cannot be made: {error}") from error
        self._problem = (problem, seed)

    def check(self, variant: Variant) -> Checked:
        """Run a candidate once; a hang or a crash costs the worker, not the search."""
        try:
            found: Checked = self._start().request("check", self._seconds, variant=variant)
        except WorkerLost as error:
            self._drop()
            return Checked("timeout" if error.timed_out else "crashed", str(error))
        if found.fatal:
            self._drop()
        return found

    def measure(self, variants: Sequence[Variant], *, rounds: int, seed: int,
                cold: bool | None = None) -> dict[str, Timing | Checked]:
        """Time candidates; where the batch fails, one after the other to find the culprit."""
        limit = self._seconds * (1 + len(variants) / 4)
        try:
            found: dict[str, Timing | Checked] = self._start().request(
                "measure", limit, variants=list(variants), rounds=rounds, seed=seed, cold=cold)
            return found
        except EnvironmentUnusable:
            raise
        except (WorkerLost, Ge2Error) as error:
            self._drop()
            if len(variants) > 1:
                return {v.id: self.measure([v], rounds=rounds, seed=seed, cold=cold)[v.id]
                        for v in variants}
            late = isinstance(error, WorkerLost) and error.timed_out
            state = ("timeout" if late else "crashed" if isinstance(error, WorkerLost)
                     else "launch_error")
            return {variants[0].id: Checked(state, str(error))}

    def close(self) -> None:
        """End the worker."""
        starting, self._starting = self._starting, None
        if starting is not None and starting.exception() is None:
            self._worker = starting.result()
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        self._pool.shutdown()


def profile_of(target: Target) -> DeviceProfile:
    """Return the profile of what a worker runs on.

    Raises:
        EnvironmentUnusable: there is no such GPU.
    """
    if target.kind == "cuda":
        from ..runtime.device import probe

        return probe(target.index)
    return profile_for(target.arch)


class ReplayRunner:
    """Answers from recorded evidence: a search without a GPU, always the same.

    Args:
        records: what was measured once. device: on which device.
    """

    def __init__(self, records: Sequence[Record], device: DeviceProfile) -> None:
        self.device = device
        self._records: Mapping[tuple[str, str], Record] = {
            (r.problem, r.variant): r for r in records}
        self._key = ""
        self.checked: list[str] = []

    def load(self, problem: Problem, seed: int) -> None:
        """Turn to a problem."""
        self._key = problem_key(problem)

    def check(self, variant: Variant) -> Checked:
        """Return what was recorded; what was not is unsupported."""
        self.checked.append(variant.id)
        found = self._records.get((self._key, variant.id))
        if found is None:
            return Checked("unsupported", "there is no record of it")
        return Checked(found.state, found.reason, found.max_abs, found.ulp, found.cubin,
                       found.sources, found.registers, found.smem, found.spills, found.occupancy,
                       found.compile_ms)

    def measure(self, variants: Sequence[Variant], *, rounds: int, seed: int,
                cold: bool | None = None) -> dict[str, Timing | Checked]:
        """Return the recorded times."""
        found: dict[str, Timing | Checked] = {}
        for variant in variants:
            record = self._records[self._key, variant.id]
            found[variant.id] = Timing(record.time_us, record.spread, max(record.n, 1), 1,
                                       record.samples or (record.time_us,), record.cold)
        return found

    def close(self) -> None:
        """Nothing is held."""
