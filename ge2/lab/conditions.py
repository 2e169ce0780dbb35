"""Conditions that a realization is measured under: what a GPU grants a kernel, one at a time.

A condition changes launches, never results: shared memory against cache, registers per thread,
resident blocks, asynchronous copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..compiler.kernels.metadata import Variant
from ..errors import Ge2Error
from ..evidence.device import DeviceProfile
from ..launch.record import KernelSource, LaunchRecord
from ..problem import Problem
from ..runtime import jit
from ..runtime.device import Device
from ..tune.bench import Way
from . import plans
from .sweep import SWEEP
from .sweep import condition as state_of

Change = Callable[[LaunchRecord, DeviceProfile], LaunchRecord]
RESERVED = 1024  # shared memory that the system takes of each block


@dataclass(frozen=True, slots=True)
class Condition:
    """One restriction.

    Attributes:
        name: "registers=32". about: one line. change: what it does to a launch.
        only: realizations that it makes a difference to; () for all.
    """

    name: str
    about: str
    change: Change
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restricted:
    """A kernel variant under a condition, where kernels have variants."""

    base: Variant
    condition: Condition

    @property
    def id(self) -> str:
        """Derived name, "lab/lab_stage[REALIZATION=direct,STAGES=4]{blocks=1}"."""
        return f"{self.base.id}{{{self.condition.name}}}"

    @property
    def numerics(self) -> str:
        """Unchanged."""
        return self.base.numerics


def _carveout(percent: int) -> Change:
    def change(record: LaunchRecord, device: DeviceProfile) -> LaunchRecord:
        # The division stays with the loaded kernel, so that it has to be another one.
        return _with_option(replace(record, carveout=percent), f"-DGE2_CARVEOUT={percent}")

    return change


def _registers(count: int) -> Change:
    def change(record: LaunchRecord, device: DeviceProfile) -> LaunchRecord:
        # So many blocks that no more registers are left for each thread.
        blocks = device.registers_per_sm // (count * prod(record.block))
        context = {**dict(record.kernel.context), "min_blocks": blocks}
        return replace(record, kernel=replace(record.kernel,
                                              context=tuple(sorted(context.items()))))

    return change


def _blocks(count: int) -> Change:
    def change(record: LaunchRecord, device: DeviceProfile) -> LaunchRecord:
        # What a block holds back leaves room for so many.
        share = min(device.smem_per_sm // count - RESERVED, device.smem_per_block)
        return replace(record, smem=max(record.smem, share // 1024 * 1024))

    return change


def _no_async(record: LaunchRecord, device: DeviceProfile) -> LaunchRecord:
    return _with_option(record, "-DGE2_SYNC_COPIES")


def _with_option(record: LaunchRecord, option: str) -> LaunchRecord:
    kernel = record.kernel
    return replace(record, kernel=replace(kernel, options=(*kernel.options, option)))


CONDITIONS: dict[str, Condition] = {c.name: c for c in (
    Condition("carveout=0", "all of the first-level cache for loads", _carveout(0)),
    Condition("carveout=100", "as much shared memory as there is", _carveout(100)),
    Condition("registers=32", "at most 32 registers a thread", _registers(32)),
    Condition("blocks=1", "one block on a multiprocessor", _blocks(1)),
    Condition("blocks=2", "two blocks on a multiprocessor", _blocks(2)),
    Condition("async=off", "copies wait where they are issued", _no_async, ("cp_async",)),
)}

# Problems of the sweep, by family and state, that are measured under conditions, too: the largest
# of these states.
RESTRICTED: dict[str, tuple[str, ...]] = {
    "reduction": ("variance",), "streaming": ("weighted mean",), "staging": ("9 taps", "65 taps"),
}


def is_restricted(family: str, problem: Problem) -> bool:
    """Return whether a problem is one of the sweep's that conditions are applied to."""
    state = state_of(problem)
    if state not in RESTRICTED.get(family, ()):
        return False
    like = [p for p in SWEEP[family]() if state_of(p) == state]
    return problem == like[-1 if family == "staging" else len(like) // 2]


def restricted(variant: Way) -> list[Restricted]:
    """Return a variant under each condition that makes a difference to it."""
    if not isinstance(variant, Variant):
        return []
    names = set(map(str, variant.param_map.values()))
    return [Restricted(variant, c) for c in CONDITIONS.values()
            if not c.only or names & set(c.only)]


def bind(problem: Problem, variant: plans.AnyVariant | Restricted, device: DeviceProfile
         ) -> list[LaunchRecord]:
    """Return the launches of a variant, a treatment, or a variant under a condition.

    Raises:
        Ge2Error: it does not serve the problem.
    """
    if not isinstance(variant, Restricted):
        return plans.bind(problem, variant, device)
    return [variant.condition.change(record, device)
            for record in plans.bind(problem, variant.base, device)]


def compile_ahead(device: Device, ways: Iterable[tuple[Problem, Any]]) -> None:
    """Compile the kernels of a GPU's candidates in one go, by all workers.

    What does not bind or compile says so when it is run.
    """
    if device.kind != "cuda":
        return
    sources: dict[KernelSource, None] = {}
    for problem, way in ways:
        with suppress(Ge2Error):
            sources |= dict.fromkeys(r.kernel for r in bind(problem, way, device.profile))
    jit.try_compile(sources, device.profile.arch)
