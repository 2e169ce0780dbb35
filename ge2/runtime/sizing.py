"""The numbers of a plan at one binding of its named dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..compiler.plan import Plan
from ..compiler.sized_plan import SizedPlan

Ints = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Sizing:
    """What depends on the size of a call but on no address.

    Attributes:
        numbers: all numbers of a sized plan; empty for a plan of one size.
        nbytes, offsets: of each root; offsets count within the arena.
        arena_bytes, semaphore_bytes: memory that a lease needs.
        shapes: of the outputs.
    """

    numbers: Ints
    nbytes: Ints
    offsets: Ints
    arena_bytes: int
    semaphore_bytes: int
    shapes: Mapping[str, Ints]


def exact_sizing(plan: Plan) -> Sizing:
    """Return the numbers of a plan of one size."""
    shapes = {name: plan.graph.types[name].shape for name in plan.outputs}
    return Sizing((), tuple(r.nbytes for r in plan.roots), tuple(r.offset for r in plan.roots),
                  plan.arena_bytes, plan.semaphore_bytes, shapes)  # type: ignore[arg-type]


def sizing_at(sized: SizedPlan, values: Mapping[str, int]) -> Sizing:
    """Return the numbers of a sized plan at a binding that it holds for."""
    numbers = sized.numbers(*values.values())
    arena, semaphores = sized.memory(numbers)
    return Sizing(numbers, sized.nbytes(numbers), sized.offsets(numbers), arena, semaphores,
                  {name: get(numbers) for name, get in sized.shapes.items()})
