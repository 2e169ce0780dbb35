"""Leases: the memory and the graph that one call of a plan runs in.

A lease is an arena, semaphores that are zero between calls, one unit per launch, an executable
graph and the event of its last use. Calls at the same time take different leases; a lease that
moves to another stream waits for its event on the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ..compiler.plan import Plan
from . import driver
from .cuda_graph import KernelGraph
from .device import Allocation, Device, Unit
from .sizing import Sizing

LEASES_KEPT = 4
_PER_THREAD_STREAM = 2


@dataclass(slots=True)
class Lease:
    """See the module.

    Attributes:
        plan: whose buffers these are.
        units: one per launch of the plan, in order.
        sizing: the numbers that units and memory are made for; None before the first call.
        arena, semaphores: None where the plan needs none.
        owned: roots that have memory of their own (host inputs, host outputs, staged inputs;
            with the emulator every root).
        offsets: of each launch's buffers in their roots, then of its semaphores.
        bases: the address of every root that the units are patched with; 0 before the first call.
        patched: whether there was a first call.
        graph: built at the first launch.
        event: recorded after the last launch; None for a lease that is used once.
        stream: of the last launch.
    """

    plan: Plan
    units: list[Unit]
    sizing: Sizing | None = None
    arena: Allocation | None = None
    semaphores: Allocation | None = None
    owned: dict[int, Allocation] = field(default_factory=dict)
    offsets: list[tuple[int, ...]] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    patched: bool = False
    graph: KernelGraph | None = None
    event: driver.Event | None = None
    stream: int | None = None

    def fit(self, sizing: Sizing, device: Device) -> None:
        """Make room for a size. Every address has to be placed anew after it.

        Memory grows at least twofold, so that growing sizes seldom allocate. With the emulator
        every arena buffer is an allocation of its exact size, so that an access beyond it is seen.
        """
        if device.kind == "emulate":
            for index, root in enumerate(self.plan.roots):
                if root.in_arena:
                    self.owned[index] = device.allocate(sizing.nbytes[index])
        else:
            self.arena = self._grown(self.arena, sizing.arena_bytes, device)
        self.semaphores = self._grown(self.semaphores, sizing.semaphore_bytes, device, zero=True)
        self.sizing, self.patched = sizing, False
        self.bases = [0] * len(self.plan.roots)

    def _grown(self, memory: Allocation | None, nbytes: int, device: Device, *, zero: bool = False,
               ) -> Allocation | None:
        have = memory.nbytes if memory else 0
        if nbytes <= have:
            return memory
        if have and self.event is not None:
            self.event.wait()
        return device.allocate(max(nbytes, 2 * have), zero=zero)


def make_lease(plan: Plan, device: Device, *, private: bool = False) -> Lease:
    """Return a lease without memory; a private one serves one call and has no event."""
    lease = Lease(plan, device.prepare(plan.records))
    if device.kind == "cuda" and not private:
        lease.event = driver.Event()
    return lease


class LeasePool:
    """The leases of one plan on one GPU."""

    def __init__(self, make: Callable[[], Lease]) -> None:
        self._make = make
        self._idle: list[Lease] = []
        self._lock = threading.Lock()

    @property
    def idle(self) -> tuple[Lease, ...]:
        """The leases that no call holds."""
        return tuple(self._idle)

    def warm(self, prepare: Callable[[Lease], None]) -> None:
        """Make a lease, which compiles and loads the kernels, unless there is one."""
        if not self._idle:
            lease = self._make()
            prepare(lease)
            with self._lock:
                self._idle.append(lease)

    def acquire(self, stream: int) -> Lease:
        """Return a lease that nobody holds, safe to use on a stream.

        Preferred: one last used on this stream, then one whose work is finished, then a new one
        while there are few, then one that the stream waits for.
        """
        with self._lock:
            lease = self._take(stream)
        if lease is None:
            return self._make()
        # NOTE: also on the same handle: a new stream may have got that of a destroyed one.
        if lease.stream is not None and lease.event is not None and not lease.event.is_done():
            lease.event.hold(stream)
        return lease

    def _take(self, stream: int) -> Lease | None:
        for index, lease in enumerate(self._idle):
            if _same_stream(lease, stream):
                return self._idle.pop(index)
        for index, lease in enumerate(self._idle):
            if lease.stream is None or (lease.event is not None and lease.event.is_done()):
                return self._idle.pop(index)
        return self._idle.pop(0) if len(self._idle) >= LEASES_KEPT else None

    def release(self, lease: Lease, stream: int) -> None:
        """Give a lease back after its work was put on a stream."""
        assert lease.event is not None
        lease.event.record(stream)
        lease.stream = stream
        with self._lock:
            self._idle.append(lease)


def _same_stream(lease: Lease, stream: int) -> bool:
    return lease.stream == stream and stream != _PER_THREAD_STREAM
