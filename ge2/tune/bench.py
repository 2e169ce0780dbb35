"""Running candidates on a device: check against float64, then time. Lives in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from .. import launch_table
from ..errors import Ge2Error, LaunchFailed, OutOfMemory
from ..evidence.device import DeviceProfile
from ..evidence.measure import Candidate, Timer, Timing, measure, rotations
from ..launch.record import LaunchRecord
from ..problem import Problem
from ..runtime.device import Device, Unit
from ..runtime.digests import cubin_digest, distinct_sources, source_digest
from .operands import (
    Data,
    Tensor,
    allocate,
    duplicate,
    fill,
    guards_hold,
    read,
    total_bytes,
)
from .verify import Tolerance, compare

MOST_SETS = 512
MOST_BYTES = 24 << 30
INPUTS_COMPARED = 64 << 20
WARM_UP_US = 30_000.0

Sources = tuple[LaunchRecord, ...]
Bind = Callable[[Problem, Any, DeviceProfile], list[LaunchRecord]]
"""As launch_table.bind: the launches that solve a problem in some way."""


def bind_call(problem: Problem, variant: Any, device: DeviceProfile) -> list[LaunchRecord]:
    """Return the launches of a variant, those apart that constant inputs need once."""
    return launch_table.bind(problem, variant, device, prepare=True)


class Way(Protocol):
    """A way of solving problems: a kernel variant, or what a Bind turns into launches."""

    @property
    def id(self) -> str:
        """What its records are filed under."""
        ...

    @property
    def numerics(self) -> str:
        """Its order of accumulation."""
        ...


class Checked(msgspec.Struct, frozen=True):
    """What the check of a candidate found.

    Attributes:
        state: as Record.state. reason: in words where it is not "ok".
        max_abs, ulp: error of the outputs.
        cubin, sources, registers, smem, spills, occupancy, compile_ms: of its kernels.
        fatal: the device can no longer be used in this process.
    """

    state: str
    reason: str = ""
    max_abs: float = 0.0
    ulp: float = 0.0
    cubin: str = ""
    sources: str = ""
    registers: int = 0
    smem: int = 0
    spills: int = 0
    occupancy: float = 0.0
    compile_ms: float = 0.0
    fatal: bool = False


@dataclass(slots=True)
class _Loaded:
    """The problem at hand: its data, and buffer sets of which the first is also checked in."""

    problem: Problem
    data: Data
    sets: list[list[Tensor | None]]
    units: dict[str, list[list[Unit]]] = field(default_factory=dict)
    nbytes: int = 0


class Bench:
    """Candidates of one problem at a time on one device.

    What is made of constant inputs is made before a measurement and takes no part in it.

    Args:
        device: the GPU, or the emulator.
        limit: error bounds instead of those by dtype.
        bind: how candidates that are no kernel variants become launches.
    """

    def __init__(self, device: Device, limit: Tolerance | None = None,
                 bind: Bind = bind_call) -> None:
        self.device = device
        self._bind = bind
        self._timer: Callable[[Any], Timer] | None = None
        self._limit = limit
        self._now: _Loaded | None = None

    @property
    def problem(self) -> Problem:
        """The problem at hand."""
        return self._loaded().problem

    def use_clock(self, timer: Callable[[Any], Timer]) -> None:
        """Time with what timer(variant) returns instead of the GPU's events."""
        self._timer = timer

    def load(self, problem: Problem, seed: int) -> None:
        """Make a problem's data and its first buffer set; forget those of the one before."""
        self._now = None
        data = Data(problem, seed)
        with self.device.active():
            first: list[Tensor | None] = []
            for slot, spec in enumerate(problem.tensors):
                if spec is None:
                    first.append(None)
                    continue
                tensor = allocate(self.device, spec)
                fill(self.device, tensor,
                     data.whole(slot) if slot < len(problem.inputs) else None)
                first.append(tensor)
        self._now = _Loaded(problem, data, [first], nbytes=total_bytes(problem.tensors))

    def check(self, variant: Way) -> Checked:
        """Run a candidate once into poisoned outputs and compare every element."""
        now = self._loaded()
        try:
            records = tuple(self._bind(now.problem, variant, self.device.profile))
        except Ge2Error as error:
            return Checked("unsupported", str(error))
        try:
            facts = self._facts(records)
        except Ge2Error as error:
            return Checked("compile_error", str(error))
        found = self._attempt(now, variant, records)
        if found["state"] == "wrong":
            # A large input is not compared, so that one before may have written to it.
            self._mend(now)
            found = self._attempt(now, variant, records)
        if found["state"] != "ok" and not found.get("fatal"):
            self._mend(now)
        return msgspec.structs.replace(facts, **found)

    def _attempt(self, now: _Loaded, variant: Way, records: Sources) -> dict[str, Any]:
        """Return state, reason and errors of one run."""
        try:
            with self.device.active():
                return self._run_once(now, variant, records)
        except OutOfMemory as error:
            return {"state": "launch_error", "reason": str(error)}
        except Ge2Error as error:
            fatal = isinstance(error, LaunchFailed) and not self._alive()
            return {"state": "launch_error", "reason": str(error), "fatal": fatal}

    def _mend(self, now: _Loaded) -> None:
        """Write all inputs again."""
        with self.device.active():
            for slot, tensor in enumerate(now.sets[0][: len(now.problem.inputs)]):
                if tensor is not None:
                    fill(self.device, tensor, now.data.whole(slot))

    def measure(self, variants: Sequence[Way], *, rounds: int, seed: int,
                cold: bool | None = None) -> dict[str, Timing]:
        """Time candidates that passed the check, interleaved.

        Args:
            cold: operands from memory; None takes what suits the size, as is_cold() says.
        """
        now = self._loaded()
        l2 = self.device.profile.l2_bytes
        cold = self.is_cold() if cold is None else cold
        with self.device.active():
            cold = cold and self._grow(now, self.sets_needed())
            candidates = {}
            for variant in variants:
                units = self._units_of(now, variant)[: None if cold else 1]
                launches = [_in_order(group) for group in units]
                candidates[variant.id] = Candidate(launches, max(now.nbytes, 1))
            if self._timer is not None:
                return {v.id: measure({v.id: candidates[v.id]}, cold=cold, l2_bytes=l2,
                                      rounds=rounds, seed=seed, timer=self._timer(v),
                                      warm_up_us=0.0)[v.id] for v in variants}
            return measure(candidates, cold=cold, l2_bytes=l2, rounds=rounds, seed=seed,
                           warm_up_us=WARM_UP_US)

    def sets_needed(self) -> int:
        """Return how many buffer sets a cold measurement takes."""
        return rotations(self._loaded().nbytes, self.device.profile.l2_bytes)

    def is_cold(self) -> bool:
        """Whether the deciding measurement takes operands from memory.

        Problems so small that they fit in L2 hundreds of times find their operands there in
        practice, too.
        """
        needed = self.sets_needed()
        return needed <= MOST_SETS and needed * self._loaded().nbytes <= MOST_BYTES

    # -- one candidate ------------------------------------------------------------------------

    def _run_once(self, now: _Loaded, variant: Way, records: Sources) -> dict[str, Any]:
        tensors = now.sets[0]
        n = len(now.problem.inputs)
        outputs = [t for t in tensors[n:] if t is not None]
        for tensor in outputs:
            fill(self.device, tensor, None)
        now.units.pop(variant.id, None)
        for unit in self._prepare(records, tensors, self._scratch(records)):
            unit(0)
        self.device.synchronize(0)
        return self._verdict(now, tensors, outputs)

    def _verdict(self, now: _Loaded, tensors: Sequence[Tensor | None],
                 outputs: Sequence[Tensor]) -> dict[str, Any]:
        worst = ulp = 0.0
        wrong = ""
        for index, tensor in enumerate(outputs):
            raw = read(self.device, tensor)
            if not guards_hold(tensor, raw):
                wrong = wrong or f"output {index}: memory outside of it was written"
            result = compare(now.problem, index, tensor.view(raw), now.data.wanted[index],
                             now.data.output_axis(index), self._limit)
            worst, ulp = max(worst, result.max_abs), max(ulp, result.ulp)
            wrong = wrong or result.problem
        wrong = wrong or self._changed_input(now, tensors)
        return {"state": "wrong" if wrong else "ok", "reason": wrong, "max_abs": worst, "ulp": ulp}

    def _changed_input(self, now: _Loaded, tensors: Sequence[Tensor | None]) -> str:
        """Return which input a candidate wrote to, "" for none."""
        for slot, tensor in enumerate(tensors[: len(now.problem.inputs)]):
            if tensor is None or tensor.memory.nbytes > INPUTS_COMPARED:
                continue
            whole = now.data.whole(slot)
            raw = read(self.device, tensor)
            view = tensor.view(raw)
            same = guards_hold(tensor, raw) and (
                whole is None or view.size == 0
                or bool((view.view(f"u{view.itemsize}") == whole.astype(view.dtype).view(
                    f"u{view.itemsize}")).all()))
            if not same:
                return f"input {slot} was written to"
        return ""

    def _facts(self, records: Sources) -> Checked:
        from ..runtime import jit

        sources = distinct_sources(records)
        if self.device.kind != "cuda":
            return Checked("ok", cubin=_emulated_digest(sources), sources=source_digest(sources))
        compiled = jit.compile(sources, self.device.profile.arch)
        metas = [compiled[source].meta for source in sources]
        first = records[0] if records else None
        registers = max((m.resources.registers for m in metas), default=0)
        smem = first.smem if first else 0
        return Checked(
            "ok", cubin=cubin_digest(metas), sources=source_digest(sources), registers=registers,
            smem=smem, spills=max((m.resources.spill_stores for m in metas), default=0),
            occupancy=occupancy(first, registers, self.device.profile) if first else 0.0,
            compile_ms=sum(m.compile_ms for m in metas))

    def _units_of(self, now: _Loaded, variant: Way) -> list[list[Unit]]:
        groups = now.units.setdefault(variant.id, [])
        if len(groups) < len(now.sets):
            records = tuple(self._bind(now.problem, variant, self.device.profile))
            scratch = self._scratch(records)  # one after the other, all sets can use the same
            for tensors in now.sets[len(groups):]:
                groups.append(self._prepare(records, tensors, scratch))
        return groups[: len(now.sets)]

    def _scratch(self, records: Sources) -> _Scratch:
        return _Scratch(self.device, max((r.workspace for r in records), default=0),
                        max((r.semaphores for r in records), default=0))

    def _prepare(self, records: Sources, tensors: Sequence[Tensor | None], scratch: _Scratch
                 ) -> list[Unit]:
        addresses = [0 if t is None else t.address for t in tensors]
        return units_of_call(self.device, records, addresses, scratch.workspace,
                             scratch.semaphores, scratch)

    def _grow(self, now: _Loaded, count: int) -> bool:
        """Make buffer sets; where memory ends before, return False: then times are hot."""
        try:
            while len(now.sets) < count:
                now.sets.append([None if t is None else duplicate(self.device, t)
                                 for t in now.sets[0]])
        except OutOfMemory:
            del now.sets[1:]
            now.units.clear()
        self.device.synchronize(0)
        return len(now.sets) >= count

    def _alive(self) -> bool:
        try:
            with self.device.active():
                self.device.synchronize(0)
                self.device.allocate(256)
        except Ge2Error:
            return False
        return True

    def _loaded(self) -> _Loaded:
        assert self._now is not None, "load a problem first"
        return self._now


