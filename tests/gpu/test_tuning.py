"""Tuning on a GPU: records as they are made, broken candidates, evidence that runs use."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ge2.cli import run
from ge2.compiler.kernels import registry
from ge2.evidence.records import Store, default_path

from ..cases.faulty import FAULTS, write_faulty

RELU = ["tune", "--op", "RELU", "--shape", "2000x300", "--dtype", "f32", "--run-timeout", "6s"]


@pytest.fixture(autouse=True)
def own_data(tmp_path, monkeypatch):
    monkeypatch.setenv("GE2_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "kernels").mkdir()
    monkeypatch.setenv("GE2_KERNEL_PATH", str(tmp_path / "kernels"))
    registry.reset()
    yield
    monkeypatch.undo()
    registry.reset()


def tuned(capsys, *args, code=0):
    registry.reset()
    assert run([*args, "--json", "-"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_broken_kernels_are_recorded_and_never_chosen(capsys, tmp_path):
    write_faulty(tmp_path / "kernels", *FAULTS, score=500)
    found = tuned(capsys, *RELU, "--trials", "40")
    (result,) = found["results"]
    states = {f["variant"].partition("/")[2].partition("[")[0]: f["state"]
              for f in result["failures"]}
    reasons = "\n".join(f"{f['variant']}: {f['reason'][:200]}" for f in result["failures"])
    assert states == {
        "faulty_half": "wrong", "faulty_value": "wrong", "faulty_input": "wrong",
        "faulty_loop": "timeout", "faulty_trap": "launch_error", "faulty_address": "launch_error",
        "faulty_syntax": "compile_error", "faulty_shared": "compile_error"}, reasons
    assert "faulty" not in result["decision"]["variant"]
    assert result["valid"] >= 3


def test_a_tuned_kernel_runs_and_is_explained(capsys, tmp_path):
    from ge2.evidence.device import DeviceProfile
    from ge2.runtime.device import probe
    from ge2.runtime.tuned import TunedChooser
    from ge2.tune.problems import Request, tasks_for

    profile: DeviceProfile = probe(0)
    (task,) = tasks_for(Request("GEMM_BIAS_ACT", ("512x512x512",), ("f16",)), profile)
    found = tuned(capsys, "tune", "--op", "GEMM_BIAS_ACT", "--shape", "512x512x512", "--dtype",
                  "f16", "--trials", "8")
    decision = found["results"][0]["decision"]
    choice = TunedChooser()(task.problem, profile)
    assert (choice.variant.id, choice.basis.kind) == (decision["variant"], "tuned")
    assert decision["time_us"] <= decision["default_us"] * 1.02
    again = tuned(capsys, "tune", "--op", "GEMM_BIAS_ACT", "--shape", "512x512x512", "--dtype",
                  "f16", "--trials", "8")
    assert again["known"] == again["tried"]


def test_records_hold_what_can_be_had(capsys):
    tuned(capsys, "tune", "--op", "SOFTMAX", "--shape", "4096x1024", "--dtype", "f16",
          "--trials", "4")
    with Store(default_path()) as store:
        records = store.records()
    assert len(records) == 4
    for record in records:
        assert record.is_ok, record.reason
        assert record.time_us > 0 and record.gbps > 0 and record.n >= 5 and record.samples
        assert record.registers > 0 and 0 < record.occupancy <= 1
        assert len(record.cubin) == len(record.sources) == 32
        assert record.driver and record.nvrtc and record.date


def test_users_memory_is_not_touched(capsys):
    import cupy

    values = np.arange(1 << 20, dtype=np.float32)
    mine = [cupy.asarray(values) for _ in range(4)]
    tuned(capsys, *RELU, "--trials", "4")
    for array in mine:
        np.testing.assert_array_equal(array.get(), values)
