"""ge2 kernels emulate and new: a fresh kernel works, a broken one is caught."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ge2 import paths
from ge2.cli import run
from ge2.compiler.kernels import registry


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    paths.add_kernel_dir(tmp_path)
    yield tmp_path
    paths.remove_kernel_dirs()
    registry.reset()


@pytest.mark.parametrize("op", ["ELEMENTWISE", "ROW", "CONCAT"])
def test_a_new_kernel_is_right_until_it_is_broken(
        folder: Path, op: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not registry.kernels_for(op):
        pytest.skip(f"there are no {op} kernels")
    assert run(["kernels", "new", "mine", "--op", op, "--dir", str(folder)]) == 0
    registry.reset()
    assert run(["kernels", "emulate", "mine"]) == 0
    assert "all right" in capsys.readouterr().out
    template = folder / "mine.cu.j2"
    text = template.read_text()
    if "blockIdx.x" not in text:
        return  # its body is in a header
    template.write_text(text.replace("blockIdx.x", "(blockIdx.x + 1)"))
    registry.reset()
    assert run(["kernels", "emulate", "mine"]) == 1
    assert "FAIL" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["pool2d", "attention_grad_mma", "gemm_bias_act_wgmma_8bit",
                                  "gemm_bias_act_wgmma_f32", "matmul_nbits_mma"])
def test_right_kernels_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounded-up extents, weights of 16 bits, integer outputs of real numbers, tf32, large sums."""
    assert run(["kernels", "emulate", name]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("name", "shape", "output"), [
    ("gemm_bias_act_wgmma_8bit", "64,72,128", "[64, 72]"),
    ("gemm_bias_act_skinny", "3,40,64", "[3, 40]"),
    ("attention_mma", "1,2,20,33,32", "[1, 2, 20, 32]"),
    ("matmul_nbits_skinny", "5,24,64", "[5, 24]"), ("row_scan", "3,70", "[3, 70]"),
    ("conv2d_implicit", "1,16,9,8,24", "[1, 24, 9, 8]"), ("gather", "3,20,4,7", "[3, 7, 4]"),
    ("transpose_tiled", "40,40", "[40, 40]")])
def test_kernels_take_a_shape(name: str, shape: str, output: str,
                              capsys: pytest.CaptureFixture[str]) -> None:
    """Also where an example's extents are equal, or 1."""
    assert run(["kernels", "emulate", name, "--shape", shape]) == 0, capsys.readouterr()
    assert output in capsys.readouterr().out


@pytest.mark.parametrize(("shape", "code", "message"), [
    ("3,4", 2, "wanted BATCH,HEADS,QUERIES,KEYS,SIZE"), ("3,x", 2, "is a list of extents"),
    ("1,2,8,8,300", 5, "serves no example problem on sm_90a; found ATTENTION: f16[1, 2, 8, 300]")])
def test_a_bad_shape_says_what_is_wanted(shape: str, code: int, message: str,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "emulate", "attention_mma", "--shape", shape]) == code
    assert message in capsys.readouterr().err


def test_a_missing_compiler_is_said_once(monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GE2_CXX", "/no/such/compiler")
    assert run(["kernels", "emulate", "elementwise_vec"]) == 4
    out, err = capsys.readouterr()
    assert "FAIL" not in out
    assert err.count("GE2_CXX names no program") == 1


def test_new_writes_a_test_of_it(folder: Path) -> None:
    run(["kernels", "new", "mine", "--op", "ELEMENTWISE", "--dir", str(folder)])
    compile((folder / "test_mine.py").read_text(), "test_mine.py", "exec")
    assert run(["kernels", "new", "mine2", "--op", "ELEMENTWISE", "--dir", str(folder)]) == 0


def test_new_copies_a_kernel_that_runs_everywhere(folder: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "new", "mine", "--op", "GEMM_BIAS_ACT", "--dir", str(folder)]) == 0
    assert "a copy of gemm_bias_act_f32)" in capsys.readouterr().out


@pytest.mark.parametrize("args", [
    ("mine", "--op", "ELEMENTWIS"), ("a-b", "--op", "ROW"),
    ("elementwise_vec", "--op", "ELEMENTWISE"),
])
def test_new_refuses(folder: Path, args: tuple[str, ...]) -> None:
    assert run(["kernels", "new", *args, "--dir", str(folder)]) == 2
    assert not list(folder.iterdir())


def test_bench_tells_a_slower_kernel(monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    """The whole command with kernels on the emulator; only the clock is not a GPU's."""
    from ge2.commands import kernel_bench
    from ge2.evidence import measure
    from ge2.runtime.device import EmulatedDevice

    class Clock(NamedTuple):
        median: float

    def clock(candidates: dict[str, Any], seed: int, **options: Any) -> dict[str, Clock]:
        for launch in candidates.values():
            launch(0)
        return {"first": Clock(10.0 + 0.01 * seed), "second": Clock(12.0 + 0.02 * seed)}

    device = EmulatedDevice("sm_80")
    monkeypatch.setattr(kernel_bench, "cuda_device", lambda index: device)
    monkeypatch.setattr(measure, "measure", clock)
    assert run(["kernels", "bench", "elementwise_vec", "elementwise_strided", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "SLOW" and 1.19 < found["interval"][0] < found["interval"][1] < 1.21
    assert run(["kernels", "bench", "elementwise_vec", "gather"]) == 5
    assert "serves GATHER, not ELEMENTWISE" in capsys.readouterr().err


def test_the_profile_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    from ge2.commands import kernel_bench
    from ge2.runtime.device import EmulatedDevice

    script = tmp_path / "script.py"
    assert run(["kernels", "profile", "gather", "--output", str(script)]) == 0
    assert f"--kernel-name gather --export gather python {script}" in capsys.readouterr().out
    device = EmulatedDevice("sm_80")
    monkeypatch.setattr(kernel_bench, "cuda_device", lambda index: device)
    monkeypatch.setenv("GE2_LINEINFO", "0")
    runpy.run_path(str(script))
    assert os.environ["GE2_LINEINFO"] == "1"
