"""The kernel cache: what decides a key, and that no state of the disk is an error."""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from ge2 import paths
from ge2.errors import Invalid
from ge2.runtime import disk_cache
from ge2.runtime.disk_cache import CUBIN, META, SOURCE, DiskCache, Entry, Meta, make_key, sha256
from ge2.runtime.nvrtc import Resources

KEY = make_key("text", "sm_90a", ("-std=c++17",), (13, 0))


def meta(key: str = KEY, code: bytes = b"code") -> Meta:
    return Meta(key, "gemm/k.cu.j2", "k", "sm_90a", ("-std=c++17",), (13, 0), False,
                Resources(registers=32, warnings=("slow",)), 1.5, sha256("text"), sha256(code))


def put(cache: DiskCache, key: str = KEY, code: bytes = b"code") -> Entry:
    return cache.put(key, "text", code, meta(key, code))


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "root")


def folder(cache: DiskCache, key: str = KEY) -> Path:
    found = cache.folder(key)
    assert found is not None
    return found


@pytest.mark.parametrize(("position", "other"), [
    (0, "text2"), (1, "sm_90"), (2, ("-std=c++20",)), (3, (13, 1)),
])
def test_everything_that_decides_a_cubin_is_in_the_key(position: int, other: object) -> None:
    parts: list[object] = ["text", "sm_90a", ("-std=c++17",), (13, 0)]
    parts[position] = other
    assert make_key(*parts) != KEY  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["GE2_API_VERSION", "SCHEMA"])
def test_both_versions_are_in_the_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, name, 99)
    assert make_key("text", "sm_90a", ("-std=c++17",), (13, 0)) != KEY


