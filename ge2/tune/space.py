"""The candidates of a problem: what the guards let through, in the order of what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..compiler.kernels import registry, selector
from ..compiler.kernels.cost import axes_of
from ..compiler.kernels.metadata import Variant
from ..errors import NoKernelError
from ..evidence.costmodel import CostModel
from ..evidence.device import DeviceProfile
from ..problem import Problem


@dataclass(frozen=True, slots=True)
class Entry:
    """One legal candidate.

    Attributes:
        variant: what to run. score: of the selector's rules.
        predicted_us, uncertainty: of the cost model.
    """

    variant: Variant
    score: float
    predicted_us: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Space:
    """Every legal candidate of a problem.

    Attributes:
        problem: what they solve.
        entries: by the rules' score, best first; entries[0] is what runs without evidence.
        order: indices of entries, most promising first: what the rules and the cost model rank
            high, in turn.
        total: how many variants there are, illegal ones too.
    """

    problem: Problem
    entries: tuple[Entry, ...]
    order: tuple[int, ...]
    total: int

    @property
    def default(self) -> Entry:
        """What the selector chooses."""
        return self.entries[0]

    def index(self, variant_id: str) -> int | None:
        """Return the position of a variant in entries."""
        return next((i for i, e in enumerate(self.entries) if e.variant.id == variant_id), None)

    def neighbours(self, index: int) -> list[int]:
        """Return the candidates of the same kernel that differ in one param, nearest value first.
        """
        here = self.entries[index].variant
        found: list[tuple[float, int]] = []
        for other, entry in enumerate(self.entries):
            there = entry.variant
            if there.kernel.name != here.kernel.name:
                continue
            apart = [n for n, v in here.params if there.param_map.get(n) != v]
            if len(apart) == 1:
                found.append((_distance(here, there, apart[0]), other))
        return [other for _, other in sorted(found)]


def _distance(here: Variant, there: Variant, name: str) -> float:
    choices = dict(here.kernel.params)[name]
    return float(abs(choices.index(here.param_map[name]) - choices.index(there.param_map[name])))


def build_space(problem: Problem, device: DeviceProfile, model: CostModel | None = None, *,
                strict: bool = False, hints: Sequence[str] = ()) -> Space:
    """Return the legal candidates of a problem on a device.

    Args:
        model: predicts times; default: one without evidence.
        strict: keep only what accumulates in the same order as the default.
        hints: variant ids that other evidence speaks for: tried right after the default.

    Raises:
        NoKernelError: nothing serves the problem; lists every candidate with its reasons.
    """
    model = model or CostModel(device)
    reports = selector.rank(problem, device)
    legal = [r for r in reports if r.score is not None]
    if not legal:
        selector.select(problem, device)  # raises with all reasons
        raise NoKernelError(f"no kernel serves {problem.op_type}")
    entries = []
    numerics = registry.variant(legal[0].variant_id).numerics
    for report in legal:
        variant = registry.variant(report.variant_id)
        if strict and variant.numerics != numerics:
            continue
        guess = model.predict(axes_of(problem, variant))
        entries.append(Entry(variant, report.score or 0.0, guess.time_us, guess.uncertainty))
    return Space(problem, tuple(entries), _order(entries, hints), len(reports))


def _order(entries: Sequence[Entry], hints: Sequence[str]) -> tuple[int, ...]:
    by_rules = list(range(len(entries)))
    by_model = sorted(by_rules, key=lambda i: (entries[i].predicted_us, i))
    ids = {e.variant.id: i for i, e in enumerate(entries)}
    first = [0, *(ids[h] for h in hints if h in ids)]
    woven = [i for pair in zip(by_rules, by_model, strict=True) for i in pair]
    return tuple(dict.fromkeys([*first, *woven]))
