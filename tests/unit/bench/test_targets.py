"""What counts as reaching a target, and what a section's file says of it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math

import pytest

from bench.targets import (
    Goal,
    Section,
    geomean,
    interval,
    judge,
    judged,
    losses,
    wrong,
)
from ge2.compiler.opdefs import OPS
from ge2.compiler.opdefs.user_rows import USER_ROWS
from ge2.evidence.measure import Timing


def timing(*samples: float) -> Timing:
    return Timing(sorted(samples)[len(samples) // 2], 0.0, len(samples), 1, samples, True)


TIMES = {"ours": timing(1.0, 2.0, 1.0), "mm": timing(1.1, 2.4, 1.0),
         "linear": timing(3.0, 3.0, 3.0)}


@pytest.mark.parametrize(("count", "ends"), [(1, (0, 0)), (5, (0, 4)), (7, (0, 6)), (9, (1, 7)),
                                             (12, (2, 9)), (25, (7, 17))])
def test_an_interval_of_the_median_is_two_ranks(count, ends):
    assert interval([*range(count)][::-1]) == ends


def test_a_ratio_is_of_the_same_round_and_to_the_fastest_peer():
    verdict = judge(Goal("t", "peers", 1.1), "case", TIMES, "ours", ["linear", "mm"])
    assert verdict.passed and verdict.value == 1.1 and "mm" in verdict.note
    assert (verdict.lower, verdict.upper) == (1.0, 1.2)
    assert not judge(Goal("t", "peers", 1.1, bound=True), "case", TIMES, "ours", ["mm"]).passed
    assert judge(Goal("t", "linear", 5.0, scale=2.0), "case", TIMES, "ours", []).passed
    assert judge(Goal("t", "absent", 1.0), "case", TIMES, "ours", ["mm"]) is None


def test_at_most():
    assert judged("t", "case", 2.0, [1.0, 2.0, 3.0], at_most=True).passed
    assert not judged("t", "case", 2.0, [1.0, 2.0, 3.0], at_most=True, bound=True).passed
    assert not wrong([judged("t", "case", 1.0, [2.0])], "WRONG")[0].passed


def test_a_mean_is_geometric_and_narrower_than_its_parts():
    rows = [judged("t", str(k), 0.0, [k * 0.9, k, k / 0.9]) for k in (1.0, 4.0)]
    (verdict,) = geomean("mean", 1.9, rows)
    assert verdict.value == pytest.approx(2.0) and verdict.passed
    assert 0.9 * 2.0 < verdict.lower < 2.0 < verdict.upper < 2.0 / 0.9
    assert geomean("mean", 1.0, []) == []


def test_losses_are_judged_by_median_and_90th_percentile():
    median, high = losses("t", [0.0] * 6 + [0.05] * 3 + [0.2])
    assert (median.value, high.value) == (0.0, pytest.approx(5.0))
    assert median.passed and high.passed and not losses("t", [0.2])[0].passed


def test_a_section_keeps_what_it_has_and_says_what_failed(tmp_path, capsys):
    section = Section(tmp_path / "x" / "part.json", {"length": 3})
    section.run("good", lambda: ({"us": 1.0}, [judged("t", "good", 1.0, [2.0])]))
    written = json.loads(section.path.read_text())
    assert written["figures"] == {"length": 3, "good": {"us": 1.0}}
    assert written["targets"][0]["passed"] and written["targets"][0]["goal"] == 1.0
    section.run("bad", lambda: 1 / 0)
    section.add("low", {}, [judged("t", "low", 1.0, [0.5])])
    section.summary()
    assert "failed" in json.loads(section.path.read_text())["figures"]["bad"]
    lines = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in lines] == ["ok  ", "FAIL", "LOW ", "== p", "== p"]
    assert "1 passed, 1 missed" in lines[3] and "1 cases FAILED" in lines[4]


def test_lines_are_short_and_files_are_json(tmp_path):
    verdict = judged("t", "c" * 200, 1.0, [1.0], note="n" * 200)
    assert len(verdict.line()) <= 120
    section = Section(tmp_path / "part.json")
    section.add("case", {}, [verdict, *losses("t", [0.1])])
    json.loads(section.path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert not math.isnan(verdict.lower)


@pytest.fixture
def operators_as_before():
    """The user-declared operators that a bench makes are gone afterwards."""
    before = [dict(table) for table in (OPS, USER_ROWS)]
    yield
    for table, entries in zip((OPS, USER_ROWS), before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.usefixtures("operators_as_before")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bench", ["gemm", "skinny", "rows", "elementwise", "attention"])
def test_goals_name_what_is_timed(bench):
    for name, part in importlib.import_module(f"bench.{bench}").SECTIONS.items():
        cases = list(part.cases())
        assert len({case.name for case in cases}) == len(cases), name
        for case in cases:
            timed = {"peers", "copy", *case.peers, *case.others, *case.compiled, *case.beside}
            assert all(goal.of in timed for goal in case.goals), case.name
            assert all(goal.regime in ("", *case.regimes) for goal in case.goals), case.name
