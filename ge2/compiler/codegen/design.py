"""One realization for a problem on a device: each decision, what it stands on, what else there was.

The decisions are read off the selector's own reports, so that they cannot differ from what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...contract import DTYPES
from ...problem import Problem
from ..kernels import registry, selector
from ..kernels.elementwise_plans import tiled_plan, vector_plan
from ..kernels.metadata import Variant
from ..kernels.row_plans import row_access, row_layout
from ..kernels.selector import CandidateReport, Choice, Chooser

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile


@dataclass(frozen=True, slots=True)
class Alternative:
    """What a decision did not take: its score, or None and the reason why it cannot be."""

    name: str
    score: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """One question that the generator answered.

    Attributes:
        question: "realization", or the name of a parameter.
        answer: what it took.
        stands_on: the reason: rules with their points, evidence, or that nothing else is possible.
        alternatives: what else there was, best first.
    """

    question: str
    answer: str
    stands_on: str
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Design:
    """What will run, and why."""

    problem: Problem
    choice: Choice
    walk: str
    decisions: tuple[Decision, ...]


def design(problem: Problem, device: DeviceProfile, choose: Chooser = selector.select) -> Design:
    """Choose a realization and explain it.

    Args:
        problem: what to compute.
        device: where; only its profile is read, no GPU is needed.
        choose: the selector's rules, or a chooser that prefers evidence.

    Raises:
        NoKernelError: nothing serves the problem.
    """
    choice = choose(problem, device)
    own = choice.variant
    reports = {r.variant_id: r for r in choice.reports}
    decisions = [_realization(choice, reports)]
    siblings = [v for v in own.kernel.variants if v.id != own.id]
    for name, value in own.params:
        others = [v for v in siblings if _differs_only_in(v, own, name)]
        if others:
            decisions.append(_parameter(name, value, others, choice, reports))
    return Design(problem, choice, walk_text(problem), tuple(decisions))


def _realization(choice: Choice, reports: dict[str, CandidateReport]) -> Decision:
    chosen = choice.variant.kernel.name
    best: dict[str, CandidateReport] = {}
    for report in choice.reports:  # best first
        best.setdefault(registry.variant(report.variant_id).kernel.name, report)
    alternatives = tuple(
        Alternative(name, report.score, "; ".join(report.reasons))
        for name, report in best.items() if name != chosen)
    answer = f"{chosen}: {choice.variant.kernel.summary}"
    return Decision("realization", answer, _basis(choice, reports), alternatives)


def _basis(choice: Choice, reports: dict[str, CandidateReport]) -> str:
    if choice.basis.kind != "rules":
        return f"{choice.basis.kind}: {choice.basis.note}"
    parts = reports[choice.variant.id].parts
    listed = ", ".join(f"{name} {points:+.3g}" for name, points in parts.items())
    note = f"; {choice.basis.note}" if choice.basis.note else ""
    return f"rules: {listed}{note}"


def _parameter(name: str, value: int | str, others: Sequence[Variant], choice: Choice,
               reports: dict[str, CandidateReport]) -> Decision:
    own = choice.score
    alternatives = []
    for variant in others:
        report = reports[variant.id]
        alternatives.append(Alternative(str(variant.param(name)), report.score,
                                        "; ".join(report.reasons)))
    alternatives.sort(key=lambda a: (a.score is None, -(a.score or 0.0)))
    scores = [a.score for a in alternatives if a.score is not None]
    if not scores:
        stands_on = "nothing else is possible"
    elif choice.basis.kind != "rules":
        stands_on = choice.basis.kind
    elif own > max(scores):
        stands_on = f"rules: {own - max(scores):.3g} points ahead"
    else:
        stands_on = "rules: equal, the first in the kernel's list"
    return Decision(name, str(value), stands_on, tuple(alternatives))


def _differs_only_in(variant: Variant, other: Variant, name: str) -> bool:
    return all((key == name) != (value == other.param(key)) for key, value in variant.params)


def walk_text(problem: Problem) -> str:
    """Return a line about how memory will be walked."""
    if problem.op_type == "ROW":
        layout, access = row_layout(problem), row_access(problem)
        size = DTYPES[layout.tensors[0].dtype].itemsize
        where = "rows start anywhere" if access.shifted else "rows start on access boundaries"
        return (f"{layout.rows} rows of {layout.n}, {access.vector} elements "
                f"({access.vector * size} bytes) per access, {where}")
    if problem.op_type == "ELEMENTWISE":
        walk, vector = vector_plan(problem)
        if tiled_plan(problem) is not None:
            return f"axes {walk.shape} in tiles: operands lie along two different axes"
        return f"axes {walk.shape}, {vector or 1} elements per access"
    return f"{problem.op_type} as its kernel walks it"
