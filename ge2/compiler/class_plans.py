"""The sized plans of one graph, by class of sizes and alignment of its arrays."""

from __future__ import annotations

from collections.abc import Mapping

from .. import log
from ..evidence.device import DeviceProfile
from ..problem import TensorSpec
from .ir.nodes import Graph
from .ir.size import NotSymbolic
from .size_class import SizeClass, classify
from .sized_plan import SizedPlan, sized_plan

_PLANS_PER_CLASS = 8

Key = tuple[SizeClass, tuple[tuple[str, int], ...]]


class ClassPlans:
    """Finds the plan that a size shares with others, and makes it at the first of them.

    Which plan serves a size does not depend on the sizes that came before.
    """

    def __init__(self, graph: Graph, device: DeviceProfile) -> None:
        self._graph, self._device = graph, device
        self._plans: dict[Key, list[SizedPlan]] = {}
        self._failed: set[Key] = set()

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
        if key in self._failed:
            return None
        plans = self._plans.setdefault(key, [])
        try:
            if not plans:
                plans.append(sized_plan(self._graph, self._device, known, feeds))
            found = _holding(plans, values)
            if found is None and len(plans) < _PLANS_PER_CLASS:
                found = sized_plan(self._graph, self._device, known, feeds, values)
                plans.append(found)
            return found
        except NotSymbolic as reason:
            log.topic("select").info("sizes %s are planned one by one: %s", dict(values), reason)
            if not plans:
                self._failed.add(key)
            return None


def _holding(plans: list[SizedPlan], values: Mapping[str, int]) -> SizedPlan | None:
    return next((plan for plan in plans if plan.holds(*values.values())), None)
