"""ge2 tune on the command line: exit codes, messages, carrying evidence; no GPU, no emulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ge2.cli import run
from ge2.evidence.exchange import write_file
from ge2.evidence.record import Decision, Record
from ge2.evidence.records import Store, default_path
from ge2.runtime import driver


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("ge2.evidence.exchange.shipped", lambda: ())


def record(variant: str, **fields: Any) -> Record:
    return Record(**{"problem": "ab12", "op_type": "ROW", "shape": "ROW: f32[8,9] -> f32[8,9]",
                     "variant": variant, "device": "NVIDIA H200|sm_90a|132", "cubin": "c",
                     "state": "ok", "time_us": 2.5, "date": 100.0, **fields})


DECISION = Decision(problem="ab12", op_type="ROW", shape="ROW: f32[8,9] -> f32[8,9]",
                    device="NVIDIA H200|sm_90a|132", variant="row/a", cubin="c", default="row/b",
                    time_us=2.5, default_us=3.0, date=100.0)


def json_of(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert run(["tune", *args, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("args", "says"), [
    ((), "say what to tune"),
    (("--op", "GEMM_BIAS_AC"), "Did you mean GEMM_BIAS_ACT"),
    (("--op", "GEMM_BIAS_ACT", "--strategy", "gided"), "Did you mean guided"),
    (("--op", "GEMM_BIAS_ACT", "--budget", "soon"), "not a duration"),
    (("--op", "GEMM_BIAS_ACT", "--shape", "M=0,N=1,K=1", "--dry-run"), "at least 1"),
    (("--op", "GEMM_BIAS_ACT", "--shapes", "/no/such/file", "--dry-run"), "cannot be read"),
    (("--op", "ROW", "--sym", "batch=1"), "--sym belongs to model"),
    (("examples/digits/model.json", "--sym", "bath=1", "--dry-run"), "no named dimension"),
    (("examples/digits/model.json", "--sym", "batch=x", "--dry-run"), "NAME=N"),
    (("examples/digits/model.json", "--op", "ROW"), "do not go with model files"),
])
def test_wrong_usage_is_2(args: tuple[str, ...], says: str,
                          capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", *(args or ("search",))]) == 2
    assert says in capsys.readouterr().err


def test_without_a_gpu_it_is_4_and_says_what_works(capsys: pytest.CaptureFixture[str],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ge2.model.backend.cuda_device_count", lambda: (0, "no driver"))
    assert run(["tune", "--op", "GEMM_BIAS_ACT"]) == 4
    said = capsys.readouterr().err
    assert "needs a GPU" in said and "--compile-only" in said


def test_a_model_that_is_not_there_is_3() -> None:
    assert run(["tune", "nowhere/model.json", "--dry-run", "--arch", "sm_90a"]) == 3


def test_dry_run_shows_the_space(capsys: pytest.CaptureFixture[str],
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "is_available", lambda: False)
    found = json_of(capsys, "--op", "GEMM_BIAS_ACT", "--shape", "M=512,N=512,K=512", "--dtype",
                    "f16", "--dry-run")
    (problem,) = found["problems"]
    assert problem["legal"] == len(problem["candidates"]) > 20
    assert problem["total"] > problem["legal"]
    assert problem["predicted_us"] > 0
    assert not default_path().exists()


def test_dry_run_of_a_model_takes_every_problem_of_its_plans(
        capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "examples/digits/model.json", "--sym", "batch=1,8", "--dry-run",
                    "--arch", "sm_80")
    assert found["arch"] == "sm_80"
    assert len(found["problems"]) == 10


def test_shapes_come_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("8x16x32\nM=4,N=4,K=4  # small\n\n", '[{"M": 8, "N": 16, "K": 32}, "4x4x4"]'):
        (tmp_path / "shapes").write_text(text)
        found = json_of(capsys, "--op", "GEMM_BIAS_ACT", "--shapes", str(tmp_path / "shapes"),
                        "--dry-run", "--arch", "sm_90a")
        assert [p["problem"].split()[1] for p in found["problems"]] == ["8x16x32", "4x4x4"]


def test_show_export_import_and_forget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(default_path()) as store:
        store.put(record("row/a"), record("row/b", state="wrong", reason="off by one"), DECISION)
    assert run(["tune", "show", "ROW: f32[8"]) == 0
    shown = capsys.readouterr().out
    assert "+20.0 % over the default" in shown and "off by one" in shown
    assert "not used: this ge2 has no such kernel" in shown
    assert json_of(capsys, "show", "nothing like it")["decisions"] == []
    assert run(["tune", "export", str(tmp_path / "e.jsonl"), "-q"]) == 0
    assert run(["tune", "forget", "row", "-q"]) == 0
    capsys.readouterr()
    assert json_of(capsys, "show", "-v")["records"] == []
    assert run(["tune", "import", str(tmp_path / "e.jsonl")]) == 0
    with Store(default_path()) as store:
        assert len(store.records()) == 2
        assert store.decisions() == [DECISION]


def test_a_bad_file_among_good_ones_imports_nothing(tmp_path: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    write_file(tmp_path / "good.jsonl", [record("row/a")])
    (tmp_path / "bad.jsonl").write_text('{"something": "else"}\n')
    assert run(["tune", "import", str(tmp_path / "good.jsonl"), str(tmp_path / "bad.jsonl")]) == 3
    assert "no evidence file" in capsys.readouterr().err
    assert not default_path().exists()


def test_merge_takes_the_newest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_file(tmp_path / "a.jsonl", [record("row/a"), record("row/b")])
    write_file(tmp_path / "b.jsonl", [record("row/a", time_us=2.0, date=200.0)])
    out = str(tmp_path / "m.jsonl")
    found = json_of(capsys, "merge", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), "-o",
                    out)
    assert found["items"] == 2
    assert json_of(capsys, "import", out)["files"] == {out: 2}
    with Store(default_path()) as store:
        assert sorted(r.time_us for r in store.records()) == [2.0, 2.5]


def test_forget_wants_to_know_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "forget"]) == 2
    assert run(["tune", "forget", "nothing"]) == 2
    assert "ge2 tune show" in capsys.readouterr().err


def test_a_plot_needs_one_problem(tmp_path: Path) -> None:
    assert run(["tune", "plot", "nothing"]) == 2


def test_a_plot_shows_the_candidates(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with Store(default_path()) as store:
        store.put(*(record(f"row/a[X={i}]", time_us=3.0 - i / 10, date=float(i)) for i in range(9)))
    target = tmp_path / "p.png"
    assert run(["tune", "plot", "ROW: f32[8", "-o", str(target)]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
