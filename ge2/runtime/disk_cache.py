"""The cache of compiled kernels: keys, entries on disk, and what happens when the disk fails.

An entry is a folder `<2 characters>/<key>/` with kernel.cu, kernel.cubin and meta.json. Each file
is published by os.replace and meta.json comes last; it holds the cubin's checksum, so an entry that
is torn, cut or mixed is a miss and is built again. Nothing that the file system does is an error:
reading problems are misses, writing problems cost one warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import filelock
import msgspec

from .. import config, log, paths
from ..contract import GE2_API_VERSION
from ..errors import Invalid
from .nvrtc import Binary, Resources

SCHEMA = 1
SOURCE, CUBIN, META = "kernel.cu", "kernel.cubin", "meta.json"
LOCK_WARN_SECONDS = 10.0
LOCK_SECONDS = 60.0
_STALE_SECONDS = 3600.0
_SIZE = re.compile(r"(\d{1,15}(?:\.\d*)?)\s*([KMGT]?)(?:I?B)?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class Meta:
    """What meta.json says of an entry.

    Attributes:
        key: the entry's name.
        template, entry, arch, options, nvrtc, api, schema: what was compiled and how.
        is_ptx: kernel.cubin holds PTX, because the GPU is newer than NVRTC.
        resources: registers, spills, shared memory and warnings of ptxas.
        compile_ms: time in NVRTC.
        source_sha256, cubin_sha256: digests in hex; the second identifies evidence.
    """

    key: str
    template: str
    entry: str
    arch: str
    options: tuple[str, ...]
    nvrtc: tuple[int, int]
    is_ptx: bool
    resources: Resources
    compile_ms: float
    source_sha256: str
    cubin_sha256: str
    api: int = GE2_API_VERSION
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Entry:
    """One compiled kernel; path is None where it lives in memory only."""

    meta: Meta
    code: bytes
    path: Path | None


def sha256(content: bytes | str) -> str:
    """Return a digest in hex."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


def make_key(text: str, arch: str, options: Sequence[str], nvrtc: tuple[int, int]) -> str:
    """Return the key of a compile: everything that decides the cubin, and no path or time.

    Args:
        text: the rendered source; its first line holds the digest of all headers it reaches.
        arch: the -arch value with its suffix.
        options: NVRTC options.
        nvrtc: version of the compiler.
    """
    parts = [SCHEMA, GE2_API_VERSION, sha256(text), arch, list(options), list(nvrtc)]
    return sha256(json.dumps(parts))[:40]


def parse_size(text: str) -> int:
    """Return the bytes of "2G", "512M" or "1000".

    Raises:
        Invalid: the text is no size.
    """
    match = _SIZE.fullmatch(text.strip().upper())
    if match is None:
        raise Invalid("not a size", found=repr(text), wanted="such as 512M or 2G")
    return int(float(match[1]) * _UNITS[match[2]])


