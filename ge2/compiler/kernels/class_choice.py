"""One kernel variant for all sizes of a class: the best over samples, and safe for every member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log, prod
from typing import TYPE_CHECKING

from ...problem import Problem, TensorSpec
from ..ir.dim import symbols
from ..ir.size import Size, at
from . import selector
from .facts import Facts
from .guards import kernel_reasons, variant_reasons
from .metadata import Variant
from .selector import CandidateReport, Choice

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

Binding = Mapping[str, int]

PRODUCTS = ("GEMM_BIAS_ACT", "NORM_GEMM")
# Up to how many rows products share their kernels, and how many they are judged by: with few rows,
# small tiles and splits of K keep a device busy.
ROW_EDGES = (512, 2048, 8192)
_ROWS = ((128, 256), (1024, 2048), (4096, 8192), (16384, 65536))


def problem_at(problem: Problem, values: Binding) -> Problem:
    """Return the problem of one member of a class."""
    def spec(tensor: TensorSpec) -> TensorSpec:
        return replace(tensor, shape=at(tensor.shape, values), strides=at(tensor.strides, values))

    return replace(problem, inputs=tuple(t and spec(t) for t in problem.inputs),
                   outputs=tuple(spec(t) for t in problem.outputs),
                   attrs=at(problem.attrs, values))


def has_sizes(problem: Problem) -> bool:
    """Whether anything about a problem's tensors depends on named dimensions."""
    return any(isinstance(number, Size) for tensor in problem.tensors if tensor is not None
               for number in (*tensor.shape, *tensor.strides))


def unaligned_names(problem: Problem, multiple: int) -> frozenset[str]:
    """Return the named dimensions that keep a row or a stride from being a multiple of a number.

    The others do not decide what accesses are possible, so that whether they are aligned should
    not change the choice of a kernel.
    """
    found = set()
    for tensor in problem.tensors:
        for number in (*tensor.shape[-1:], *tensor.strides) if tensor is not None else ():
            if isinstance(number, Size) and number.space.divisor(number.dim) % multiple:
                found |= {name for name in number.space.ranges
                          if not number.space.divisor(number.dim, {name: multiple}) % multiple}
    return frozenset(found)


def names_of_rows(problem: Problem) -> frozenset[str]:
    """Return the named dimensions that the number of rows of a product follows from."""
    if problem.op_type not in PRODUCTS:
        return frozenset()
    return frozenset(name for extent in problem.outputs[0].shape[:-1] if isinstance(extent, Size)
                     for name in symbols(extent.dim))


def samples_of_rows(problem: Problem, members: Sequence[Binding]) -> list[Binding]:
    """Return the members that the choice of a product's kernel is judged by.

    How many rows the product has is compared with ROW_EDGES, as a condition of the class where the
    class leaves it open.
    """
    shape = problem.outputs[0].shape[:-1]
    rows = prod(shape)
    step = next((i for i, edge in enumerate(ROW_EDGES) if rows <= edge), len(ROW_EDGES))
    found = [m for m in members if all(min(at(t.shape, m), default=1) > 0
                                       for t in problem.tensors if t is not None)]
    return [min(found, key=lambda m: abs(log(prod(at(shape, m)) / wanted)))
            for wanted in _ROWS[step] if found]


def choose_for_class(problem: Problem, device: DeviceProfile, samples: Sequence[Binding]) -> Choice:
    """Return the variant with the highest sum of scores over samples of a class.

    Variants that a sample refuses come last. The guards of the one returned hold for every member,
    some on conditions that the class's space records.

    Raises:
        NoKernelError: no variant serves all members.
    """
    if not has_sizes(problem):
        return selector.select(problem, device)
    reports: dict[Variant, list[CandidateReport]] = {}
    for values in samples:
        for variant, report in selector.judged(problem_at(problem, values), device):
            reports.setdefault(variant, []).append(report)
    order = sorted(reports, key=lambda variant: _rank(reports[variant]))
    facts = Facts(problem)
    refused = []
    for variant in order:
        reasons = (kernel_reasons(variant.kernel, facts, device)
                   or variant_reasons(variant, facts, device))
        if not reasons:
            found = [_summary(reports[v]) for v in order]
            return Choice(variant, -_rank(reports[variant])[1], tuple(found))
        refused.append(CandidateReport(variant.id, None, reasons))
    raise selector.no_kernel(problem, device, tuple(refused))


def _rank(reports: Sequence[CandidateReport]) -> tuple[int, float]:
    scores = [report.score for report in reports if report.score is not None]
    return len(reports) - len(scores), -sum(scores)


def _summary(reports: Sequence[CandidateReport]) -> CandidateReport:
    """Return one report for all samples: mean parts, or why a sample refuses the variant."""
    for report in reports:
        if report.score is None:
            return report
    names = dict.fromkeys(name for report in reports for name in report.parts)
    parts = {name: sum(r.parts.get(name, 0.0) for r in reports) / len(reports) for name in names}
    return CandidateReport(reports[0].variant_id, sum(parts.values()), (), parts)
