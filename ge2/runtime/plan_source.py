"""Which plan serves a call: one that a class of sizes shares, or one of its own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from ..compiler.class_plans import ClassPlans
from ..compiler.concrete import SizeLimits, SymbolBinder, concretize
from ..compiler.finish import finish_graph
from ..compiler.ir.nodes import Graph
from ..compiler.kernels import registry
from ..compiler.kernels.selector import Chooser
from ..compiler.memory_budget import plan_within
from ..compiler.plan import Plan, make_plan
from ..compiler.sized_plan import SizedPlan, plan_at
from ..problem import TensorSpec
from .bound import BoundPlan, bind_plan
from .device import Device
from .sizing import Sizing, exact_sizing, sizing_at

PLANS_KEPT = 64

Feeds = Mapping[str, TensorSpec]
Hosts = tuple[bool, ...]


class PlanSource:
    """The plans of one graph on one device.

    A plan is shared by all sizes of a class. A size has one of its own where its arrays are
    strided, where there is evidence for one of its problems, with pinned kernels or a memory
    budget, and where the graph's operators have no plan for a class.

    Args:
        graph: may have named dimensions.
        device: where plans are bound.
        choose: returns the kernel variant of each problem of a size.
        memory_budget: bytes that the arena may take.
        on_plan: called with the graph of each plan of one size.
        on_drop: called when an old plan is dropped.

    Attributes:
        exact: the plans of one size. shared: those of classes.
    """

    def __init__(self, graph: Graph, device: Device, choose: Chooser, memory_budget: int | None,
                 on_plan: Callable[[Graph], None], on_drop: Callable[[], None]) -> None:
        self.graph, self.device, self.choose = graph, device, choose
        self.exact: OrderedDict[Any, BoundPlan] = OrderedDict()
        self.shared: dict[tuple[SizedPlan, Hosts], BoundPlan] = {}
        self._budget, self._on_plan, self._on_drop = memory_budget, on_plan, on_drop
        self._lock = threading.Lock()
        self._symbols = SymbolBinder(graph)
        self._limits = SizeLimits(graph)
        self._classes: ClassPlans | None = None
        self._generation = -1

    def find(self, feeds: Feeds, hosts: Hosts) -> tuple[BoundPlan, Sizing]:
        """Return the plan for these arrays and its numbers at their size.

        Args:
            feeds: specs of the inputs, and of given outputs that are less aligned than usual.
            hosts: which arrays are on the host; those have leases of their own.
        """
        bound = key = None
        if self.exact:  # hashing the key takes a while
            key = _exact_key(feeds, hosts)
            with self._lock:
                bound = self.exact.get(key)
                if bound is not None:
                    self.exact.move_to_end(key)
        if bound is None:
            values = self._values(feeds)
            self._limits.check(values)
            sized = self._class_plan(values, feeds)
            plan = None
            if sized is not None:
                sizing = sizing_at(sized, values)
                plan = self._plan_by_evidence(sized, sizing, feeds)
                if plan is None:
                    return self._shared(sized, hosts), sizing
            bound = self._keep(key or _exact_key(feeds, hosts),
                               bind_plan(plan or self._plan(feeds), self.device))
        return bound, exact_sizing(bound.plan)

    def plan(self, feeds: Feeds, hosts: Hosts) -> Plan:
        """Return the plan for these arrays with ints for all sizes."""
        bound, _ = self.find(feeds, hosts)
        return bound.plan if bound.sized is None else plan_at(bound.sized, self._values(feeds))

    def _values(self, feeds: Feeds) -> dict[str, int]:
        return self._symbols.bind({name: feeds[name].shape for name in self.graph.inputs})

    def _class_plan(self, values: Mapping[str, int], feeds: Feeds) -> SizedPlan | None:
        pinned = getattr(self.choose, "mode", "pinned") == "pinned"
        if not values or pinned or self._budget is not None:
            return None  # each size has its own choices
        with self._lock:
            if self._classes is None or self._generation != registry.generation():
                self._classes = ClassPlans(self.graph, self.device.profile)
                self._generation = registry.generation()
            return self._classes.find(values, feeds)

    def _shared(self, sized: SizedPlan, hosts: Hosts) -> BoundPlan:
        with self._lock:
            key = sized, hosts
            if key not in self.shared:
                self.shared[key] = bind_plan(sized.plan, self.device, sized)
            return self.shared[key]

    def _plan_by_evidence(self, sized: SizedPlan, sizing: Sizing, feeds: Feeds) -> Plan | None:
        """Return the plan of one size where measurements of just its problems decide on kernels."""
        known: set[tuple[str, tuple[int, ...]]] = getattr(self.choose, "outputs", set())
        if not known or not any((op_type, shape(sizing.numbers)) in known
                                for op_type, shape in sized.steps):
            return None
        plan = self._plan(feeds)
        used = any(step.choice is not None and step.choice.basis.kind != "rules"
                   for step in plan.steps)
        return plan if used else None

    def _plan(self, feeds: Feeds) -> Plan:
        """Return the plan of just this size."""
        graph = finish_graph(concretize(self.graph, self._values(feeds)))
        profile = self.device.profile
        if self._budget is None:
            plan = make_plan(graph, profile, feeds=feeds, choose=self.choose)
        else:
            plan = plan_within(graph, profile, self._budget, feeds=feeds,
                               choose=self.choose).checked()
        self._on_plan(plan.graph)
        return plan

    def _keep(self, key: Any, bound: BoundPlan) -> BoundPlan:
        with self._lock:
            self.exact[key] = bound
            if len(self.exact) > PLANS_KEPT:
                self.exact.popitem(last=False)
                self._on_drop()
        return bound


def _exact_key(feeds: Feeds, hosts: Hosts) -> tuple[object, ...]:
    return tuple(feeds.items()), hosts, registry.generation()