class _Scratch:
    """Workspace and zeroed semaphores of one bound variant."""

    def __init__(self, device: Device, workspace: int, words: int) -> None:
        self._memory = [device.allocate(workspace) if workspace else None,
                        device.allocate(4 * words, zero=True) if words else None]
        self.workspace, self.semaphores = (m.address if m else 0 for m in self._memory)


class _Held:
    """A unit that keeps memory alive."""

    def __init__(self, unit: Unit, memory: object) -> None:
        self._unit = unit
        self._memory = memory
        self.args, self.record, self.grid = unit.args, unit.record, unit.grid
        self.resize = unit.resize

    def __call__(self, stream: int, /) -> None:
        self._unit(stream)


def units_of_call(device: Device, records: Sequence[LaunchRecord], addresses: Sequence[int],
                  workspace: int, semaphores: int, memory: object = None) -> list[Unit]:
    """Return the launches of a call; other forms of constant inputs are made here, on stream 0.

    Args:
        device, records: as bound with prepare=True.
        addresses: of the problem's tensors.
        workspace, semaphores: addresses of as much as the records ask for.
        memory: what has to live as long as the launches.
    """
    units = device.prepare(records)
    forms = []
    for unit in units:
        if unit.record.prepares >= 0:
            forms.append(device.allocate(unit.record.prepared))
            unit.args.patch([addresses[unit.record.prepares], forms[-1].address])
            unit(0)
    if forms:
        device.synchronize(0)
    calls = [unit for unit in units if unit.record.prepares < 0]
    for unit in calls:
        unit.args.patch([*addresses, *(form.address for form in forms)], workspace, semaphores)
    return [_Held(unit, (memory, forms)) for unit in calls]


def _in_order(units: Sequence[Unit]) -> Callable[[int], object]:
    if len(units) == 1:
        return units[0]

    def enqueue(stream: int) -> None:
        for unit in units:
            unit(stream)

    return enqueue


def _emulated_digest(sources: Sequence[Any]) -> str:
    return f"emulated-{source_digest(sources)[:23]}"


def occupancy(record: LaunchRecord, registers: int, device: DeviceProfile) -> float:
    """Return the share of a multiprocessor's threads that resident blocks fill."""
    threads = record.block[0] * record.block[1] * record.block[2]
    rounded = -(-max(registers, 1) // 8) * 8
    limits = [32, 2048 // max(threads, 1),
              device.registers_per_sm // max(rounded * threads, 1)]
    if record.smem:
        limits.append(device.smem_per_sm // (record.smem + 1024))
    return max(min(limits), 0) * threads / 2048


__all__ = ["Bench", "Checked", "cubin_digest", "occupancy", "source_digest", "units_of_call"]
