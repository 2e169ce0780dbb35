"""Compiling candidates in the background, in parallel, while the GPU measures others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from .. import launch_table
from ..compiler.kernels.metadata import Variant
from ..errors import CompileFailed, Ge2Error
from ..evidence.device import DeviceProfile
from ..launch.record import KernelSource
from ..problem import Problem
from ..runtime import jit


class CompileAhead:
    """A thread that compiles kernels into the cache, where workers find them.

    Args:
        device: what to bind and compile for. seconds: time limit of one kernel.
    """

    def __init__(self, device: DeviceProfile, seconds: float) -> None:
        self._device = device
        self._seconds = seconds
        self._jobs: list[list[KernelSource]] = []
        self._results: dict[KernelSource, Future[str]] = {}
        self._wake = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def add(self, problem: Problem, variants: Sequence[Variant]) -> None:
        """Queue the kernels of candidates, as one batch."""
        wanted = [s for v in variants for s in self._sources(problem, v)]
        with self._wake:
            new = [s for s in dict.fromkeys(wanted) if s not in self._results]
            for source in new:
                self._results[source] = Future()
            if new:
                self._jobs.append(new)
                self._wake.notify()

    def wait(self, problem: Problem, variant: Variant) -> str:
        """Return why a candidate does not compile, "" where it does; waits for it."""
        self.add(problem, [variant])
        for source in self._sources(problem, variant):
            reason = self._results[source].result()
            if reason:
                return reason
        return ""

    def stop(self) -> None:
        """Start no further batch."""
        with self._wake:
            self._stopped = True
            self._jobs.clear()
            self._wake.notify()

    def _sources(self, problem: Problem, variant: Variant) -> list[KernelSource]:
        try:
            records = launch_table.bind(problem, variant, self._device)
        except Ge2Error:
            return []  # the check says why
        return [record.kernel for record in records]

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._jobs and not self._stopped:
                    self._wake.wait()
                if self._stopped:
                    return
                batch = self._jobs.pop(0)
            self._compile(batch)

    def _compile(self, batch: Sequence[KernelSource]) -> None:
        try:
            found = jit.try_compile(batch, self._device.arch, seconds=self._seconds)
        except Exception as error:  # the waiting side reports it for each candidate
            found = dict.fromkeys(batch, CompileFailed(str(error)))
        for source in batch:
            outcome = found[source]
            self._results[source].set_result(
                str(outcome) if isinstance(outcome, CompileFailed) else "")
