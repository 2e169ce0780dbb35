"""Executables: a graph on a backend, run with the caller's arrays.

Every launch - plain, in a graph, captured or emulated - takes its addresses from
_prepare_buffers() and its records from the launch table.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler.concrete import bind_symbols, concretize
from ..compiler.ir.nodes import Graph, TensorType
from ..compiler.kernels import registry
from ..compiler.kernels.metadata import Variant
from ..compiler.plan import Plan, make_plan, problem_plan
from ..errors import (
    DeviceMismatch,
    DtypeMismatch,
    Ge2Error,
    Invalid,
    MissingInput,
    ShapeMismatch,
    StrideMismatch,
    near_matches,
)
from ..problem import Problem, TensorSpec
from . import arrays, driver
from .arrays import Feed
from .bound import BoundPlan, Observer, bind_plan
from .device import (
    Allocation,
    Device,
    EmulatedDevice,
    cuda_device,
    default_backend,
    default_index,
)
from .lease import Lease, make_lease
from .memory import keep_with_capture

Shape = tuple[int, ...] | TensorType

PLANS_KEPT = 64
# Updating a node costs 0.6 us of host time, a small copy 4.4 us once (measured on an H200).
MANY_NODES = 8
SMALL_INPUT_BYTES = 1 << 20


@dataclass(slots=True)
class _Call:
    """One call after _prepare_buffers.

    Attributes:
        bases: address of every root.
        host_inputs, staged_inputs: (root, feed) to copy in before the launches.
        host_outputs: (root, array address, bytes) to copy out after them.
        results: the arrays to return.
    """

    bound: BoundPlan
    lease: Lease
    bases: list[int]
    copies_in: list[tuple[int, Feed]]
    copies_out: list[tuple[int, int, int]]
    results: dict[str, Any]


class Executable:
    """A graph ready to run on a backend.

    Attributes:
        graph: what is run.
        backend: its name.
        bound: the only plan of an executable made by for_problem.
        observer: where set, launches go one by one and it is called after each.

    Args:
        graph: optimised; may have named dimensions, which are bound by the shapes of each call.
        backend: "cuda", "emulate" or "cpu"; None takes GE2_BACKEND or what the machine has.
        device: GPU index, or for tests a Device.
        arch: with "emulate", the architecture whose kernels are run.

    Raises:
        EnvironmentUnusable: the backend does not work on this machine.
    """

    def __init__(self, graph: Graph, backend: str | None = None,
                 device: int | Device | None = None, arch: str = "sm_90a") -> None:
        self.graph = graph
        self.backend = backend or default_backend()
        self._lock = threading.Lock()
        self._plans: OrderedDict[Any, BoundPlan] = OrderedDict()
        self._constants: dict[str, Allocation] = {}
        self._own_stream: int | None = None
        self._cpu: Any = None
        self.bound: BoundPlan | None = None
        self.observer: Observer | None = None
        if self.backend == "cpu":
            from .cpu import CpuProgram

            self._cpu = CpuProgram(graph)
            return
        self.device: Device = _open(self.backend, device, arch)

    @classmethod
    def for_problem(cls, problem: Problem, variant: Variant | None = None,
                    backend: str | None = None, device: int | Device | None = None,
                    arch: str = "sm_90a") -> Executable:
        """Return an executable of one dense problem, with inputs in0, in1, ... and out0, ...

        Args:
            problem: with dense operands.
            variant: which kernel variant serves it; default: the selector's choice.
            backend, device, arch: as for a graph; there is no cpu backend for problems.
        """
        chosen = _open(backend or default_backend(), device, arch)
        plan = problem_plan(problem, chosen.profile, variant)
        made = cls(plan.graph, chosen.kind, chosen)
        made.bound = bind_plan(plan, chosen)
        return made

    # -- what users call ----------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Any], stream: Any = None,
            outputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the graph.

        Args:
            feeds: one array per graph input: NumPy, CuPy or torch. GPU arrays are used in place.
            stream: a raw handle or a CuPy or torch stream; None means the current stream of the
                arrays' library. While it is capturing, the launches become part of its graph,
                with memory that lives as long as that graph.
            outputs: dense arrays to write into instead of new ones.

        Returns:
            One array per graph output, of the kind of the feeds. With host arrays they hold the
            result on return; with GPU arrays as soon as the stream gets there.

        Raises:
            Ge2Error: a feed is missing or unfit, no kernel serves a node, or a launch failed.
        """
        if self._cpu is not None:
            return self._run_cpu(feeds)
        described = {name: arrays.describe(array) for name, array in feeds.items()}
        self._check_feeds(described)
        handle = self._stream(described, stream)
        with self.device.active():
            call = self._prepare_buffers(described, handle, outputs or {})
            return self._execute(call, handle)

    def prepare(self, shapes: Mapping[str, Shape] | None = None) -> Plan:
        """Plan, compile and load for these input shapes, so that the first run is fast.

        Args:
            shapes: shape or type per input; may be left out where no dimension is symbolic.
        """
        bound = self._bound(self._dense_feeds(shapes))
        if self.device.kind == "cuda":
            with self.device.active():
                self._upload_constants()
                self.device.prepare(bound.plan.records)
        return bound.plan

    def plan(self, shapes: Mapping[str, Shape] | None = None) -> Plan:
        """Return the plan for these input shapes without compiling anything."""
        return self._bound(self._dense_feeds(shapes)).plan

    # -- feeds --------------------------------------------------------------------------------

    def _run_cpu(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        hosts = {name: np.asarray(array) for name, array in feeds.items()}
        results: dict[str, Any] = self._cpu.run(hosts)
        return results

    def _dense_feeds(self, shapes: Mapping[str, Shape] | None) -> dict[str, TensorSpec]:
        if self._cpu is not None:
            raise Invalid("the cpu backend has no plan", argument="backend", found="cpu")
        given: dict[str, tuple[Any, ...]] = {
            name: shape.shape if isinstance(shape, TensorType) else tuple(shape)
            for name, shape in (shapes or {}).items()}
        for name in self.graph.inputs:
            declared = self.graph.types[name]
            if declared.is_static:
                given.setdefault(name, declared.shape)
        bind_symbols(self.graph, given)
        return {name: TensorSpec.dense(self.graph.types[name].dtype, given[name])
                for name in self.graph.inputs}

    def _check_feeds(self, feeds: Mapping[str, Feed]) -> None:
        for name, feed in feeds.items():
            if name not in self.graph.inputs:
                raise Invalid(f"the graph has no input {name!r}", argument=name,
                              wanted=", ".join(self.graph.inputs),
                              hint=near_matches(name, self.graph.inputs))
            wanted = self.graph.types[name].dtype
            if feed.spec.dtype != wanted:
                raise DtypeMismatch(f"input {name!r} has a wrong element type", argument=name,
                                    found=feed.spec.dtype, wanted=wanted)
            if not feed.host and (self.device.kind != "cuda" or feed.device != self.device.index):
                raise DeviceMismatch(f"input {name!r} is on another device", argument=name,
                                     found=f"GPU {feed.device}",
                                     wanted=f"{self.device.kind} device {self.device.index}")
        missing = [name for name in self.graph.inputs if name not in feeds]
        if missing:
            raise MissingInput(f"input {missing[0]!r} was not given", argument=missing[0],
                               wanted=", ".join(self.graph.inputs))

    def _stream(self, feeds: Mapping[str, Feed], stream: Any) -> int:
        if stream is not None:
            return arrays.raw_stream(stream)
        for feed in feeds.values():
            if not feed.host:
                return arrays.current_stream(feed.kind, self.device.index)
        if self.device.kind != "cuda":
            return 0
        if self._own_stream is None:
            with self.device.active():
                self._own_stream = driver.stream_create()
        return self._own_stream

    # -- plans --------------------------------------------------------------------------------

    def _bound(self, feeds: Mapping[str, TensorSpec]) -> BoundPlan:
        if self.bound is not None:
            return self.bound
        key = (tuple(feeds.items()), registry.generation())
        with self._lock:
            bound = self._plans.get(key)
            if bound is not None:
                self._plans.move_to_end(key)
                return bound
        shapes = {name: feeds[name].shape for name in self.graph.inputs}
        graph = concretize(self.graph, bind_symbols(self.graph, shapes))
        bound = bind_plan(make_plan(graph, self.device.profile, feeds=feeds), self.device)
        with self._lock:
            self._plans[key] = bound
            if len(self._plans) > PLANS_KEPT:
                self._plans.popitem(last=False)
        return bound

    def _upload_constants(self) -> None:
        with self._lock:
            if self._constants or not self.graph.constants:
                return
            made = {}
            for name, array in self.graph.constants.items():
                dense = np.ascontiguousarray(array)
                made[name] = self.device.allocate(dense.nbytes)
                _upload(self.device, made[name].address, dense)
            self._constants = made

    # -- one call -----------------------------------------------------------------------------

    def _prepare_buffers(self, feeds: Mapping[str, Feed], stream: int,
                         outputs: Mapping[str, Any]) -> _Call:
        """Return a call with a lease and the address of every buffer.

        Order and meaning of a launch's buffers are the contract's; here the plan's roots get
        their addresses: weights, arena, the caller's arrays, copies of host arrays.
        """
        specs = {name: feeds[name].spec for name in self.graph.inputs}
        given = {name: arrays.describe(array) for name, array in outputs.items()}
        specs |= {name: feed.spec for name, feed in given.items() if feed.spec.align < 16}
        bound = self._bound(specs)
        self._upload_constants()
        capturing = self.device.is_capturing(stream)
        if capturing and any(feed.host for feed in (*feeds.values(), *given.values())):
            raise Invalid("host arrays cannot be part of a captured graph", argument="feeds",
                          hint="Pass GPU arrays while the stream is capturing")
        lease = self._lease(bound, stream, capturing)
        try:
            call = _Call(bound, lease, list(lease.bases), [], [], {})
            self._place_memory(call)
            self._place_inputs(call, feeds)
            self._place_outputs(call, feeds, given, stream)
        except BaseException:
            if lease.event:
                bound.leases.release(lease, stream)
            raise
        return call

    def _lease(self, bound: BoundPlan, stream: int, capturing: bool) -> Lease:
        if self.device.kind != "cuda":
            return make_lease(bound.plan, self.device, private=True)
        if not capturing:
            return bound.leases.acquire(stream)
        with driver.relaxed_capture():
            lease = make_lease(bound.plan, self.device, private=True)
        keep_with_capture(stream, (lease, self._constants))
        return lease

    def _place_memory(self, call: _Call) -> None:
        lease = call.lease
        if lease.patched:
            return
        for index, root in enumerate(call.bound.plan.roots):
            if root.kind == "constant":
                call.bases[index] = self._constants[root.name].address
            elif root.in_arena and lease.arena is not None:
                call.bases[index] = lease.arena.address + root.offset
        for index, memory in lease.owned.items():
            call.bases[index] = memory.address

    def _place_inputs(self, call: _Call, feeds: Mapping[str, Feed]) -> None:
        lease, bound = call.lease, call.bound
        for name, index in bound.plan.inputs.items():
            feed = feeds[name]
            if not feed.host and index not in lease.owned:
                moved = lease.graph is not None and lease.bases[index] not in (0, feed.address)
                if not moved or not _worth_staging(bound, index, feed):
                    call.bases[index] = feed.address
                    continue
            call.bases[index] = self._own(lease, index, feed.spec.nbytes)
            call.copies_in.append((index, feed))

    def _own(self, lease: Lease, index: int, nbytes: int) -> int:
        if index not in lease.owned:
            lease.owned[index] = self.device.allocate(nbytes)
        return lease.owned[index].address

    def _place_outputs(self, call: _Call, feeds: Mapping[str, Feed], given: Mapping[str, Feed],
                       stream: int) -> None:
        plan = call.bound.plan
        kind, on_gpu = _result_kind(feeds)
        for name, index in plan.outputs.items():
            state = self.graph.aliases.get(name)
            if state is not None:
                feed = feeds[state]
                call.results[name] = feed.owner
            elif name in given:
                feed = _checked_output(name, given[name], plan.graph.types[name], feeds)
                call.results[name] = feed.owner
            else:
                spec = _dense(plan.graph.types[name])
                made = arrays.empty(kind, spec, self.device.index if on_gpu else None, stream)
                feed = arrays.describe(made)
                call.results[name] = made
            if feed.host:
                call.bases[index] = self._own(call.lease, index, feed.spec.nbytes)
                call.copies_out.append((index, feed.address, feed.spec.nbytes))
            elif state is None:
                call.bases[index] = feed.address

    def _execute(self, call: _Call, stream: int) -> dict[str, Any]:
        lease = call.lease
        try:
            for index, feed in call.copies_in:
                self.device.copy(call.bases[index], feed.address, feed.spec.nbytes, stream)
            call.bound.launch(lease, call.bases, stream, self.observer)
            for index, address, nbytes in call.copies_out:
                self.device.copy(address, call.bases[index], nbytes, stream)
            if call.copies_out:
                self.device.synchronize(stream)
        except Ge2Error:
            lease.event, event = 0, lease.event
            if event:  # a failed lease is dropped: its semaphores may not be zero
                driver.api().cuEventDestroy(event)
            raise
        if lease.event:
            call.bound.leases.release(lease, stream)
        return call.results


def _open(backend: str, device: int | Device | None, arch: str) -> Device:
    if device is not None and not isinstance(device, int):
        return device
    if backend == "emulate":
        return EmulatedDevice(arch)
    if backend != "cuda":
        raise Invalid("unknown backend", argument="backend", found=repr(backend),
                      wanted="cuda, emulate or cpu", hint=near_matches(backend,
                                                                       ["cuda", "emulate", "cpu"]))
    return cuda_device(default_index() if device is None else device)


def _upload(device: Device, address: int, dense: np.ndarray[Any, Any]) -> None:
    """Copy a host array to a device and wait; allowed while another stream is capturing."""
    source = dense.__array_interface__["data"][0]
    if device.kind != "cuda":
        device.copy(address, source, dense.nbytes, 0)
        return
    with driver.relaxed_capture():
        stream = driver.stream_create()
        device.copy(address, source, dense.nbytes, stream)
        driver.stream_synchronize(stream)
        driver.check(driver.api().cuStreamDestroy(stream))


def _worth_staging(bound: BoundPlan, index: int, feed: Feed) -> bool:
    return (len(bound.uses[index]) > MANY_NODES and feed.spec.is_dense
            and feed.spec.nbytes <= SMALL_INPUT_BYTES)


def _result_kind(feeds: Mapping[str, Feed]) -> tuple[str, bool]:
    """Return (kind, on the GPU) of results: the GPU feeds' kind where there are any."""
    for feed in feeds.values():
        if not feed.host:
            return feed.kind, True
    kinds = {feed.kind for feed in feeds.values()}
    return ("torch" if "torch" in kinds else "numpy"), False


def _dense(kind: TensorType) -> TensorSpec:
    return TensorSpec.dense(kind.dtype, tuple(kind.shape))  # type: ignore[arg-type]


def _checked_output(name: str, feed: Feed, kind: TensorType, feeds: Mapping[str, Feed]) -> Feed:
    wanted = _dense(kind)
    if feed.spec.dtype != wanted.dtype:
        raise DtypeMismatch(f"output {name!r} has a wrong element type", argument=name,
                            found=feed.spec.dtype, wanted=wanted.dtype)
    if feed.spec.shape != wanted.shape:
        raise ShapeMismatch(f"output {name!r} has a wrong shape", argument=name,
                            found=feed.spec.shape, wanted=wanted.shape)
    if not feed.spec.is_dense:
        raise StrideMismatch(f"output {name!r} is not dense", argument=name,
                             found=feed.spec.strides, wanted=wanted.strides)
    start, end = feed.address, feed.address + wanted.nbytes
    for other, source in feeds.items():
        reach = source.address + source.spec.nbytes
        if not source.host and start < reach and source.address < end:
            raise Invalid(f"output {name!r} overlaps input {other!r}", argument=name,
                          hint="Write into memory of its own")
    return feed
