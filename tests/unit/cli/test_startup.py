"""What starting costs: no cupy, no NumPy, little time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest


def seconds(*args: str) -> float:
    """Return the CPU time of a Python command: what its wall time is on an idle machine."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *args], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def loaded_after(code: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json; print(json.dumps(list(sys.modules)))"],
        check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in json.loads(result.stdout.splitlines()[-1])}


@pytest.mark.parametrize("code", [
    "import ge2",
    "import ge2.cli",
    "from ge2.cli import run\nassert run(['--help']) == 0",
    "from ge2.cli import run\nassert run(['--version']) == 0",
    "from ge2.cli import run\nassert run(['env']) == 0",
])
def test_neither_numpy_nor_cupy_is_loaded(code: str) -> None:
    assert not loaded_after(code) & {"numpy", "cupy", "cupy_backends", "torch", "cuda"}


def test_a_model_is_loaded_without_cupy() -> None:
    code = "import ge2\nge2.load('examples/digits/model.json', backend='cpu')"
    assert "cupy" not in loaded_after(code)


def test_import_takes_at_most_150_ms_more_than_python() -> None:
    assert seconds("-c", "import ge2") - seconds("-c", "pass") < 0.15


def test_help_takes_at_most_300_ms_more_than_python() -> None:
    help_ = "from ge2.cli import run; run(['--help'])"
    assert seconds("-c", help_) - seconds("-c", "pass") < 0.3
