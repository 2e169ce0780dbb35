"""Report and evaluation on made-up evidence: complete pages, no empty plots, exact figures."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ge2.cli import run
from ge2.errors import Invalid
from ge2.evidence import profiles
from ge2.evidence.costmodel import raw_time
from ge2.evidence.device import profile_for
from ge2.evidence.exchange import write_file
from ge2.evidence.keys import device_key, problem_key
from ge2.evidence.record import Record
from ge2.lab import conditions, costs, primitives, sweep
from ge2.lab.evaluate import evaluate
from ge2.lab.realizations import realizations
from ge2.lab.report import figures, page
from ge2.lab.report_png import write_figures
from ge2.lab.svg import Axis, Series, chart, number_text

H200 = profile_for("sm_90a")


def made_up(families: tuple[str, ...] = tuple(primitives.FAMILIES), factor: float = 1.0,
            device: str = device_key(H200), problems: Any = sweep.SWEEP) -> list[Record]:
    """Return records whose times are the model's times a factor."""
    return [Record(problem=problem_key(p), op_type=p.op_type, shape="", variant=one.variant.id,
                   device=device, cubin="c", state="ok", roofline=0.5,
                   time_us=factor * raw_time(costs.axes(p, one, H200), H200))
            for family in families for p in problems[family]()
            for one in realizations(family, "sm_90a") if one.serves(p)]


def test_times_that_follow_the_model_are_predicted_exactly() -> None:
    for score in evaluate(H200, made_up(factor=3.0)):
        figures = score.as_dict()
        assert figures["problems"] == len(sweep.SWEEP[score.family]())
        assert figures["error_p90"] == pytest.approx(0.0, abs=1e-9)
        assert figures["loss_p90"] == pytest.approx(0.0, abs=1e-9)


def test_an_efficiency_that_follows_the_size_is_learned() -> None:
    """Short rows cost more than the axes know, by as much as a straight line on log axes says."""
    problems = {problem_key(p): p for f in ("streaming", "composition")
                for p in sweep.SWEEP[f]()}
    records = [msgspec.structs.replace(
        r, time_us=r.time_us * 3.0 * sweep.extent(problems[r.problem]) ** -0.2)
        for r in made_up(("streaming", "composition"))]
    for score in evaluate(H200, records, ["streaming", "composition"]):
        assert score.as_dict()["error_median"] < 0.02


def test_sizes_between_are_judged_by_a_model_of_the_sweep() -> None:
    between = [msgspec.structs.replace(r, time_us=2.0 * r.time_us)
               for r in made_up(("streaming",), problems=sweep.BETWEEN)]
    score, = evaluate(H200, made_up(("streaming",)) + between, ["streaming"])
    assert score.held_out and score.as_dict()["problems"] == len(sweep.BETWEEN["streaming"]())
    assert score.as_dict()["error_median"] == pytest.approx(0.5)  # half of what was measured


def test_between_lies_inside_of_the_sweep_and_repeats_none_of_it() -> None:
    for family, make in sweep.BETWEEN.items():
        swept = sweep.SWEEP[family]()
        for problem in make():
            like = [p for p in swept if sweep.condition(p) == sweep.condition(problem)]
            sizes = [sweep.extent(p) for p in like]
            assert min(sizes) < sweep.extent(problem) < max(sizes) and problem not in like


def test_a_wrong_pick_is_a_loss() -> None:
    records = made_up(("boundary",))
    slow = [r for r in records if r.variant == "lab/lab_fuse[FUSE=everything]"]
    # On one problem the realization that is best by far elsewhere takes twice as long as unfused.
    odd = slow[0].problem
    worst = max(r.time_us for r in records if r.problem == odd)
    records = [Record(**{**{f: getattr(r, f) for f in r.__struct_fields__},
                         "time_us": 2 * worst}) if r is slow[0] else r for r in records]
    (score,) = evaluate(H200, records, ["boundary"])
    assert max(score.losses) > 1.0


def test_records_of_other_devices_are_left_out() -> None:
    assert not any(s.errors for s in evaluate(H200, made_up(device="other|sm_80|108")))
    assert "no measurements yet" in page(H200, made_up(device="other|sm_80|108"), None)


