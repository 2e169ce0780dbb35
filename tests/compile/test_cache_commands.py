"""ge2 cache: info, list, verify, prune, export, import, clear on a real cache."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ge2.cli import run
from ge2.runtime import disk_cache, jit

pytest.importorskip("cupy")
KERNEL = "elementwise_strided"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder with a few kernels in it."""
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "_table", jit._Table())
    assert run(["kernels", "compile", KERNEL, "--arch", "sm_80"]) == 0
    yield tmp_path / "cache"
    disk_cache._open.cache_clear()


@pytest.fixture
def ge2(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*args: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert run([*args, "--json", "-", "-q"]) == code
        return json.loads(capsys.readouterr().out)

    return call


def kernels(cache: Path) -> list[Path]:
    return sorted(cache.glob("kernels-v*/??/*/kernel.cubin"))


def test_info_and_list(cache: Path, ge2: Any) -> None:
    count = len(kernels(cache))
    assert count > 0
    info = ge2("cache", "info")
    assert info["kernels"] == count and info["on_disk"]
    listed = ge2("cache", "list")["kernels"]
    assert {item["entry"] for item in listed} == {KERNEL}
    assert all(item["registers"] > 0 and item["arch"] == "sm_80" for item in listed)


def test_verify_finds_and_repairs(cache: Path, ge2: Any) -> None:
    assert ge2("cache", "verify")["bad"] == []
    victim = kernels(cache)[0]
    victim.write_bytes(victim.read_bytes()[:-1])
    found = ge2("cache", "verify", code=1)["bad"]
    assert [item["folder"] for item in found] == [str(victim.parent)]
    ge2("cache", "verify", "--repair")
    assert victim not in kernels(cache)
    assert ge2("cache", "verify")["bad"] == []


def test_prune(cache: Path, ge2: Any) -> None:
    count = len(kernels(cache))
    assert ge2("cache", "prune", "--older-than", "1d")["removed"] == 0
    assert ge2("cache", "prune", "--max-size", "0")["removed"] == count
    assert kernels(cache) == []


def test_clear(cache: Path, ge2: Any) -> None:
    assert ge2("cache", "clear")["left"] == 0
    assert kernels(cache) == []


def test_export_and_import(cache: Path, ge2: Any, tmp_path: Path) -> None:
    before = {p.parent.name: p.read_bytes() for p in kernels(cache)}
    file = str(tmp_path / "kernels.tar.gz")
    assert ge2("cache", "export", file)["kernels"] == len(before)
    ge2("cache", "clear")
    assert ge2("cache", "import", file)["imported"] == len(before)
    assert {p.parent.name: p.read_bytes() for p in kernels(cache)} == before
    assert ge2("cache", "verify")["bad"] == []
    assert ge2("cache", "export", file, "--arch", "sm_75")["kernels"] == 0


def test_import_refuses_what_is_not_what_it_says(cache: Path, ge2: Any, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.tar.gz", tmp_path / "bad.tar.gz"
    ge2("cache", "export", str(good))
    with tarfile.open(good) as source, tarfile.open(bad, "w:gz") as target:
        for index, member in enumerate(source):
            data = source.extractfile(member).read()  # type: ignore[union-attr]
            if index == 1:
                data = bytes([data[0] ^ 1]) + data[1:]
            target.addfile(member, io.BytesIO(data))
        for name in ("../../evil", "/etc/evil", "0" * 40 + "/other"):
            target.addfile(tarfile.TarInfo(name), io.BytesIO())
    count = len(kernels(cache))
    ge2("cache", "clear")
    result = ge2("cache", "import", str(bad), code=1)
    assert result["imported"] == count - 1
    assert len(result["refused"]) == 4
    assert not (tmp_path / "evil").exists()


def test_import_of_no_archive(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
                              ) -> None:
    (tmp_path / "x").write_text("hello")
    assert run(["cache", "import", str(tmp_path / "x")]) == 3
    assert "is not an archive" in capsys.readouterr().err
    assert run(["cache", "import", str(tmp_path / "y")]) == 3
