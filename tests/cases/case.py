"""What a test runs: a problem with the storage of its operands."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ge2.problem import Problem

from .layouts import Operand

SIZES = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 127, 129)
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Case:
    """A problem with the storage of its operands.

    Attributes:
        name: shown by pytest.
        problem: its specs are the operands'.
        operands: inputs (None where absent), then outputs.
        index_range: for integer index inputs, slot -> (low, high).
        given: for integer inputs, slot -> all elements.
        terms: how many products or elements one output sums up; scales the tolerance.
        positive: whether float inputs are drawn from [0.5, 1.5], so that sums stay off zero.
        slack: error of the problem's conditioning, as a share of the largest output.
    """

    name: str
    problem: Problem
    operands: tuple[Operand | None, ...]
    index_range: tuple[tuple[int, int, int], ...] = ()
    given: tuple[tuple[int, tuple[int, ...]], ...] = ()
    terms: int = 1
    positive: bool = False
    slack: float = 0.0


def case(name: str, op_type: str, inputs: Sequence[Operand | None], outputs: Sequence[Operand],
         attrs: Mapping[str, Hashable], **rest: Any) -> Case:
    """Return a case of these operands; rest: the case's own attributes."""
    problem = Problem(op_type, tuple(o.spec if o else None for o in inputs),
                      tuple(o.spec for o in outputs), tuple(sorted(attrs.items())))
    return Case(name, problem, (*inputs, *outputs), **rest)


def label(row: Mapping[str, Any]) -> str:
    """Return the name of a row of factors."""
    return "-".join("x".join(map(str, v)) if isinstance(v, tuple) else str(v)
                    for v in row.values())