def test_the_page_is_self_contained_and_has_no_empty_plot() -> None:
    text = page(H200, made_up(), None)
    assert not re.search(r'(src|href)="(?!#)', text) and "<script" not in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) > 15 and all("circle" in d for d in drawings)
    assert text.count("<figure>") == len(drawings)
    for family in primitives.FAMILIES:
        assert f'id="{family}"' in text
    assert "nan" not in text.lower().replace("nano", "")


def test_conditions_are_shown_beside_the_usual_time() -> None:
    problem = next(p for p in sweep.SWEEP["staging"]()
                   if conditions.is_restricted("staging", p))
    records = made_up(("staging",))
    usual = {r.variant: r for r in records if r.problem == problem_key(problem)}
    for one in realizations("staging", "sm_90a"):
        base = usual[one.variant.id]
        records += [msgspec.structs.replace(base, variant=r.id, time_us=1.5 * base.time_us,
                                            spills=16 if "registers" in r.id else 0)
                    for r in conditions.restricted(one.variant)]
    text = page(H200, records, None)
    assert "Under other conditions" in text and "1.50 x, 16 B spill" in text
    # Only the usual launches are judged and drawn.
    assert "{registers" not in text
    assert evaluate(H200, records, ["staging"])[0].errors == pytest.approx(
        evaluate(H200, made_up(("staging",)), ["staging"])[0].errors)


def test_figures_are_those_of_the_page(tmp_path: Path) -> None:
    records = made_up()
    drawn = [f for f in figures(H200, records, None) if not f.is_empty]
    assert [f.caption for f in drawn] and len(drawn) == page(H200, records, None).count("<figure>")
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(Invalid, match="matplotlib"):
            write_figures(drawn, tmp_path)
        return
    assert len(write_figures(drawn[:2], tmp_path / "png")) == 2


def test_a_page_without_evidence_says_so_and_draws_nothing() -> None:
    text = page(H200, [], None)
    assert "ge2 lab bench" in text and "ge2 probe" in text and "<svg" not in text


def test_a_chart_without_points_is_no_chart() -> None:
    assert chart([Series("a", ())], Axis("x"), Axis("y")) == ""


def test_a_chart_places_points_on_log_axes() -> None:
    text = chart([Series("a", ((1.0, 1.0), (2.0, 10.0), (4.0, 100.0)))], Axis("x", 2),
                 Axis("y", 10))
    xs = [float(x) for x in re.findall(r'cx="([\d.]+)"', text)]
    ys = [float(y) for y in re.findall(r'cy="([\d.]+)"', text)]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)


def test_numbers_are_short() -> None:
    assert number_text(65536, 2) == "64k" and number_text(1500) == "1.5k"


def test_the_commands_read_evidence_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                          ) -> None:
    path = tmp_path / "e.jsonl"
    write_file(path, made_up(("streaming",)))
    target = tmp_path / "r.html"
    assert run(["lab", "report", "-o", str(target), "--evidence", str(path)]) == 0
    assert "Streaming" in target.read_text()
    assert run(["lab", "evaluate", "--evidence", str(path)]) == 0
    assert "streaming" in capsys.readouterr().out
    path.write_text("\n".join(path.read_text().splitlines()[:-2]))
    assert run(["lab", "evaluate", "--evidence", str(path)]) == 3


def test_evidence_of_another_device_is_judged_and_shown(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = tmp_path / "e.jsonl", tmp_path / "r.html"
    write_file(path, made_up(("composition",), device="NVIDIA L40S|sm_89|142"))
    assert run(["lab", "report", "-o", str(target), "--device", "l40s",
                "--evidence", str(path)]) == 0
    text = target.read_text()
    assert "Execution primitives on NVIDIA L40S" in text and "sm_89, 142 multi" in text
    assert run(["lab", "evaluate", "--device", "L40S", "--evidence", str(path)]) == 0
    assert "composition" in capsys.readouterr().out
    assert run(["lab", "evaluate", "--device", "L4000", "--evidence", str(path)]) == 2


@pytest.mark.parametrize("key", ["", "x", "a|b|c", "emulated NVIDIA H200|sm_90a|132", "a|sm_9|x"])
def test_what_names_no_gpu_is_no_device(key: str) -> None:
    assert profiles.of_key(key) is None


def test_a_device_that_evidence_names_has_the_rates_of_its_share() -> None:
    assert profiles.of_key(device_key(H200)) is H200
    half = profiles.of_key("NVIDIA H200 MIG|sm_90a|66")
    assert half is not None and half.fp32_tflops == H200.fp32_tflops / 2
