"""What a plan is made of: roots, steps over them, and the plan itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..evidence.device import DeviceProfile
from ..launch.record import LaunchRecord
from ..problem import Problem
from .ir.nodes import Graph, Node
from .kernels.selector import Choice


@dataclass(frozen=True, slots=True)
class Root:
    """A buffer that views lie in.

    Attributes:
        name: the value that it was made for.
        kind: "input", "constant", "output", "prepared" (made of a constant, once), "arena" or
            "workspace" (the last two in the arena).
        nbytes: exact size of the dense value.
        offset: byte offset in the arena.
    """

    name: str
    kind: str
    nbytes: int
    offset: int = 0

    @property
    def in_arena(self) -> bool:
        """Whether the buffer lies in the plan's arena."""
        return self.kind in ("arena", "workspace")


@dataclass(frozen=True, slots=True)
class BufferRef:
    """An address of the plan: a root and a byte offset into it."""

    root: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel-level operation.

    Attributes:
        node: the graph's node, or the copy that the plan put in.
        problem, choice: what was asked and which variant serves it.
        records: the launches; none for empty outputs.
        buffers: one address per contract slot, None for an absent input, then the prepared roots;
            of a preparation the constant and the root that is made of it.
        workspace: scratch memory, None where not needed.
        semaphores: byte offset into the plan's semaphores.
    """

    node: Node
    problem: Problem
    choice: Choice | None
    records: tuple[LaunchRecord, ...]
    buffers: tuple[BufferRef | None, ...]
    workspace: BufferRef | None = None
    semaphores: int = 0

    @property
    def written(self) -> frozenset[int]:
        """The roots that the launches write to."""
        first, behind = len(self.problem.inputs), len(self.problem.tensors)
        if any(record.prepares >= 0 for record in self.records):
            first, behind = 1, 2
        refs = (*self.buffers[first:behind], self.workspace)
        return frozenset(ref.root for ref in refs if ref is not None)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about running a concrete graph that does not depend on addresses.

    Attributes:
        graph: the concrete graph.
        device: what it was planned for.
        steps: in launch order.
        preparations: steps of one launch that make prepared roots of constants. They run once,
            not in every call.
        roots: buffers that BufferRefs count.
        inputs, outputs: value name -> root.
        arena_bytes: size of the arena. live_bound: the smallest possible size.
        semaphore_bytes: zeroed memory that persists from call to call.
    """

    graph: Graph
    device: DeviceProfile
    steps: tuple[Step, ...]
    roots: tuple[Root, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    arena_bytes: int
    live_bound: int
    semaphore_bytes: int
    preparations: tuple[Step, ...] = ()

    @property
    def records(self) -> list[LaunchRecord]:
        """All launches of a call in order."""
        return [record for step in self.steps for record in step.records]

    @property
    def prepared_bytes(self) -> int:
        """Bytes of what is made of constants, beside the constants themselves."""
        return sum(root.nbytes for root in self.roots if root.kind == "prepared")

    def explain(self) -> list[dict[str, Any]]:
        """Return one row per step: node, operator, chosen variant, candidates with reasons."""
        return [_explain_step(step, self.roots) for step in self.steps]


def launch_offsets(step: Step) -> tuple[int, ...]:
    """Return the byte offsets of a step's buffers in their roots, then of its semaphores."""
    return (*(ref.offset if ref else 0 for ref in step.buffers), step.semaphores)


def _explain_step(step: Step, roots: Sequence[Root]) -> dict[str, Any]:
    choice = step.choice
    forms = step.buffers[len(step.problem.tensors):]
    return {
        "node": step.node.name,
        "op": step.node.op,
        "problem": step.problem,
        "kernel": choice.variant.id if choice else None,
        "score": choice.score if choice else None,
        "numerics": choice.variant.numerics if choice else None,
        "basis": choice.basis if choice else None,
        "launches": len(step.records),
        "workspace": max((r.workspace for r in step.records), default=0),
        "prepared": sum(roots[ref.root].nbytes for ref in forms if ref is not None),
        "candidates": list(choice.reports) if choice else [],
    }
