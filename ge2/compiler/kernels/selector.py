"""Which kernel variant serves a problem: guards, then capability, named rules and a cost model.

Every candidate gets a report, also the refused ones: the reasons, or the parts of its score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ... import log
from ...errors import NoKernelError
from ...problem import Problem
from . import registry
from .facts import Facts, problem_dims
from .guards import kernel_reasons, variant_reasons
from .metadata import KernelInfo, Variant
from .score_rules import KERNEL_RULES, VARIANT_RULES

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

__all__ = ["RULES", "Basis", "CandidateReport", "Choice", "Chooser", "CostModel", "judged",
           "no_kernel", "problem_dims", "rank", "select"]

CostModel = Callable[[Problem, Variant, "DeviceProfile"], float | None]
"""Adds to a variant's score what measurements or a model say of it; None abstains."""

Chooser = Callable[[Problem, "DeviceProfile"], "Choice"]
"""Chooses a variant, as select does."""

_CACHE_LIMIT = 65536


@dataclass(frozen=True, slots=True)
class CandidateReport:
    """What selection found of one variant.

    Attributes:
        variant_id: as Variant.id.
        score: the sum of parts; None where a guard refused it.
        reasons: why it was refused.
        parts: "capability", one entry for each rule that has an opinion, "cost".
    """

    variant_id: str
    score: float | None
    reasons: tuple[str, ...] = ()
    parts: dict[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a choice rests on besides the rules.

    Attributes:
        kind: "rules", "tuned" (measured on this GPU, driver and kernel), "hint" (measured, but not
            all three are the same) or "pinned" (from a lock file).
        note: for a person: what was used or passed over, and why.
        date: of the measurement, seconds since 1970; 0 where there is none.
        margin: over what the rules would choose, relative; noise: of that.
    """

    kind: str = "rules"
    note: str = ""
    date: float = 0.0
    margin: float = 0.0
    noise: float = 0.0


RULES = Basis()


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected variant, its score, the reports of all candidates, best first, and its basis."""

    variant: Variant
    score: float
    reports: tuple[CandidateReport, ...]
    basis: Basis = RULES


_choices: dict[tuple[object, ...], Choice] = {}


def select(problem: Problem, device: DeviceProfile, *,
           kernels: Iterable[KernelInfo] | None = None, cost: CostModel | None = None) -> Choice:
    """Return the best variant for a problem on a device.

    Args:
        problem: what to compute.
        device: where; only its profile is read.
        kernels: candidates; default: all registered for the problem's op_type.
        cost: a cost model; default: none.

    Raises:
        NoKernelError: no candidate passes its guards; lists each with its reasons.
    """
    candidates = None if kernels is None else tuple(kernels)
    key = (problem, device, candidates, cost, registry.generation())
    choice = _choices.get(key)
    if choice is None:
        choice = _select(problem, device, candidates, cost)
        if len(_choices) >= _CACHE_LIMIT:
            _choices.clear()
        _choices[key] = choice
    return choice


def _select(problem: Problem, device: DeviceProfile, kernels: tuple[KernelInfo, ...] | None,
            cost: CostModel | None) -> Choice:
    ranked = judged(problem, device, kernels, cost)
    reports = tuple(report for _, report in ranked)
    if not ranked or reports[0].score is None:
        raise no_kernel(problem, device, reports)
    log.topic("select").info("%s on %s: %s, score %.1f (%s)", problem.op_type, device.arch,
                             reports[0].variant_id, reports[0].score, reports[0].parts)
    return Choice(ranked[0][0], reports[0].score, reports)


def rank(problem: Problem, device: DeviceProfile, *, kernels: Iterable[KernelInfo] | None = None,
         cost: CostModel | None = None) -> tuple[CandidateReport, ...]:
    """Return the reports of all candidates, best first and refused ones last."""
    candidates = None if kernels is None else tuple(kernels)
    return tuple(report for _, report in judged(problem, device, candidates, cost))


def judged(problem: Problem, device: DeviceProfile, kernels: tuple[KernelInfo, ...] | None = None,
           cost: CostModel | None = None) -> list[tuple[Variant, CandidateReport]]:
    """Return every candidate with its report, best first and refused ones last."""
    facts = Facts(problem)
    found: list[tuple[Variant, CandidateReport]] = []
    for kernel in registry.kernels_for(problem.op_type) if kernels is None else kernels:
        found += _judge(kernel, facts, device, cost)
    # The sort is stable: equal scores keep the order of names and of declared params.
    return sorted(found, key=lambda item: (item[1].score is None, -(item[1].score or 0.0)))


def _judge(kernel: KernelInfo, facts: Facts, device: DeviceProfile,
           cost: CostModel | None) -> Iterable[tuple[Variant, CandidateReport]]:
    """Yield a report for each variant of a kernel; what all of them share is worked out once."""
    common = kernel_reasons(kernel, facts, device)
    shared = {} if common else _kernel_parts(kernel, facts, device)
    for variant in kernel.variants:
        reasons = common or variant_reasons(variant, facts, device)
        if reasons:
            yield variant, CandidateReport(variant.id, None, reasons)
            continue
        parts = {**shared, **_variant_parts(variant, facts, device)}
        predicted = cost(facts.problem, variant, device) if cost else None
        if predicted is not None:
            parts["cost"] = predicted
        yield variant, CandidateReport(variant.id, sum(parts.values()), (), parts)


def _score_by_rules(problem: Problem, variant: Variant, device: DeviceProfile) -> dict[str, float]:
    """Return the part of each rule that has an opinion, without capability and cost."""
    facts = Facts(problem)
    parts = _kernel_parts(variant.kernel, facts, device)
    del parts["capability"]
    return {**parts, **_variant_parts(variant, facts, device)}


def _kernel_parts(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> dict[str, float]:
    parts = {"capability": float(registry.capability(kernel))}
    for name, rule in KERNEL_RULES.items():
        if part := rule(kernel, facts, device):
            parts[name] = part
    return parts


def _variant_parts(variant: Variant, facts: Facts, device: DeviceProfile) -> dict[str, float]:
    parts = {}
    for name, rule in VARIANT_RULES.items():
        if part := rule(variant, facts, device):
            parts[name] = part
    return parts


def no_kernel(problem: Problem, device: DeviceProfile,
               reports: tuple[CandidateReport, ...]) -> NoKernelError:
    tensors = ", ".join("-" if t is None else f"{t.dtype}{list(t.shape)}" for t in problem.tensors)
    lines = [f"  {r.variant_id}: {'; '.join(r.reasons)}" for r in reports]
    listed = "\n".join(lines) or "  no kernel is registered for this operator"
    return NoKernelError(f"no kernel serves {problem.op_type}({tensors}) on {device.name}"
                         f" ({device.arch}):\n{listed}")
