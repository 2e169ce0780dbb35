"""The probe's points, its summary and its files; the kernels run in tests/emulate/test_probe.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ge2.cli import run
from ge2.evidence import profiles
from ge2.evidence.device import profile_for
from ge2.evidence.records import EvidenceError
from ge2.lab.probe import chain, summary
from ge2.lab.probe_cases import ACCESS, Memory, cases

H200 = profile_for("sm_90a")


def document(**more: object) -> dict[str, object]:
    return {"ge2_probe": 1, "device": "NVIDIA H200|sm_90a|132", "summary": {"copy_gbps": 4242.0},
            "sections": {}, **more}


def test_points_have_names_of_their_own() -> None:
    names = [case.name for case in cases(H200)]
    assert len(names) == len(set(names)) > 100


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_120a"])
def test_older_devices_get_fewer_points_that_fit(arch: str) -> None:
    device = profile_for(arch)
    found = list(cases(device))
    assert {c.section for c in found} >= {"size", "l2", "latency", "shared", "rate", "barrier"}
    assert all(c.record.smem <= device.smem_per_block for c in found)
    assert not any(dict(c.params).get("unit") == "wgmma" for c in found)


def test_a_copy_counts_what_it_reads_and_what_it_writes() -> None:
    copy = Memory("copy", 1 << 20, 2, 128).case("size", bytes=1)
    read = Memory("read", 1 << 20, 2, 128).case("size", bytes=1)
    assert copy.work == 2 * read.work == 2 << 20
    assert copy.record.grid[0] * 2 * 128 * ACCESS == 1 << 20
    assert copy.value(1.0) == pytest.approx(2 * (1 << 20) / 1e3)  # bytes per us are MB/s


def test_a_chain_visits_every_line_once() -> None:
    words = chain(257)
    seen, at = [], 0
    for _ in range(257):
        seen.append(at)
        at = int(words[at])
    assert at == 0 and np.array_equal(np.sort(seen), np.arange(257) * 32)


def test_the_summary_takes_the_best_bandwidth_of_the_largest_buffers() -> None:
    points = [{"mode": "copy", "bytes": size, "value": value}
              for size, value in ((10, 9000.0), (1000, 4000.0), (1000, 4200.0))]
    assert summary({"size": points})["copy_gbps"] == 4200.0


def test_a_written_profile_replaces_data_sheet_figures(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_DATA_DIR", str(tmp_path))
    profiles.write(document())
    found = profiles.measured(H200)
    assert found.copy_gbps == 4242.0 and found.sm_count == H200.sm_count


@pytest.mark.parametrize(("text", "reason"), [
    ("{", "cannot be read"), ("[]", "no device profile"), ('{"a": 1}', "no device profile"),
    (json.dumps({"ge2_probe": 99}), "newer"), (json.dumps({"ge2_probe": 1}), "lacks"),
])
def test_foreign_profiles_are_refused_with_the_reason(
        tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(EvidenceError, match=reason):
        profiles.read(path)


def test_the_command_says_that_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from ge2.runtime import driver

    if driver.is_available():
        pytest.skip("this machine has a GPU")
    assert run(["probe"]) == 4
