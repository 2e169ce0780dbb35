"""A few launches as one call: records bound once, addresses patched per call, one graph launch.

One updated graph node and one graph launch cost less host time than a single plain launch
(2.1 against 4.4 us on the machine that PERFORMANCE figures come from), so even a call of one
kernel goes through a graph, except into a stream that is being captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from .. import launch_table
from ..compiler.ir.nodes import Node
from ..compiler.kernels.lower import lower
from ..launch.record import LaunchRecord
from ..problem import TensorSpec
from ..runtime.cuda_graph import KernelGraph
from ..runtime.device import Device, Unit
from ..runtime.memory import SCRATCH
from ..runtime.tuned import default_chooser

_ALIGN = 256
_Writes = tuple[list[tuple["memoryview[int]", int, int]], list[int]]


class Prepared:
    """Stages bound to one device for given specs; for one thread.

    Args:
        device: where to launch.
        specs: spec of every named buffer, temporaries included.
        arguments: names of the caller's buffers in the order of run's addresses.
        stages: in launch order.
        temporaries: names of buffers that only live within the call.

    Attributes:
        addresses: of the last run.

    Raises:
        NoKernelError: an operator has no kernel for these specs.
    """

    def __init__(self, device: Device, specs: Mapping[str, TensorSpec], arguments: Sequence[str],
                 stages: Sequence[Node], temporaries: Sequence[str] = ()) -> None:
        self.device = device
        self.arguments = tuple(arguments)
        self._offsets, temporary_bytes = _lay_out(specs, temporaries)
        self._records: list[LaunchRecord] = []
        self._slots: list[tuple[str, ...]] = []
        self._semaphores_at: list[int] = []
        self.semaphores = 0
        for node in stages:
            self._bind(node, specs)
        self._workspace_at = temporary_bytes
        self.scratch_bytes = temporary_bytes + max((r.workspace for r in self._records), default=0)
        self._units: list[Unit] = device.prepare(self._records) if self._records else []
        self._writes = [self._writes_of(name) for name in self.arguments]
        self._needs_scratch = bool(self.scratch_bytes or self.semaphores)
        self._graph: KernelGraph | None = None
        self.addresses = [0] * len(self.arguments)
        self._maps_moved = False
        self._scratch = (0, 0)
        self._dirty: set[int] = set()

    def _bind(self, node: Node, specs: Mapping[str, TensorSpec]) -> None:
        used = {name: specs[name] for name in (*node.inputs, *node.outputs) if name}
        problem = lower(node, used)
        choice = default_chooser()(problem, self.device.profile)
        names = [name for name in node.inputs if name] if (
            len(problem.inputs) < len(node.inputs)) else list(node.inputs)
        names += [""] * (len(problem.inputs) - len(names))
        records = launch_table.bind(problem, choice.variant, self.device.profile)
        for record in records:
            self._records.append(record)
            self._slots.append((*names, *node.outputs))
            self._semaphores_at.append(4 * self.semaphores)
        self.semaphores += max((record.semaphores for record in records), default=0)

    def _writes_of(self, name: str) -> _Writes | None:
        """Return the words that hold an argument's address; None where that is not all."""
        words, units = [], []
        for index, slots in enumerate(self._slots):
            for slot, user in enumerate(slots):
                if user == name:
                    holes = self._units[index].args.holes(slot)
                    if holes is None:
                        return None
                    words += holes
                    units.append(index)
        return words, units

    @property
    def launches(self) -> int:
        """Number of kernels in a call."""
        return len(self._records)

    def run(self, addresses: list[int], stream: int) -> None:
        """Launch on a stream; addresses belong to the arguments, 0 for an absent one."""
        if addresses != self.addresses:
            self.move(range(len(addresses)), addresses)
        self.launch(stream)

    def launch(self, stream: int) -> None:
        """Launch on a stream with the addresses of the last run or move."""
        if self._needs_scratch:
            scratch = SCRATCH.get(self.device, stream, self.scratch_bytes, self.semaphores)
            if scratch != self._scratch:
                self._scratch = scratch
                self._patch_all()
        graph = self._graph
        if graph is None or (stream and self.device.is_capturing(stream)):
            self._run_apart(stream)
            return
        if self._dirty:
            for index in self._dirty:
                graph.update(index)
            self._dirty.clear()
        graph.launch(stream)

    def _run_apart(self, stream: int) -> None:
        """Launch one by one where there is no graph: the emulator, a capture, the first call."""
        if not self._units:
            return
        if self.device.kind == "cuda" and not self.device.is_capturing(stream):
            self._graph = KernelGraph(self._units)  # type: ignore[arg-type]
            self._dirty.clear()
            self._graph.launch(stream)
            return
        for unit in self._units:
            unit(stream)

    def move(self, slots: Iterable[int], addresses: Iterable[int]) -> None:
        """Write the addresses of some arguments, by position, into the Args blocks."""
        current, dirty = self.addresses, self._dirty
        for slot, address in zip(slots, addresses, strict=False):
            if current[slot] == address:
                continue
            current[slot] = address
            writes = self._writes[slot]
            if writes is None:
                self._maps_moved = True
                continue
            for words, index, addend in writes[0]:
                words[index] = address + addend
            dirty.update(writes[1])
        if self._maps_moved:
            self._patch_all()

    def mover(self, slots: Sequence[int]) -> Callable[[Sequence[int]], None]:
        """Return what moves the same arguments at every call, in half of move's host time.

        Args:
            slots: positions of the arguments whose addresses it takes.
        """
        writes = [self._writes[slot] for slot in slots]
        if self._needs_scratch or None in self._writes:
            return lambda addresses: self.move(slots, addresses)
        holes = [(words, index, addend, at) for at, found in enumerate(writes) if found
                 for words, index, addend in found[0]]
        users = {index for found in writes if found for index in found[1]}
        dirty = self._dirty

        def move(addresses: Sequence[int]) -> None:
            for words, index, addend, at in holes:
                words[index] = addresses[at] + addend
            dirty.update(users)

        return move

    def _patch_all(self) -> None:
        where = dict(zip(self.arguments, self.addresses, strict=True))
        scratch, semaphores = self._scratch
        for index, unit in enumerate(self._units):
            buffers = [self._address(name, where, scratch) for name in self._slots[index]]
            unit.args.patch(buffers, scratch + self._workspace_at,
                            semaphores + self._semaphores_at[index])
        self._dirty.update(range(len(self._units)))
        self._maps_moved = False

    def _address(self, name: str, where: Mapping[str, int], scratch: int) -> int:
        if name in self._offsets:
            return scratch + self._offsets[name]
        return where.get(name, 0)


def _lay_out(specs: Mapping[str, TensorSpec], names: Sequence[str]) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for name in names:
        offsets[name] = end
        end += -(-specs[name].nbytes // _ALIGN) * _ALIGN
    return offsets, end

