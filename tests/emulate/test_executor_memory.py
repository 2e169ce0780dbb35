"""What the emulator checks across a call's launches, and what is kept of one that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.errors import Ge2Error, LaunchFailed
from ge2.runtime import repro
from ge2.runtime.device import EmulatedUnit
from ge2.runtime.emulate import EmulationError
from ge2.runtime.executor import Executable
from ge2.runtime.shadow import Shadow

MODEL = """
input x: f32[6, 64]
a = SOFTMAX(x)
b = EXP(a)
y = ADD(b, x)
output y
"""


@pytest.fixture
def executable() -> Executable:
    return Executable(parse_graph(MODEL, infer=opdefs.infer), "emulate")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "cache"))


X = np.linspace(-1, 1, 6 * 64, dtype=np.float32).reshape(6, 64)


def _skipping(monkeypatch: pytest.MonkeyPatch, skipped: int) -> None:
    """Let launch number `skipped` do nothing."""
    real, count = EmulatedUnit.__call__, iter(range(100))

    def call(self: EmulatedUnit, stream: int, /) -> None:
        if next(count) != skipped:
            real(self, stream)

    monkeypatch.setattr(EmulatedUnit, "__call__", call)


def test_a_read_of_what_no_launch_wrote_is_found(executable: Executable,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    _skipping(monkeypatch, 0)
    with pytest.raises(EmulationError, match=r"(?s)EXP.*(uninitiali[sz]ed|wrote)"):
        executable.run({"x": X})


def test_inputs_are_read_only_and_outputs_are_not(executable: Executable,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    real = Shadow.before

    def before(self: Shadow, step, *args):
        memory = real(self, step, *args)
        seen[step.node.op] = {b.name: (b.writable, b.initialised) for b in memory.buffers}
        return memory

    monkeypatch.setattr(Shadow, "before", before)
    np.testing.assert_allclose(executable.run({"x": X})["y"], np.exp(
        np.exp(X) / np.exp(X).sum(1, keepdims=True)) + X, rtol=1e-5)
    assert seen["SOFTMAX"]["input 'x'"] == (False, True)
    assert (True, False) in seen["SOFTMAX"].values()
    assert all(set(v.values()) <= {(False, True), (True, False), (False, False)}
               for v in seen.values())


def test_semaphores_must_be_zero_after_a_launch(executable: Executable) -> None:
    step = executable.plan().steps[0]
    words = np.zeros(4, np.uint32)
    shadow = Shadow(executable.plan())
    address = words.ctypes.data
    shadow.before(step, [0] * 9, (0,) * 9, (address, 16))
    shadow.after()
    words[2] = 7
    with pytest.raises(LaunchFailed, match=r"7 in word 2"):
        shadow.after()


def test_a_failed_launch_leaves_a_folder_that_fails_again(
        executable: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _skipping(patch, 0)
        with pytest.raises(Ge2Error) as caught:
            executable.run({"x": X})
    (note,) = caught.value.__notes__
    folder = Path(note.split(" has what")[0])
    assert {f.name for f in folder.iterdir()} == {"kernel.cu", "launch.json", "run.py"}
    record, about = repro.load(folder)
    assert about["op"] in ("EXP", "ADD", "FUSED_ELEMENTWISE")
    assert record.kernel in {r.kernel for r in executable.plan().records}
    assert all(size == 6 * 64 * 4 for size in about["buffers"])
    done = subprocess.run([sys.executable, str(folder / "run.py"), "emulate"],
                          capture_output=True, text=True, timeout=300)
    assert "the launch succeeded" in done.stdout, done.stderr  # with buffers that hold zeros
