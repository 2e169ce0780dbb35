"""The whole search without a GPU: candidates run in a worker, on the emulator."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ge2.cli import run
from ge2.compiler.kernels import registry
from ge2.evidence.records import Store, default_path

from ..cases.faulty import write_faulty

ARGS = ["tune", "--op", "RELU", "--backend", "emulate", "--shape", "24x40", "--dtype", "f32",
        "--trials", "20"]


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GE2_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "kernels").mkdir()
    monkeypatch.setenv("GE2_KERNEL_PATH", str(tmp_path / "kernels"))
    registry.reset()
    yield
    monkeypatch.undo()
    registry.reset()


def tuned(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    registry.reset()
    assert run([*ARGS, *args, "--json", "-"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_search_decides_and_a_second_one_measures_nothing(
        capsys: pytest.CaptureFixture[str]) -> None:
    first = tuned(capsys)
    (result,) = first["results"]
    assert result["valid"] == result["tried"] > 3
    assert result["decision"]["device"].startswith("emulated ")
    second = tuned(capsys)
    assert second["known"] == second["tried"] == first["tried"]
    assert second["results"][0]["decision"] == result["decision"]


@pytest.mark.parametrize(("fault", "state", "says"), [
    ("faulty_half", "wrong", "480 of 960 elements are wrong"),
    ("faulty_value", "wrong", "elements are wrong"),
    ("faulty_input", "launch_error", "race"),
    ("faulty_address", "launch_error", ""),
    ("faulty_syntax", "launch_error", ""),
    ("faulty_trap", "crashed", "ended with code"),
])
def test_a_broken_kernel_is_recorded_and_never_chosen(
        capsys: pytest.CaptureFixture[str], tmp_path: Path, fault: str, state: str,
        says: str) -> None:
    write_faulty(tmp_path / "kernels", fault, score=500)  # the rules would choose it
    found = tuned(capsys)
    (failure,) = found["results"][0]["failures"]
    assert fault in failure["variant"]
    assert failure["state"] == state
    assert says in failure["reason"]
    decision = found["results"][0]["decision"]
    assert fault not in decision["variant"] and fault in decision["default"]
    with Store(default_path()) as store:
        assert sum(not r.is_ok for r in store.records()) == 1


def test_a_kernel_that_never_ends_costs_its_time_limit(
        capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_faulty(tmp_path / "kernels", "faulty_loop", score=500)
    start = time.monotonic()
    found = tuned(capsys, "--run-timeout", "8s")
    (failure,) = found["results"][0]["failures"]
    # Whichever ends it first: the time limit, or on a fast host the emulator's own.
    assert failure["state"] == "timeout" or "step limit" in failure["reason"], failure
    assert found["valid"] > 3
    assert time.monotonic() - start < 60


def test_no_valid_candidate_is_5_and_shows_the_first_error(
        capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
        ) -> None:
    write_faulty(tmp_path / "kernels", "faulty_half")
    own = registry.get("faulty_half")
    monkeypatch.setattr(registry, "kernels_for", lambda op_type: (own,))
    assert run(ARGS) == 5
    said = capsys.readouterr()
    assert "no valid candidate" in said.out
    assert "elements are wrong" in said.out


def _command() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "ge2", *ARGS, "-q"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def _count() -> int:
    if not default_path().exists():
        return 0
    with Store(default_path()) as store:
        return len(store.records())


def test_kill_9_at_random_points_and_resume(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever was recorded before a kill is there after it, and is not measured again."""
    draw = random.Random(0)
    before = 0
    for _ in range(3):
        process = _command()
        time.sleep(draw.uniform(1.0, 4.0))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        kept = _count()
        assert kept >= before
        before = kept
    found = tuned(capsys)
    assert found["known"] >= before
    assert found["results"][0]["decision"]


def test_ctrl_c_is_130_and_keeps_everything(capsys: pytest.CaptureFixture[str]) -> None:
    process = _command()
    until = time.monotonic() + 60
    while not _count() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    # A signal that meets the interpreter on its way out ends the process by itself, silently.
    if process.returncode in (0, -signal.SIGINT) and not errors.count("Traceback"):
        pytest.skip("the search was over before it could be interrupted")
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    kept = _count()
    assert kept
    assert tuned(capsys)["known"] == kept


def test_two_tuners_at_once_both_finish(capsys: pytest.CaptureFixture[str]) -> None:
    both = [_command(), _command()]
    ends = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], ends
    found = tuned(capsys)
    assert found["known"] == found["tried"]


def test_a_model_is_tuned_and_runs_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(Path("examples/digits/model.json").resolve())
    assert run(["tune", model, "--backend", "emulate", "--trials", "2", "--sym", "batch=2",
                "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tuned"] == found["problems"] == 5
    assert all(r["nodes"] for r in found["results"])
