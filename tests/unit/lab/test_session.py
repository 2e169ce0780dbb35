"""The one call that makes a device's evidence: what it writes, and that it goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import lab
from ge2.evidence.exchange import read_file
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
    monkeypatch.setattr(lab, "_compile", lambda *args: None)
    monkeypatch.setattr(lab, "probe", probe)
    monkeypatch.setattr(lab.lab_bench, "run", run)
    monkeypatch.setattr(lab, "write_results",
                        lambda path, figures: path.write_text(json.dumps(figures)))
    return found


def test_a_second_call_knows_what_the_first_one_measured(measured: list[int], tmp_path: Path
                                                         ) -> None:
    call = ["--out", str(tmp_path), "--only", "probe,bench,report", "--seconds", "60"]
    for left in (1, 0):
        done = CliRunner().invoke(lab.main, call, catch_exceptions=False)
        assert done.exit_code == 0 and f"{left} left for another call" in done.output
    assert measured == [0, 1]
    evidence, = (tmp_path / "shipped").glob("*.jsonl")
    assert len(read_file(evidence)) == 2
    figures = json.loads((tmp_path / "lab.json").read_text())
    assert figures["known_before"] == 1 and figures["probe_repeat"] == {"copy_gbps": 0.0}
    assert {row["family"] for row in figures["cost_model"]} >= {"boundary"}
    assert "Boundary" in (tmp_path / "report.html").read_text()


def test_what_was_measured_is_kept_where_a_part_fails(measured: list[int], tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.Session, "report", lambda self: 1 / 0)
    done = CliRunner().invoke(lab.main, ["--out", str(tmp_path), "--only", "bench,report"])
    assert isinstance(done.exception, ZeroDivisionError)
    evidence, = (tmp_path / "shipped").glob("*.jsonl")
    assert len(read_file(evidence)) == 1 and (tmp_path / "lab.json").exists()


def test_an_unknown_part_is_named(measured: list[int], tmp_path: Path) -> None:
    done = CliRunner().invoke(lab.main, ["--out", str(tmp_path), "--only", "probe,bemch"])
    assert done.exit_code == 2 and "bemch" in done.output
