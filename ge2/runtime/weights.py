"""A graph's constants on a device: uploaded once, and what plans make of them, made once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..compiler.ir.nodes import Graph
from ..compiler.plan import Plan, Step, launch_offsets
from ..errors import Ge2Error, OutOfMemory
from ..launch.record import LaunchRecord
from . import driver
from .device import Allocation, Device, EmulatedUnit, Unit
from .repro import explain
from .shadow import Shadow

Key = tuple[str, int, LaunchRecord]


@dataclass(eq=False)
class Prepared:
    """Another form of a constant.

    Attributes:
        memory: where it is.
        written: with the emulator, which of its bytes hold values.
    """

    memory: Allocation
    written: Any = None


class Weights:
    """See the module.

    Other forms of a constant are shared by all plans, of whatever sizes, and go with the last plan
    that reads them.

    Args:
        graph: its constants are read when they are uploaded and not again.
        device: where they go.
    """

    def __init__(self, graph: Graph, device: Device) -> None:
        self.device = device
        self._graph = graph
        self._lock = threading.Lock()
        self._constants: dict[str, Allocation] = {}
        self._late: dict[str, Allocation] = {}
        self._prepared: WeakValueDictionary[Key, Prepared] = WeakValueDictionary()

    @property
    def memory(self) -> object:
        """What has to live as long as launches that read constants."""
        return self._constants, self._late

    def address(self, name: str) -> int:
        """Return where a constant is."""
        return (self._constants.get(name) or self._late[name]).address

    def upload(self) -> None:
        """Upload the graph's constants, unless they are on the device."""
        if self._constants or not self._graph.constants:
            return
        with self._lock:
            if not self._constants:
                self._constants = {name: self._uploaded(array)
                                   for name, array in self._graph.constants.items()}

    def upload_late(self, graph: Graph) -> None:
        """Upload the constants that finishing a concrete graph added."""
        for name, array in graph.constants.items():
            if name not in self._graph.constants and name not in self._late:
                with self.device.active() if self.device.kind == "cuda" else nullcontext():
                    self._late[name] = self._uploaded(array)

    def _uploaded(self, array: np.ndarray[Any, Any]) -> Allocation:
        dense = np.ascontiguousarray(array)
        memory = self.device.allocate(dense.nbytes)
        _upload(self.device, memory.address, dense)
        return memory

    def prepare(self, plan: Plan) -> dict[int, Prepared]:
        """Return the prepared roots of a plan; what no other plan has made is made here.

        The constants have been uploaded.

        Raises:
            Ge2Error: a launch failed; names the node that it is for.
        """
        with self._lock:
            keys = {_key(plan, step): step for step in plan.preparations}
            made = {key: self._prepared.get(key) for key in keys}
            missing = [step for key, step in keys.items() if made[key] is None]
            new = iter(self._make(plan, missing) if missing else ())
            found = {}
            for key, step in keys.items():
                target = step.buffers[1]
                assert target is not None
                found[target.root] = self._prepared[key] = made[key] or next(new)
            return found

    def _make(self, plan: Plan, steps: list[Step]) -> list[Prepared]:
        # Together with the plan's other kernels, as compiling one by one takes longer.
        records = [*(step.records[0] for step in steps), *plan.records]
        with _own_stream(self.device) as stream:
            units = self.device.prepare(records)[:len(steps)]
            return [self._run(plan, step, unit, stream)
                    for step, unit in zip(steps, units, strict=True)]

    def _allocate(self, nbytes: int) -> Allocation:
        try:
            return self.device.allocate(nbytes)
        except OutOfMemory as error:
            error.add_note("GE2_PREPARE=0 saves the memory of other forms of weights")
            raise

    def _run(self, plan: Plan, step: Step, unit: Unit, stream: int) -> Prepared:
        source, target = step.buffers
        assert source is not None and target is not None
        made = Prepared(self._allocate(plan.roots[target.root].nbytes))
        bases = [0] * len(plan.roots)
        bases[source.root] = self.address(plan.roots[source.root].name)
        bases[target.root] = made.memory.address
        unit.args.patch([bases[source.root] + source.offset, made.memory.address])
        nbytes = tuple(root.nbytes for root in plan.roots)
        shadow = Shadow(plan)
        try:
            if isinstance(unit, EmulatedUnit):
                unit.memory = shadow.before(step, bases, nbytes, (0, 0))
            unit(stream)
            if isinstance(unit, EmulatedUnit):
                shadow.after()
            self.device.synchronize(stream)
        except Ge2Error as error:
            explain(error, unit, step, launch_offsets(step), nbytes, self.device)
            raise
        made.written = shadow.written.get(target.root)
        return made


def _key(plan: Plan, preparation: Step) -> Key:
    source = preparation.buffers[0]
    assert source is not None
    return plan.roots[source.root].name, source.offset, preparation.records[0]


def _upload(device: Device, address: int, dense: np.ndarray[Any, Any]) -> None:
    """Copy a host array to a device and wait."""
    with _own_stream(device) as stream:
        device.copy(address, dense.__array_interface__["data"][0], dense.nbytes, stream)


@contextmanager
def _own_stream(device: Device) -> Iterator[int]:
    """Give a stream whose work is done at the end; allowed while another one is capturing."""
    if device.kind != "cuda":
        yield 0
        return
    with driver.relaxed_capture():
        stream = driver.stream_create()
        try:
            yield stream
            driver.stream_synchronize(stream)
        finally:
            driver.api().cuStreamDestroy(stream)
