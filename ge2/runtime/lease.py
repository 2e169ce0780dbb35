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

LEASES_KEPT = 4
_PER_THREAD_STREAM = 2


@dataclass(slots=True)
class Lease:
    """See the module.

    Attributes:
        plan: whose buffers these are.
        units: one per launch of the plan, in order.
        arena, semaphores: None where the plan needs none.
        owned: roots that have memory of their own (host inputs, host outputs, staged inputs;
            with the emulator every root).
        bases: the address of every root that the units are patched with; 0 before the first call.
        patched: whether there was a first call.
        graph: built at the first launch.
        event: recorded after the last launch; None for a lease that is used once.
        stream: of the last launch.
    """

    plan: Plan
    units: list[Unit]
    arena: Allocation | None = None
    semaphores: Allocation | None = None
    owned: dict[int, Allocation] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    patched: bool = False
    graph: KernelGraph | None = None
    event: driver.Event | None = None
    stream: int | None = None



def make_lease(plan: Plan, device: Device, *, private: bool = False) -> Lease:
    """Return a lease; a private one serves one call and has no event.

    With the emulator every arena buffer is an allocation of its exact size, so that an access
    beyond it is seen.
    """
    units = device.prepare(plan.records)
    lease = Lease(plan, units, bases=[0] * len(plan.roots))
    if device.kind == "emulate":
        for index, root in enumerate(plan.roots):
            if root.in_arena:
                lease.owned[index] = device.allocate(root.nbytes)
    elif plan.arena_bytes:
        lease.arena = device.allocate(plan.arena_bytes)
    if plan.semaphore_bytes:
        lease.semaphores = device.allocate(plan.semaphore_bytes, zero=True)
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

    def warm(self) -> None:
        """Make a lease, which compiles and loads the kernels, unless there is one."""
        if not self._idle:
            lease = self._make()
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
        if not _same_stream(lease, stream) and lease.stream is not None:
            assert lease.event is not None
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
