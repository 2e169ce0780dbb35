"""How good the cost model is on problems that it was not fitted on."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import Ge2Error
from ..evidence.costmodel import CostAxes, CostModel, fit_by_size
from ..evidence.device import DeviceProfile
from ..evidence.keys import device_key, problem_key
from ..evidence.record import Record
from ..problem import Problem
from . import costs, primitives, sweep
from .bench import newest
from .realizations import Realization, realizations

FOLDS = 3
Known = Mapping[tuple[str, str], Record]


@dataclass(slots=True)
class Score:
    """How the model did on one family.

    Attributes:
        losses: measured time of the model's pick over the best measured one, minus 1, by problem.
        errors: relative error of predicted times.
        held_out: whether the sizes are others than the sweep's.
    """

    family: str
    held_out: bool = False
    losses: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, float | int | str]:
        """Return the figures that targets speak of."""
        return {"family": self.family, "held_out": self.held_out,
                "problems": len(self.losses), "times": len(self.errors),
                "loss_median": _quantile(self.losses, 0.5), "loss_p90": _quantile(self.losses, 0.9),
                "error_median": _quantile(self.errors, 0.5),
                "error_p90": _quantile(self.errors, 0.9)}


def _quantile(values: Sequence[float], share: float) -> float:
    if not values:
        return 0.0
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[int(100 * share) - 1]


def evaluate(device: DeviceProfile, records: Iterable[Record],
             families: Iterable[str] | None = None) -> list[Score]:
    """Return the scores on problems that the model was not fitted on.

    Where sizes between those of the sweep were measured, the model is fitted on the sweep and
    judged on them; otherwise by cross-validation: each third of the sweep is predicted from the
    rest.

    Args:
        device: profile whose rates are used. records: evidence.
        families: None takes all.
    """
    known = newest(records, device_key(device))
    return [_family(device, known, name) for name in families or primitives.FAMILIES]


def _family(device: DeviceProfile, known: Known, family: str) -> Score:
    found = realizations(family, device.arch)
    swept, between = (
        [p for p in problems[family]() if any((problem_key(p), r.variant.id) in known
                                              for r in found)]
        for problems in (sweep.SWEEP, sweep.BETWEEN))
    score = Score(family, held_out=bool(swept and between))
    for inside, outside in [(swept, between)] if score.held_out else _folds(swept):
        model = CostModel(device, fit_by_size(_pairs(device, known, inside, found), device))
        for problem in outside:
            _judge(score, model, known, problem, found)
    return score


def _folds(problems: Sequence[Problem]) -> Iterator[tuple[list[Problem], list[Problem]]]:
    parts = _parts(problems)
    for fold in range(FOLDS):
        yield ([p for p, part in parts if part != fold], [p for p, part in parts if part == fold])


def _parts(problems: Sequence[Problem]) -> list[tuple[Problem, int]]:
    """Deal the sizes of each condition into folds, so that none is left without a neighbour."""
    seen: Counter[str] = Counter()
    dealt = []
    for problem in problems:
        condition = sweep.condition(problem)
        dealt.append((problem, seen[condition] % FOLDS))
        seen[condition] += 1
    return dealt


def _pairs(device: DeviceProfile, known: Known,
           problems: Sequence[Problem], found: Sequence[Realization]
           ) -> list[tuple[CostAxes, float]]:
    pairs = []
    for problem in problems:
        for one in found:
            record = known.get((problem_key(problem), one.variant.id))
            if record is not None:
                pairs.append((costs.axes(problem, one, device), record.time_us))
    return pairs


def _judge(score: Score, model: CostModel, known: Known,
           problem: Problem, found: Sequence[Realization]) -> None:
    predicted: dict[str, float] = {}
    measured: dict[str, float] = {}
    for one in found:
        record = known.get((problem_key(problem), one.variant.id))
        if record is None:
            continue
        try:
            time_us = model.predict(costs.axes(problem, one, model.device)).time_us
        except Ge2Error:
            continue
        predicted[one.variant.id], measured[one.variant.id] = time_us, record.time_us
        score.errors.append(abs(time_us / record.time_us - 1.0))
    if len(measured) > 1:
        pick = min(predicted, key=lambda name: predicted[name])
        score.losses.append(measured[pick] / min(measured.values()) - 1.0)
