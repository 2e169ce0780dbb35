"""Plans within a memory budget: what recomputation saves, and what it costs in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..contract import DTYPES
from ..errors import OutOfMemory
from ..evidence.device import DeviceProfile
from ..problem import TensorSpec
from . import opdefs
from .ir import properties
from .ir.nodes import Graph, Node, present
from .ir.verify import verify
from .passes.rematerialize import Recomputed, elements, rematerialize
from .plan import Plan, make_plan

LAUNCH_US = 2.0
_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class BudgetedPlan:
    """A plan and how it came within its budget.

    Attributes:
        plan: of the rewritten graph.
        budget: bytes that the arena may take.
        bytes_before: arena without recomputation.
        recomputed: what is computed again, in the order of the decisions.
    """

    plan: Plan
    budget: int
    bytes_before: int
    recomputed: tuple[Recomputed, ...]

    @property
    def fits(self) -> bool:
        """Whether the arena is within the budget."""
        return self.plan.arena_bytes <= self.budget

    def checked(self) -> Plan:
        """Return the plan.

        Raises:
            OutOfMemory: no plan was found within the budget.
        """
        if not self.fits:
            raise OutOfMemory(
                "intermediates do not fit the memory budget", argument="memory_budget",
                found=f"{self.plan.arena_bytes} bytes", wanted=f"at most {self.budget}",
                hint=f"Without recomputation they take {self.bytes_before} bytes")
        return self.plan

    @property
    def saved_bytes(self) -> int:
        """Bytes of the arena that recomputation saves."""
        return self.bytes_before - self.plan.arena_bytes

    @property
    def added_us(self) -> float:
        """Estimated microseconds that recomputation adds to a run."""
        return sum(step.microseconds for step in self.recomputed)


def plan_within(graph: Graph, device: DeviceProfile, budget: int, *,
                feeds: Mapping[str, TensorSpec] | None = None, **options: Any) -> BudgetedPlan:
    """Return the plan of a concrete graph within budget, or the smallest that was found.

    Args:
        graph: after all other passes.
        device: what to plan for.
        budget: bytes of the arena.
        feeds, options: as for make_plan.
    """
    best = make_plan(graph, device, feeds=feeds, **options)
    before = best.arena_bytes
    steps: tuple[Recomputed, ...] = ()
    target = budget
    for _ in range(_ROUNDS):
        if best.arena_bytes <= budget:
            break
        made, done = rematerialize(graph, target, lambda g, n: node_us(g, n, device))
        if not done:
            break
        verify(made, opdefs.infer)
        plan = make_plan(made, device, feeds=feeds, **options)
        if plan.arena_bytes < best.arena_bytes:
            best, steps = plan, tuple(done)
        # Workspaces and gaps between buffers are in the arena, too: aim lower by what is too much.
        target -= max(plan.arena_bytes - budget, 1)
        if target <= 0:
            break
    return BudgetedPlan(best, budget, before, steps)


def node_us(graph: Graph, node: Node, device: DeviceProfile) -> float:
    """Return the estimated microseconds of a node: its traffic or its products, whichever is more.

    Views take no time.
    """
    if properties.licensed(node.op, "view"):
        return 0.0
    values = [*present(node.inputs), *present(node.outputs)]
    moved = sum(elements(graph, v) * DTYPES[graph.types[v].dtype].itemsize for v in values)
    products = elements(graph, node.outputs[0]) * _terms(graph, node)
    half = graph.types[node.outputs[0]].dtype in ("f16", "bf16")
    tflops = device.tensor_tflops / 2 if half else device.fp32_tflops
    return LAUNCH_US + max(moved / device.copy_gbps / 1e3, 2 * products / tflops / 1e6)


def _terms(graph: Graph, node: Node) -> int:
    """Return how many products one output sums up."""
    family = opdefs.get(node.op).family
    if family == "gemm" and len(node.inputs) >= 2:
        a = graph.types[node.inputs[0]].shape
        return int(a[-2 if node.attrs.get("trans_a") else -1])  # type: ignore[arg-type]
    if family == "conv":
        w = node.inputs[1]
        return elements(graph, w) // max(int(graph.types[w].shape[0]), 1)  # type: ignore[arg-type]
    return 1
