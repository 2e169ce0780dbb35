"""The one call that makes a device's evidence: what it writes, and that it goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from bench import lab
from ge2.evidence.exchange import read_file, write_file
from ge2.evidence.keys import device_key, problem_key
from ge2.evidence.record import Record
from ge2.lab import sweep
from ge2.lab.bench import Progress
from ge2.launch.lab_primitives import fuse_problem
from ge2.runtime.device import EmulatedDevice

DEVICE = EmulatedDevice()
PROBLEM = fuse_problem(65536, 64)


def record(variant: str) -> Record:
    return Record(problem=problem_key(PROBLEM), op_type="LAB_FUSE", shape="", variant=variant,
                  device=device_key(DEVICE.profile), cubin="c", state="ok", time_us=5.0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand-ins for what needs a GPU; returns how many records each run found."""
    found: list[int] = []

    def run(device: Any, store: Any, families: Any, **more: Any) -> Progress:
        assert more["seconds"] >= 0
        if more["problems"]("boundary") != sweep.SWEEP["boundary"]():
            return Progress()  # sizes between: none today
        found.append(len(store.records()))
        store.put(record(f"lab/lab_fuse[FUSE={('unfused', 'everything')[len(found) - 1]}]"))
        more["tell"]("boundary")
        return Progress(measured=1, left=2 - len(found))

    def probe(device: Any, progress: Any = None) -> dict[str, Any]:
        return {"ge2_probe": 1, "device": device_key(device.profile), "name": "x", "seconds": 1.0,
                "summary": {"copy_gbps": 4000.0}, "sections": {}}

    monkeypatch.setattr(lab, "cuda_device", lambda index: DEVICE)
    monkeypatch.setattr(lab, "probe", probe)
    monkeypatch.setattr(lab.lab_bench, "run", run)
    monkeypatch.setattr(lab, "write_results",
                        lambda path, figures: path.write_text(json.dumps({"figures": figures})))
    return found


def test_a_second_call_knows_what_the_first_one_measured(measured: list[int], tmp_path: Path
                                                         ) -> None:
    call = ["--out", str(tmp_path), "--only", "probe,bench,report", "--seconds", "90"]
    for left in (1, 0):
        done = CliRunner().invoke(lab.main, call, catch_exceptions=False)
        assert done.exit_code == 0 and f"{left} left for another call" in done.output
    assert measured == [0, 1]
    evidence, = (tmp_path / "shipped").glob("*.jsonl")
    assert len(read_file(evidence)) == 2
    figures = lab.read_figures(tmp_path / "lab.json")
    assert figures["known_before"] == 1 and figures["probe_repeat"] == {"copy_gbps": 0.0}
    assert {row["family"] for row in figures["cost_model"]} >= {"boundary"}
    assert "Boundary" in (tmp_path / "report.html").read_text()


def test_a_part_that_fails_stops_no_other_and_loses_nothing(
        measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "probe", lambda *args, **more: 1 / 0)
    done = CliRunner().invoke(lab.main, ["--out", str(tmp_path), "--only", "probe,bench,report"])
    assert done.exit_code == 1 and "failed: probe" in done.output
    evidence, = (tmp_path / "shipped").glob("*.jsonl")
    assert len(read_file(evidence)) == 1 and (tmp_path / "lab.json").exists()
    assert (tmp_path / "report.html").exists()


def test_verification_that_would_not_end_in_time_is_left_for_another_call(
        measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "verify", lambda *args, **more: 1 / 0)
    call = ["--out", str(tmp_path), "--only", "verify", "--seconds"]
    assert "call again" in CliRunner().invoke(lab.main, [*call, "100"]).output
    assert CliRunner().invoke(lab.main, [*call, "1000"]).exit_code == 1


def test_only_what_is_swept_now_is_taken_over_and_the_newest_of_it(
        measured: list[int], tmp_path: Path) -> None:
    one = record("lab/lab_fuse[FUSE=epilogue]")
    write_file(lab.Session(DEVICE, tmp_path, 1.0).evidence, [
        msgspec.structs.replace(one, cubin="older", time_us=9.0, date=1.0),
        msgspec.structs.replace(one, cubin="newer", date=2.0),
        msgspec.structs.replace(one, variant="lab/lab_fuse[FUSE=gone]"),
        msgspec.structs.replace(one, variant="lab/lab_fuse[FUSE=unfused]", time_us=0.0)])
    assert [r.cubin for r in lab.Session(DEVICE, tmp_path, 1.0).records()] == ["newer"]


def test_an_unknown_part_is_named(measured: list[int], tmp_path: Path) -> None:
    done = CliRunner().invoke(lab.main, ["--out", str(tmp_path), "--only", "probe,bemch"])
    assert done.exit_code == 2 and "bemch" in done.output
