"""Attention under stress, in a process of its own that a hanging kernel does not outlive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ge2.compiler.kernels import registry
from ge2.runtime.device import CudaDevice

ROOT = Path(__file__).parents[2]
LIMIT_S = 300


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize(("kernel", "module"), [
    ("attention_wgmma", "attention_stress"), ("attention_grad_wgmma", "attention_grad_stress")])
def test_many_short_tiles_give_the_same_rows_every_time(device: CudaDevice, kernel: str,
                                                        module: str) -> None:
    """Every wgmma variant, lengths around its tiles, more tiles than multiprocessors."""
    if not registry.get(kernel).runs_on(device.profile.arch):
        pytest.skip(f"{kernel} does not run on {device.profile.arch}")
    command = [sys.executable, "-m", f"tests.gpu.{module}"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S,
                              check=False)
    except subprocess.TimeoutExpired as expired:
        said = (expired.stdout or b"").decode().splitlines()
        pytest.fail(f"no end after {LIMIT_S} s; the last case was {said[-1:]}")
    wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
    assert done.returncode == 0, "\n".join(wrong) or done.stderr[-2000:]