@dataclass(slots=True)
class DiskCache:
    """Entries below one folder.

    Attributes:
        root: the folder; None keeps everything in memory.
        max_bytes: size cap; the least recently used entries go first.
        always_miss: get() finds nothing (GE2_ALWAYS_COMPILE).
        quiet: note a problem without a warning (a worker; its parent warns, once).
        problem: the last problem with the folder, if any.
    """

    root: Path | None
    max_bytes: int = 2 << 30
    always_miss: bool = False
    _written: int = 0
    _trimmed: bool = False
    quiet: bool = False
    problem: str = ""

    def folder(self, key: str) -> Path | None:
        """Return the folder of an entry, there or not."""
        return self.root / key[:2] / key if self.root else None

    def get(self, key: str) -> Entry | None:
        """Return an entry, or None where there is none or it is not whole."""
        folder = self.folder(key)
        if folder is None or self.always_miss:
            return None
        try:
            meta = msgspec.json.decode((folder / META).read_bytes(), type=Meta)
            code = (folder / CUBIN).read_bytes()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if not isinstance(error, FileNotFoundError):
                log.topic("cache").info("cache entry %s is unusable: %s", folder, error)
            return None
        if reason := _mismatch(meta, key, code):
            log.topic("cache").info("cache entry %s is not whole: %s", folder, reason)
            return None
        _touch(folder / META)
        return Entry(meta, code, folder / CUBIN)

    def find(self, text: str, arch: str) -> Entry | None:
        """Return an entry of a source, whatever compiler made it (reads every meta.json).

        For machines without a compiler: what another one compiled there can run here.
        """
        wanted = sha256(text)
        for folder in self.root.glob("??/*") if self.root else ():
            try:
                found = msgspec.json.decode((folder / META).read_bytes(), type=Meta)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError):
                continue
            if (found.source_sha256, found.arch, found.api) == (wanted, arch, GE2_API_VERSION):
                return self.get(found.key)
        return None

    def put(self, key: str, text: str, code: bytes, meta: Meta) -> Entry:
        """Store an entry and return it; in memory only where the disk does not take it."""
        folder = self.folder(key)
        if folder is None:
            return Entry(meta, code, None)
        files = {SOURCE: text.encode(), CUBIN: code, META: msgspec.json.encode(meta)}
        try:
            self._publish(folder, files)
        except OSError as error:
            self.warn_once(f"kernel cache {self.root} cannot be written ({error.strerror or error})"
                           "; compiled kernels are kept in memory")
            return Entry(meta, code, None)
        self._written += sum(map(len, files.values()))
        if not self._trimmed or self._written > self.max_bytes // 16:
            self.trim()
        path = folder / CUBIN
        return Entry(meta, code, path if path.is_file() else None)

    def _publish(self, folder: Path, files: dict[str, bytes]) -> None:
        try:
            _write_files(folder, files)
        except (IsADirectoryError, NotADirectoryError, FileExistsError, FileNotFoundError):
            _remove(folder)  # A name of ours is taken, or the folder was just evicted: once more.
            _write_files(folder, files)

    def drop(self, key: str) -> None:
        """Remove an entry; it may be gone already."""
        folder = self.folder(key)
        if folder is not None:
            _remove(folder)

    @contextmanager
    def lock(self, key: str, seconds: float = LOCK_SECONDS) -> Iterator[bool]:
        """Hold the lock of a key; yields False, after at most `seconds`, where it is not to be had.

        The kernel releases it when its holder dies. Who gets False works on without it: publishing
        is atomic, so the lock only saves a second compile.
        """
        folder = self.folder(key)
        lock = None
        if folder is not None:
            lock = filelock.FileLock(folder / ".lock", thread_local=False)
        try:
            held = lock is not None and self._acquire(lock, seconds)
            yield held
        finally:
            if lock is not None:
                lock.release()

    def _acquire(self, lock: filelock.BaseFileLock, seconds: float) -> bool:
        path = Path(lock.lock_file)
        first = min(seconds, LOCK_WARN_SECONDS)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o775)
            try:
                lock.acquire(timeout=first, poll_interval=0.02)
            except filelock.Timeout:
                log.topic("cache").warning("waiting for lock %s held by pid %s", path,
                                           _holder(path))
                lock.acquire(timeout=seconds - first, poll_interval=0.1)
            path.with_suffix(".holder").write_text(str(os.getpid()))
        except filelock.Timeout:
            log.topic("cache").warning("no lock %s after %g s; compiling without it", path, seconds)
        except (OSError, NotImplementedError) as error:
            log.topic("cache").info("no lock %s: %s", path, error)
        return bool(lock.is_locked)

    def why_missing(self, wanted: Meta) -> str:
        """Return how the most similar entry of the same template differs (reads every meta.json).

        Args:
            wanted: its key, template, entry, arch, options, nvrtc and source_sha256 count.
        """
        differences: list[list[str]] = []
        for folder in self.root.glob("??/*") if self.root else ():
            try:
                found = msgspec.json.decode((folder / META).read_bytes(), type=Meta)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError):
                continue
            if found.key == wanted.key:
                return "the entry is not whole"
            if (found.template, found.entry) == (wanted.template, wanted.entry):
                differences.append([
                    f"{name} {getattr(found, name)} -> {getattr(wanted, name)}"
                    for name in ("schema", "api", "nvrtc", "options", "arch", "source_sha256")
                    if getattr(found, name) != getattr(wanted, name)])
        closest = min(differences, key=len, default=[])
        return "; ".join(closest) or "no entry of this template"

    def trim(self) -> int:
        """Remove the least recently used entries above the cap and leftovers; return bytes freed.

        Goes down to 90 % of the cap, so that a full cache is not trimmed at every write.
        """
        self._written, self._trimmed = 0, True
        found = sorted(self.usage(), key=lambda item: item[2])
        total = sum(size for _, size, _ in found)
        freed = 0
        if total > self.max_bytes:
            for folder, size, _ in found:
                if total - freed <= 0.9 * self.max_bytes:
                    break
                _remove(folder)
                freed += size
        return freed

    def usage(self) -> list[tuple[Path, int, float]]:
        """Return (folder, bytes, time of last use) of every entry; clears what killed writers left.
        """
        result = []
        now = time.time()
        for folder in sorted(self.root.glob("??/*")) if self.root else ():
            size, used, whole = _measure(folder, now)
            if whole:
                result.append((folder, size, used))
            elif now - used > _STALE_SECONDS:
                _remove(folder)
        return result

    def clear(self) -> tuple[int, int]:
        """Remove every entry; return how many there were, and how many could not be removed."""
        folders = sorted(self.root.glob("??/*")) if self.root else []
        for folder in folders:
            _remove(folder)
        return len(folders), sum(1 for folder in folders if folder.exists())

    def warn_once(self, message: str) -> None:
        """Log a warning unless this cache has logged one already."""
        if not self.problem and not self.quiet:
            log.topic("cache").warning("%s", message)
        self.problem = message


