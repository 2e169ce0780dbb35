"""What figures should reach, and the file of a section that says whether they did.

A value is a ratio of times of the same round; its interval is that of the median over rounds, from
the ranks of the samples: it stands on no distribution, and a few disturbed rounds do no harm.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from ge2.evidence.measure import Timing

from .results import write_results

CONFIDENCE = 0.95
WIDTH = 120
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio of times that a case should reach: of something named to the selected variant.

    Attributes:
        text: the target.
        of: whose time is wanted over the selected variant's: a candidate, or "peers", the fastest.
        least: the wanted ratio; 0 where only the mean of several cases has a target.
        regime: of the measurement; "" is the case's first.
        scale: multiplies the ratio, where what stands beside has more or less to do.
        bound: judge the lower end of the interval instead of the median.
    """

    text: str
    of: str
    least: float
    regime: str = ""
    scale: float = 1.0
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a figure reached its target.

    Attributes:
        target, case: what was wanted of what.
        goal, value: in `unit`; "" is a ratio.
        passed: value is at least the goal, or at most where `at_most`; a wrong result never passes.
        lower, upper: of the value's 95 % interval; NaN where it has none.
        note: who the rival was.
    """

    target: str
    case: str
    goal: float
    value: float
    passed: bool
    lower: float = math.nan
    upper: float = math.nan
    at_most: bool = False
    unit: str = ""
    note: str = ""

    def line(self) -> str:
        """Return the verdict in one line."""
        ends = "" if math.isnan(self.lower) else f" [{self.lower:.3f} {self.upper:.3f}]"
        mark = "LOW" if not self.passed else "ok " if self.goal or self.at_most else "   "
        wanted = f"{'<=' if self.at_most else '>='} {self.goal:g}" if mark.strip() else ""
        head = f"{mark} {self.case:44.44} {self.value:7.3f}{ends}"
        tail = f"{wanted} {self.unit}  {self.note}"
        return f"{head} {tail}".rstrip()[:WIDTH]


def paired(over: Timing, under: Timing) -> list[float]:
    """Return the ratio of each round."""
    return [a / b for a, b in zip(over.samples, under.samples, strict=True)]


def interval(values: Sequence[float]) -> Interval:
    """Return the ends of a 95 % interval of the median; of fewer than six values, all of them."""
    ordered, n = sorted(values), len(values)
    if not n:
        return math.nan, math.nan
    outside, rank = 0.0, 0
    while rank < n // 2:
        outside += 2 * math.comb(n, rank) / 2.0**n
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    return ordered[max(rank - 1, 0)], ordered[n - max(rank, 1)]


def judged(target: str, case: str, goal: float, samples: Sequence[float], *,
           at_most: bool = False, bound: bool = False, unit: str = "", note: str = "") -> Verdict:
    """Return whether the median of samples, or with `bound` the worse end, reaches a goal."""
    value, (lower, upper) = statistics.median(samples), interval(samples)
    compared = (upper if at_most else lower) if bound else value
    good = compared <= goal if at_most else compared >= goal
    return Verdict(target, case, goal, value, good, lower, upper, at_most, unit, note)


def judge(goal: Goal, case: str, times: Mapping[str, Timing], ours: str,
          peers: Sequence[str]) -> Verdict | None:
    """Return whether a case reached a goal; None where nothing stands beside it."""
    rivals = [name for name in (peers if goal.of == "peers" else [goal.of]) if name in times]
    if not rivals:
        return None
    rival = min(rivals, key=lambda name: times[name].median)
    ratios = [goal.scale * ratio for ratio in paired(times[rival], times[ours])]
    return judged(goal.text, case, goal.least, ratios, bound=goal.bound,
                  note=f"x {rival}, {times[ours].median:.1f} us {goal.regime}".rstrip())


def geomean(text: str, least: float, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdict on the geometric mean of ratios; none without any."""
    rows = list(verdicts)
    if not rows:
        return []
    value = math.exp(statistics.fmean(math.log(row.value) for row in rows))
    # The cases' intervals are independent of each other.
    half = math.sqrt(sum((math.log(row.upper / row.lower) / 2)**2 for row in rows)) / len(rows)
    return [Verdict(text, f"geometric mean of {len(rows)}", least, value, value >= least,
                    value / math.exp(half), value * math.exp(half))]


def losses(text: str, values: Sequence[float]) -> list[Verdict]:
    """Return the verdicts on the loss of choices without tuning: median and 90th percentile."""
    if not values:
        return []
    ordered = [100 * value for value in sorted(values)]
    high = ordered[math.ceil(0.9 * len(ordered)) - 1]
    return [Verdict(text, f"{label} of {len(ordered)}", goal, value, value <= goal, at_most=True,
                    unit="% loss")
            for label, goal, value in (("median", 3.0, statistics.median(ordered)),
                                       ("90th percentile", 10.0, high))]


Found = tuple[dict[str, Any], Sequence[Verdict]]


class Section:
    """The figures of one section; its file is written after every case.

    Args:
        path: of the file.
        options: what the whole section was run with; written beside the figures.
    """

    def __init__(self, path: Path, options: Mapping[str, Any] | None = None) -> None:
        self.path, self.options = path, dict(options or {})
        self.figures: dict[str, Any] = {}
        self.verdicts: list[Verdict] = []

    def run(self, case: str, measure: Callable[[], Found]) -> None:
        """Keep and print what a case came to; one that fails must not hide the others."""
        try:
            figures, verdicts = measure()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            figures, verdicts = {"failed": reason[:2000]}, ()
            click.echo(f"FAIL {case}: {reason}".splitlines()[0][:WIDTH])
        self.add(case, figures, verdicts)

    def add(self, case: str, figures: Mapping[str, Any], verdicts: Iterable[Verdict] = ()) -> None:
        """Keep a case; print its first verdict, and those that missed."""
        self.figures[case] = dict(figures)
        for number, verdict in enumerate(verdicts):
            self.verdicts.append(verdict)
            if not number or not verdict.passed:
                click.echo(verdict.line())
        self.write()

    def conclude(self, verdicts: Iterable[Verdict]) -> None:
        """Keep and print verdicts on several cases together."""
        for verdict in verdicts:
            self.verdicts.append(verdict)
            click.echo(verdict.line())
        self.write()

    def of(self, target: str) -> list[Verdict]:
        """Return the verdicts on a target so far."""
        return [verdict for verdict in self.verdicts if verdict.target == target]

    def write(self) -> None:
        """Write the file."""
        write_results(self.path, {**self.options, **self.figures},
                      [{key: None if value != value else value  # JSON has no NaN
                        for key, value in asdict(verdict).items()} for verdict in self.verdicts])

    def summary(self) -> None:
        """Print how many verdicts passed, and failures, by target."""
        failed = sum("failed" in row for row in self.figures.values() if isinstance(row, dict))
        for target in dict.fromkeys(v.target for v in self.verdicts if v.goal or v.at_most):
            rows = self.of(target)
            missed = [row for row in rows if not row.passed]
            click.echo(f"== {self.path.stem}: {target}: {len(rows) - len(missed)} passed, "
                       f"{len(missed)} missed"[:WIDTH])
        if failed:
            click.echo(f"== {self.path.stem}: {failed} cases FAILED")


def wrong(verdicts: Iterable[Verdict], reason: str) -> list[Verdict]:
    """Return verdicts that cannot pass, because the result was wrong."""
    return [replace(verdict, passed=False, note=reason) for verdict in verdicts]
