"""Realizations on the emulator: all are right, and a wrong one is caught and not offered again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ge2 import paths
from ge2.cli import run
from ge2.compiler.kernels import registry
from ge2.evidence.records import Store, default_path
from ge2.lab import primitives
from ge2.lab.realizations import realizations
from ge2.lab.verify import offered, verify
from ge2.runtime.device import EmulatedDevice


@pytest.mark.parametrize("family", primitives.FAMILIES)
def test_every_realization_agrees_with_float64(family: str) -> None:
    results = list(verify(EmulatedDevice(), [family]))
    assert len(results) == len(realizations(family, "sm_90a"))
    assert not [f"{r.realization.name}: {r.reason}" for r in results if not r.is_ok]


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one more streaming realization, which forgets to rescale the weighted sum."""
    folder = tmp_path / "kernels" / "include" / "ge2" / "prim" / "stream"
    folder.mkdir(parents=True)
    text = (paths.include_dir() / "ge2/prim/stream/online.cuh").read_text()
    broken = text.replace("::online", "::forgetful").replace("state.acc * keep", "state.acc")
    assert broken.count("keep") == text.count("keep") - 1
    (folder / "forgetful.cuh").write_text(broken)
    monkeypatch.setenv("GE2_KERNEL_PATH", str(tmp_path / "kernels"))
    monkeypatch.setenv("GE2_DATA_DIR", str(tmp_path / "data"))
    registry.reset()
    yield folder / "forgetful.cuh"
    monkeypatch.undo()
    registry.reset()


def test_a_wrong_realization_is_caught_and_no_longer_offered(
        wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "forgetful" in [one.name for one in offered("streaming", [])]
    assert run(["lab", "verify", "streaming", "--backend", "emulate"]) == 1
    assert "forgetful" in capsys.readouterr().out
    with Store(default_path()) as store:
        records = store.records()
    assert "forgetful" not in [one.name for one in offered("streaming", records)]
    # Mended, it is offered again: what failed were other sources.
    wrong.write_text(wrong.read_text().replace("state.acc + weight", "state.acc * keep + weight"))
    assert "forgetful" in [one.name for one in offered("streaming", records)]
    assert run(["lab", "verify", "streaming", "--backend", "emulate", "-q"]) == 0
