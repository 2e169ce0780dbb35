"""Executables: a graph on a backend, run with the caller's arrays.

Every launch - plain, in a graph, captured or emulated - takes its addresses from
_prepare_buffers() and its records from the launch table.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler.concrete import bind_symbols
from ..compiler.ir.nodes import Graph, TensorType
from ..compiler.kernels import registry
from ..compiler.kernels.metadata import Variant
from ..compiler.kernels.selector import Chooser
from ..compiler.plan import Plan, problem_plan
from ..errors import Invalid, near_matches
from ..problem import Problem, TensorSpec
from . import arrays, driver
from .arrays import Seen, look
from .bound import BoundPlan, Observer, bind_plan
from .device import (
    Device,
    EmulatedDevice,
    cuda_device,
    default_backend,
    default_index,
)
from .lease import Lease, make_lease
from .memory import keep_with_capture
from .plan_source import PlanSource
from .route import Route, check_feeds, input_specs, make_route, output_specs
from .sizing import Sizing, exact_sizing
from .tuned import default_chooser
from .weights import Weights

Shape = tuple[int, ...] | TensorType

PLANS_KEPT = 64
ROUTES_KEPT = 1024


@dataclass(slots=True)
class _Call:
    """One call after _prepare_buffers.

    Attributes:
        route: how it runs.
        lease: what it runs in.
        bases: address of every root.
        copies_in: (root, address, bytes) to copy from before the launches.
        copies_out: (root, address, bytes) to copy to after them.
        results: the arrays to return.
    """

    route: Route
    lease: Lease
    bases: list[int]
    copies_in: list[tuple[int, int, int]]
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
        memory_budget: bytes that the arena may take; cheap intermediates are computed again
            instead of kept, until it does.
        choose: returns the kernel variant of each problem; default: by evidence, as GE2_TUNE says.

    Raises:
        EnvironmentUnusable: the backend does not work on this machine.
    """

    def __init__(self, graph: Graph, backend: str | None = None,
                 device: int | Device | None = None, arch: str = "sm_90a",
                 choose: Chooser | None = None, memory_budget: int | None = None) -> None:
        self.graph = graph
        self.memory_budget = memory_budget
        self.backend = backend or default_backend()
        self._lock = threading.Lock()
        self._routes: dict[Any, Route] = {}
        self._own_stream: int | None = None
        self._cpu: Any = None
        self.bound: BoundPlan | None = None
        self.observer: Observer | None = None
        if self.backend == "cpu":
            from .cpu import CpuProgram

            self._cpu = CpuProgram(graph)
            return
        self.device: Device = _open(self.backend, device, arch)
        self.choose: Chooser = choose or default_chooser()
        self.weights = Weights(graph, self.device)
        self.plans = PlanSource(graph, self.device, self.choose, memory_budget,
                                self.weights.upload_late, self._routes.clear)

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
        choose = default_chooser()
        plan = problem_plan(problem, chosen.profile, variant, choose)
        made = cls(plan.graph, chosen.kind, chosen, choose=choose)
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
        if len(feeds) != len(self.graph.inputs):
            check_feeds(self.graph, feeds)
        try:
            seen = [look(feeds[name]) for name in self.graph.inputs]
        except KeyError:
            check_feeds(self.graph, feeds)
            raise
        given = [look(array) for array in outputs.values()] if outputs else []
        route = self._route(seen, given, tuple(outputs) if outputs else ())
        handle = self._stream(route, stream)
        entered = driver.enter_device(self.device.index) if self.device.kind == "cuda" else None
        try:
            return self._execute(self._prepare_buffers(route, seen, given, handle), handle)
        finally:
            driver.leave_device(entered)

    def prepare(self, shapes: Mapping[str, Shape] | None = None) -> Plan:
        """Plan, compile, load and allocate for these input shapes, so that the first run is fast.

        Dense, aligned arrays on the GPU are assumed; calls with others share what is compiled.

        Args:
            shapes: shape or type per input; may be left out where no dimension is symbolic.
        """
        feeds, hosts = self._dense_feeds(shapes), self._on_gpu()
        bound, sizing = self._find(feeds, hosts)
        if self.device.kind == "cuda":
            with self.device.active():
                self.weights.upload()
                bound.prepare(self.weights)
                bound.leases.warm(lambda lease: bound.fit(lease, sizing))
        return self.plan(shapes)

    def plan(self, shapes: Mapping[str, Shape] | None = None) -> Plan:
        """Return the plan for these input shapes without compiling anything."""
        feeds = self._dense_feeds(shapes)
        if self.bound is not None:
            return self.bound.plan
        return self.plans.plan(feeds, self._on_gpu())

    def _find(self, feeds: Mapping[str, TensorSpec], hosts: tuple[bool, ...]
              ) -> tuple[BoundPlan, Sizing]:
        if self.bound is not None:
            return self.bound, exact_sizing(self.bound.plan)
        return self.plans.find(feeds, hosts)

    def _on_gpu(self) -> tuple[bool, ...]:
        """Return the host flags of a call with all arrays on the GPU."""
        return (False,) * len(self.graph.inputs)

    # -- routes and plans ---------------------------------------------------------------------

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

    def _route(self, seen: Sequence[Seen], given: Sequence[Seen], names: tuple[str, ...]) -> Route:
        key = (*(s.signature for s in seen), names, *(s.signature for s in given),
               registry.generation())
        route = self._routes.get(key)
        if route is None:
            signatures = {n: s.signature for n, s in zip(self.graph.inputs, seen, strict=True)}
            wanted = {n: s.signature for n, s in zip(names, given, strict=True)}
            specs = input_specs(self.graph, self.device, signatures)
            specs |= {n: spec for n, spec in output_specs(self.graph, wanted).items()
                      if spec.align < arrays.MAX_ALIGN}
            hosts = tuple(s.host for s in (*signatures.values(), *wanted.values()))
            bound, sizing = self._find(specs, hosts)
            route = make_route(bound, sizing, self.graph, signatures, wanted)
            if len(self._routes) >= ROUTES_KEPT:
                self._routes.clear()
            self._routes[key] = route
        return route

    def _stream(self, route: Route, stream: Any) -> int:
        if stream is not None:
            return arrays.raw_stream(stream)
        if route.on_gpu:
            return arrays.current_stream(route.kind, self.device.index)
        if self.device.kind != "cuda":
            return 0
        if self._own_stream is None:
            with self.device.active():
                self._own_stream = driver.stream_create()
        return self._own_stream

    # -- one call -----------------------------------------------------------------------------

    def _prepare_buffers(self, route: Route, seen: Sequence[Seen], given: Sequence[Seen],
                         stream: int) -> _Call:
        """Return a call with a lease and the address of every buffer.

        Order and meaning of a launch's buffers are the contract's; here the plan's roots get
        their addresses: weights, arena, the caller's arrays, copies of host arrays.
        """
        self.weights.upload()
        route.bound.prepare(self.weights)
        capturing = self.device.is_capturing(stream)
        if capturing and route.host:
            raise Invalid("host arrays cannot be part of a captured graph", argument="feeds",
                          hint="Pass GPU arrays while the stream is capturing")
        if given:
            _check_overlap(route, seen, given)
        lease = self._lease(route.bound, stream, capturing)
        call = _Call(route, lease, [], [], [], {})
        try:
            route.bound.fit(lease, route.sizing)
            call.bases = list(lease.bases)
            if not lease.patched:
                self._place_memory(call)
            self._place_inputs(call, seen)
            self._place_outputs(call, seen, given, stream)
        except BaseException:
            if lease.event is not None:
                route.bound.leases.release(lease, stream)
            raise
        return call

    def _lease(self, bound: BoundPlan, stream: int, capturing: bool) -> Lease:
        if self.device.kind != "cuda":
            return make_lease(bound.plan, self.device, private=True)
        if not capturing:
            return bound.leases.acquire(stream)
        with driver.relaxed_capture():
            lease = make_lease(bound.plan, self.device, private=True)
        keep_with_capture(stream, (lease, self.weights.memory, bound.prepared))
        return lease

    def _place_memory(self, call: _Call) -> None:
        lease = call.lease
        for index, root in enumerate(call.route.bound.plan.roots):
            if root.kind == "constant":
                call.bases[index] = self.weights.address(root.name)
            elif root.kind == "prepared":
                call.bases[index] = call.route.bound.prepared[index].memory.address
            elif root.in_arena and lease.arena is not None:
                call.bases[index] = lease.arena.address + call.route.sizing.offsets[index]
        for index, memory in lease.owned.items():
            call.bases[index] = memory.address

    def _place_inputs(self, call: _Call, seen: Sequence[Seen]) -> None:
        lease, bases = call.lease, call.bases
        for (root, nbytes, host, stageable), (_, address, _) in zip(
                call.route.inputs, seen, strict=True):
            if not host and root not in lease.owned:
                moved = (stageable and lease.patched and lease.graph is not None
                         and bases[root] != address)
                if not moved:
                    bases[root] = address
                    continue
            bases[root] = self._own(lease, root, nbytes)
            call.copies_in.append((root, address, nbytes))

    def _own(self, lease: Lease, root: int, nbytes: int) -> int:
        if root not in lease.owned or lease.owned[root].nbytes < nbytes:
            lease.owned[root] = self.device.allocate(nbytes)
        return lease.owned[root].address

    def _place_outputs(self, call: _Call, seen: Sequence[Seen], given: Sequence[Seen],
                       stream: int) -> None:
        for name, root, nbytes, host, make, position, state in call.route.outputs:
            if state >= 0:
                source = seen[state]
            elif position >= 0:
                source = given[position]
            else:
                source = look(make(stream))
            call.results[name] = source.owner
            if host:
                call.bases[root] = self._own(call.lease, root, nbytes)
                call.copies_out.append((root, source.address, nbytes))
            elif state < 0:
                call.bases[root] = source.address

    def _execute(self, call: _Call, stream: int) -> dict[str, Any]:
        lease, bound = call.lease, call.route.bound
        try:
            for root, address, nbytes in call.copies_in:
                self.device.copy(call.bases[root], address, nbytes, stream)
            bound.launch(lease, call.bases, stream, self.observer)
            for root, address, nbytes in call.copies_out:
                self.device.copy(address, call.bases[root], nbytes, stream)
            if call.copies_out:
                self.device.synchronize(stream)
        except BaseException:
            lease.event = None  # it does not go back to the pool: semaphores may not be zero
            raise
        if lease.event is not None:
            bound.leases.release(lease, stream)
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


def _check_overlap(route: Route, seen: Sequence[Seen], given: Sequence[Seen]) -> None:
    """Refuse to write results over inputs that later launches read.

    Raises:
        Invalid: names the output.
    """
    for output in route.outputs:
        if output.given < 0 or output.host:
            continue
        start = given[output.given].address
        for source, array in zip(route.inputs, seen, strict=True):
            if not source.host and (array.address < start + output.nbytes
                                    and start < array.address + source.nbytes):
                raise Invalid(f"output {output.name!r} overlaps an input", argument=output.name,
                              hint="Write into memory of its own")
