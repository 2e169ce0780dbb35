"""The sized plans of one graph, by class of sizes and alignment of its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import log
from ..evidence.device import DeviceProfile
from ..problem import TensorSpec
from .ir.nodes import Graph
from .ir.size import NotSymbolic
from .size_class import SizeClass, classify
from .sized_plan import SizedPlan, sized_plan

_PLANS_PER_CLASS = 8
_UNKNOWN: list[SizedPlan] = []  # never changed

Key = tuple[SizeClass, tuple[tuple[str, int], ...]]


class ClassPlans:
    """Finds the plan that a size shares with others, and makes it at the first of them.

    Which plan serves a size does not depend on the sizes that came before.
    """

    def __init__(self, graph: Graph, device: DeviceProfile) -> None:
        self._graph, self._device = graph, device
        self._plans: dict[Key, list[SizedPlan] | None] = {}  # None: the class has no plan

    def find(self, values: Mapping[str, int], feeds: Mapping[str, TensorSpec]) -> SizedPlan | None:
        """Return the plan of a binding; None where the size needs a plan of its own.

        Args:
            values: of every named dimension.
            feeds: inputs, and given outputs, as the caller has them.
        """
        known = classify(values)
        if known is None or not values or not all(spec.is_dense for spec in feeds.values()):
            return None
        key = known, tuple((name, spec.align) for name, spec in feeds.items())
        plans = self._plans.get(key, _UNKNOWN)
        if plans is None:
            return None
        found = _holding(plans, values)
        if found is None and len(plans) < _PLANS_PER_CLASS:
            plans = self._plans[key] = list(plans)
            found = self._plan(plans, known, feeds, values)
            if (found is None and not plans
                    and self._plan(plans, known, feeds, known.example()) is None):
                self._plans[key] = None
        return found

    def _plan(self, plans: list[SizedPlan], known: SizeClass, feeds: Mapping[str, TensorSpec],
              values: Mapping[str, int]) -> SizedPlan | None:
        """Return a new plan of a class that holds for a member; None where there is none."""
        try:
            made = sized_plan(self._graph, self._device, known, feeds, values)
        except NotSymbolic as reason:
            log.topic("select").info("sizes %s are planned one by one: %s", dict(values), reason)
            return None
        plans.append(made)
        return made


def _holding(plans: Sequence[SizedPlan], values: Mapping[str, int]) -> SizedPlan | None:
    for plan in plans:
        if plan.holds(*values.values()):
            return plan
    return None
