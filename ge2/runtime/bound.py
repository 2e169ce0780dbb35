"""Plans bound to a device: their leases, and the ways to launch one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .. import config
from ..compiler.plan import Plan, Step, launch_offsets
from ..compiler.sized_plan import SizedPlan
from ..errors import Ge2Error
from . import repro
from .cuda_graph import KernelGraph
from .device import Device, EmulatedUnit, Unit
from .lease import Lease, LeasePool, make_lease
from .shadow import Shadow
from .sizing import Sizing
from .weights import Prepared, Weights

Observer = Callable[[Step, Unit, int], None]
"""Called with a step, its launch and the raw stream, after the launch has finished."""


@dataclass(slots=True)
class BoundPlan:
    """A plan with what all calls of it share.

    Attributes:
        plan, device: what runs where.
        steps_of: the step of each launch.
        uses: root -> launches whose arguments hold its address.
        external: the roots of inputs and outputs; the others never move in a lease.
        leases: what calls run in.
        synchronous: whether GE2_SYNC=1 was set when the plan was bound.
        sized: set where the plan serves a class of sizes.
        prepared: what is made of constants, by root; empty before the first call.
    """

    plan: Plan
    device: Device
    steps_of: list[Step]
    uses: list[list[int]]
    external: list[int]
    leases: LeasePool
    synchronous: bool
    sized: SizedPlan | None = None
    prepared: dict[int, Prepared] = field(default_factory=dict)

    def prepare(self, weights: Weights) -> None:
        """Have made of the constants what the plan needs, unless it is there."""
        if self.plan.preparations and not self.prepared:
            self.prepared = weights.prepare(self.plan)

    def fit(self, lease: Lease, sizing: Sizing) -> None:
        """Give a lease the numbers of a size, unless it has them."""
        if lease.sizing is not None and lease.sizing.numbers == sizing.numbers:
            return
        if self.sized is not None:
            numbers = sizing.numbers
            for unit, launch in zip(lease.units, self.sized.launches, strict=True):
                unit.resize(launch.grid(numbers))  # type: ignore[arg-type]
                unit.args.resize(numbers, launch.fields, launch.addends,
                                 launch.tensor_maps(numbers) if launch.maps else ())
            lease.offsets = [get(numbers) for get in self.sized.launch_offsets]
        else:
            lease.offsets = [launch_offsets(step) for step in self.steps_of]
        lease.fit(sizing, self.device)

    def launch(self, lease: Lease, bases: list[int], stream: int,
               observer: Observer | None = None) -> None:
        """Put the plan's launches on a stream.

        As one graph whose nodes are updated where an address moved; one by one with the emulator,
        with GE2_SYNC=1 (then waiting after each), and into a capture.

        Args:
            lease: held by the caller; one without an event belongs to a captured graph.
            bases: address of every root.
            stream: raw handle.
            observer: called after each launch, which then go one by one.

        Raises:
            LaunchFailed: names the node where launches go one by one.
        """
        changed = self._repoint(lease, bases)
        if not lease.units:
            return
        if observer or self.device.kind != "cuda" or self.synchronous:
            lease.graph = None  # its nodes would miss the addresses patched here
            self._launch_one_by_one(lease, stream, observer)
        elif lease.event is None:
            for unit in lease.units:
                unit(stream)
        else:
            if lease.graph is None:
                lease.graph = KernelGraph(lease.units)  # type: ignore[arg-type]
            else:
                for index in changed:
                    lease.graph.update(index)
            lease.graph.launch(stream)

    def _repoint(self, lease: Lease, bases: list[int]) -> list[int]:
        """Patch the launches whose addresses moved since the lease's last call; return them."""
        moved: dict[int, None] = {}
        before = lease.bases
        for root in self.external if lease.patched else range(len(bases)):
            if before[root] != bases[root]:
                moved.update(dict.fromkeys(self.uses[root]))
        semaphores = lease.semaphores.address if lease.semaphores else 0
        for launch in moved:
            step = self.steps_of[launch]
            *offsets, first = lease.offsets[launch]
            addresses = [bases[ref.root] + offset if ref is not None else 0
                         for ref, offset in zip(step.buffers, offsets, strict=True)]
            workspace = bases[step.workspace.root] if step.workspace else 0
            lease.units[launch].args.patch(addresses, workspace, semaphores + first)
        lease.bases, lease.patched = bases, True
        return sorted(moved)

    def _launch_one_by_one(self, lease: Lease, stream: int, observer: Observer | None) -> None:
        wait = not self.device.is_capturing(stream)
        shadow = Shadow(self.plan, {root: made.written for root, made in self.prepared.items()})
        for unit, step, offsets in zip(lease.units, self.steps_of, lease.offsets, strict=True):
            try:
                if isinstance(unit, EmulatedUnit):
                    assert lease.sizing is not None
                    unit.memory = shadow.before(step, lease.bases, lease.sizing.nbytes,
                                                self._semaphores(lease, step, offsets[-1]))
                unit(stream)
                if isinstance(unit, EmulatedUnit):
                    shadow.after()
                if wait:
                    self.device.synchronize(stream)
                if observer is not None:
                    observer(step, unit, stream)
            except Ge2Error as error:
                nbytes = lease.sizing.nbytes if lease.sizing else ()
                repro.explain(error, unit, step, offsets, nbytes, self.device)
                raise

    @staticmethod
    def _semaphores(lease: Lease, step: Step, first: int) -> tuple[int, int]:
        """Return address and bytes of a step's semaphores, which start at byte first."""
        if not lease.semaphores or not any(record.semaphores for record in step.records):
            return 0, 0
        assert lease.sizing is not None
        return lease.semaphores.address + first, lease.sizing.semaphore_bytes - first


def bind_plan(plan: Plan, device: Device, sized: SizedPlan | None = None) -> BoundPlan:
    """Return the plan on a device; nothing is compiled or allocated yet."""
    steps_of = [step for step in plan.steps for _ in step.records]
    uses: list[list[int]] = [[] for _ in plan.roots]
    for launch, step in enumerate(steps_of):
        refs = {ref.root for ref in (*step.buffers, step.workspace) if ref is not None}
        for root in refs:
            uses[root].append(launch)
    external = [i for i, root in enumerate(plan.roots) if root.kind in ("input", "output")]
    return BoundPlan(plan, device, steps_of, uses, external,
                     LeasePool(lambda: make_lease(plan, device)), config.get("GE2_SYNC") == "1",
                     sized)