def test_cupy_starts_where_its_cache_folder_cannot_be_made(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy makes it when imported, and is not imported where that fails."""
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUPY_CACHE_DIR", "chosen")
    paths.let_cupy_start.__wrapped__()
    assert os.environ["CUPY_CACHE_DIR"] == "chosen"
    monkeypatch.delenv("CUPY_CACHE_DIR")
    paths.let_cupy_start.__wrapped__()
    assert os.environ["CUPY_CACHE_DIR"] == str(paths.private_folder() / "cupy")
    monkeypatch.delenv("CUPY_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    paths.let_cupy_start.__wrapped__()
    assert "CUPY_CACHE_DIR" not in os.environ


def test_an_entry_comes_back_whole(cache: DiskCache) -> None:
    assert cache.get(KEY) is None
    stored = put(cache)
    assert cache.get(KEY) == stored == Entry(meta(), b"code", folder(cache) / CUBIN)
    assert folder(cache).parent.name == KEY[:2]
    names = {p.name for p in folder(cache).iterdir()}
    assert names == {SOURCE, CUBIN, META}, "no temporary file stays"
    assert (folder(cache) / SOURCE).read_text() == "text"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", [CUBIN, META])
@pytest.mark.parametrize("harm", [
    Path.unlink, cut, replace_by_folder, lambda p: p.write_bytes(b""),
    lambda p: p.write_bytes(b"\xff\xfe{"), lambda p: p.write_bytes(b"{}"),
], ids=["missing", "cut", "folder", "empty", "binary", "other"])
def test_a_damaged_entry_is_a_miss_and_heals(cache: DiskCache, name: str, harm: object) -> None:
    put(cache)
    harm(folder(cache) / name)  # type: ignore[operator]
    assert cache.get(KEY) is None
    assert put(cache).path is not None and cache.problem == ""
    assert cache.get(KEY) is not None


@pytest.mark.parametrize("change", [{"key": "0" * 40}, {"api": 0}, {"schema": 0}])
def test_an_entry_of_another_key_or_version_is_a_miss(cache: DiskCache, change: dict) -> None:
    cache.put(KEY, "text", b"code", dataclasses.replace(meta(), **change))
    assert cache.get(KEY) is None


def test_an_unreadable_entry_is_a_miss(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cache)

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert cache.get(KEY) is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_takes_nothing_costs_one_warning(
        cache: DiskCache, code: int, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(paths, "write_atomic", refuse)
    entries = [put(cache, KEY[:-1] + digit) for digit in "0123"]
    assert [e.code for e in entries] == [b"code"] * 4 and not any(e.path for e in entries)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert os.strerror(code) in record.message and str(cache.root) in record.message


def test_a_folder_that_cannot_be_made_costs_one_warning(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "file" / "cache"))
    for _ in range(3):
        assert disk_cache.default_cache().root is None
    assert put(disk_cache.default_cache()).code == b"code"
    assert len(caplog.records) == 1 and "cannot be made" in caplog.text


def test_a_world_writable_folder_is_refused_with_the_reason(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "open"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert disk_cache.default_cache().root is None
    assert "writable by every user" in caplog.text and "chmod o-w" in caplog.text


def test_a_world_writable_folder_of_entries_is_refused_too(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path))
    (tmp_path / f"kernels-v{disk_cache.SCHEMA}").mkdir()
    (tmp_path / f"kernels-v{disk_cache.SCHEMA}").chmod(0o777)
    assert disk_cache.default_cache().root is None
    assert "writable by every user" in caplog.text


def test_a_group_shared_folder_is_used_as_it_is(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2775)
    monkeypatch.setenv("GE2_CACHE_DIR", str(shared))
    assert put(disk_cache.default_cache()).path is not None
    assert shared.stat().st_mode & 0o7777 == 0o2775


def test_a_new_folder_is_the_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "new"))
    assert put(disk_cache.default_cache()).path is not None
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_cache_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "off"))
    monkeypatch.setenv("GE2_CACHE", "0")
    assert put(disk_cache.default_cache()).path is None
    assert not (tmp_path / "off").exists()


def test_the_least_recently_used_go_first(cache: DiskCache) -> None:
    keys = [sha256(str(i))[:40] for i in range(4)]
    size = 0
    for age, key in enumerate(keys):
        put(cache, key, bytes(100_000))
        os.utime(folder(cache, key) / META, (1e9 - age, 1e9 - age))
        size = max(size, *(s for _, s, _ in cache.usage()))
    assert cache.get(keys[3]) is not None, "reading the oldest makes it the newest"
    cache.max_bytes = int(2.5 * size)
    cache.trim()
    left = {key for key in keys if cache.get(key)}
    assert left == {keys[0], keys[3]}


def test_leftovers_of_killed_writers_are_cleared_but_not_those_at_work(cache: DiskCache) -> None:
    put(cache)
    old, new = folder(cache) / f".{CUBIN}.old", folder(cache) / f".{CUBIN}.new"
    torn = folder(cache, "ab" + KEY[2:])
    torn.mkdir(parents=True)
    (torn / CUBIN).write_bytes(b"half")
    for path in (old, new):
        path.write_bytes(b"half")
    long_ago = time.time() - 7200
    for path in (old, torn / CUBIN):
        os.utime(path, (long_ago, long_ago))
    cache.trim()
    assert not old.exists() and not torn.exists()
    assert new.exists() and cache.get(KEY)


def test_an_entry_above_the_cap_is_still_returned(tmp_path: Path) -> None:
    entry = put(DiskCache(tmp_path, max_bytes=10))
    assert entry.code == b"code" and entry.path is None


def test_readers_never_see_half_an_entry(cache: DiskCache) -> None:
    codes = [bytes([i]) * 200_000 for i in range(2)]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for code in codes:
                put(cache, code=code)

    writer = threading.Thread(target=write)
    put(cache, code=codes[0])
    writer.start()
    seen: list[bytes] = []
    end = time.monotonic() + 60
    try:
        while (len(seen) < 100 or len(set(seen)) < 2) and time.monotonic() < end:
            if entry := cache.get(KEY):
                seen.append(entry.code)
    finally:
        stop.set()
        writer.join()
    assert set(seen) == set(codes)


def test_a_lock_is_not_waited_for_forever(
        cache: DiskCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
        ) -> None:
    monkeypatch.setattr(disk_cache, "LOCK_WARN_SECONDS", 0.1)
    with cache.lock(KEY) as held:
        assert held
        start = time.monotonic()
        with DiskCache(cache.root).lock(KEY, seconds=0.3) as again:
            assert not again
        assert time.monotonic() - start < 5
    assert f"held by pid {os.getpid()}" in caplog.text and "compiling without it" in caplog.text
    with cache.lock(KEY, seconds=0) as free:
        assert free, "it was released"


def test_the_lock_of_a_killed_process_is_free(cache: DiskCache) -> None:
    script = ("import sys, time; from pathlib import Path; from ge2.runtime.disk_cache import *\n"
              "with DiskCache(Path(sys.argv[1])).lock(sys.argv[2]) as held:\n"
              "    print(held, flush=True); time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", script, str(cache.root), KEY],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    with holder:
        assert holder.stdout and holder.stdout.readline().strip() == "True"
        with cache.lock(KEY, seconds=0) as held:
            assert not held
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with cache.lock(KEY, seconds=5) as held:
        assert held


def test_a_file_system_without_locks_is_worked_on_without(
        cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, *args: object, **kw: object) -> None:
        raise NotImplementedError("no flock here")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with cache.lock(KEY) as held:
        assert not held
        assert put(cache).path is not None


def test_clear_and_drop(cache: DiskCache) -> None:
    put(cache)
    put(cache, "ff" + KEY[2:])
    cache.drop(KEY)
    assert cache.get(KEY) is None and len(cache.usage()) == 1
    assert cache.clear() == (1, 0) and cache.usage() == []
    cache.drop(KEY)


@pytest.mark.parametrize(("text", "expected"), [
    ("2G", 2 << 30), ("512m", 512 << 20), ("1.5K", 1536), ("1000", 1000), ("3GB", 3 << 30),
])
def test_sizes(text: str, expected: int) -> None:
    assert disk_cache.parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "lots", "G", "-", "1X"])
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="such as 512M"):
        disk_cache.parse_size(text)