def _mismatch(meta: Meta, key: str, code: bytes) -> str:
    """Return why an entry must not be used, or an empty string."""
    if (meta.key, meta.schema, meta.api) != (key, SCHEMA, GE2_API_VERSION):
        return "it belongs to another key, schema or API version"
    if not code or sha256(code) != meta.cubin_sha256:
        return f"checksum of {CUBIN} differs ({len(code)} bytes)"
    return ""


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o775)
    for name, content in files.items():
        paths.write_atomic(folder / name, content)


def _touch(path: Path) -> None:
    """Record a use; access times are not kept on many file systems."""
    try:
        os.utime(path)
    except OSError as error:
        log.topic("cache").debug("cannot touch %s: %s", path, error)


def _measure(folder: Path, now: float) -> tuple[int, float, bool]:
    """Return (bytes, last use, whole) of an entry folder and delete old temporary files in it."""
    size, used, newest, whole = 0, 0.0, 0.0, False
    try:
        for item in os.scandir(folder):
            stat = item.stat(follow_symlinks=False)
            size += stat.st_size
            whole = whole or item.name == META
            used = stat.st_mtime if item.name == META else used
            newest = max(newest, stat.st_mtime)
            if item.name.startswith(".kernel") and now - stat.st_mtime > _STALE_SECONDS:
                Path(item.path).unlink(missing_ok=True)
    except OSError as error:
        log.topic("cache").debug("cannot read %s: %s", folder, error)
    return size, used if whole else newest, whole


def _remove(folder: Path) -> None:
    """Delete an entry; meta.json first, so that a reader in between finds a miss."""
    try:
        (folder / META).unlink(missing_ok=True)
    except OSError as error:
        log.topic("cache").debug("cannot remove %s: %s", folder / META, error)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and not folder.is_dir():
        folder.unlink(missing_ok=True)


def _holder(lock: Path) -> str:
    try:
        return lock.with_suffix(".holder").read_text()
    except OSError:
        return "unknown"


def default_cache() -> DiskCache:
    """Return the process's cache, as GE2_CACHE_DIR, GE2_CACHE and GE2_CACHE_MAX_SIZE say."""
    folder = paths.cache_dir() if config.get("GE2_CACHE") == "1" else None
    limit = parse_size(config.get("GE2_CACHE_MAX_SIZE"))
    return _open(folder, limit, config.get("GE2_ALWAYS_COMPILE") == "1")


@cache
def _open(folder: Path | None, limit: int, always_miss: bool) -> DiskCache:
    reason = paths.unusable_cache(folder) if folder else ""
    if folder and not reason:
        reason = paths.unusable_cache(folder / f"kernels-v{SCHEMA}")
    if not folder or reason:
        made = DiskCache(None, limit, always_miss)
    else:
        made = DiskCache(folder / f"kernels-v{SCHEMA}", limit, always_miss)
    if reason:
        made.warn_once(f"{reason}; compiled kernels are kept in memory")
    return made


def meta_of(key: str, template: str, entry: str, arch: str, options: Sequence[str],
            nvrtc: tuple[int, int], text: str, binary: Binary) -> Meta:
    """Return the meta.json of a fresh compile."""
    return Meta(key, template, entry, arch, tuple(options), nvrtc, binary.is_ptx, binary.resources,
                round(binary.compile_ms, 3), sha256(text), sha256(binary.code))
