"""Kernels of the cache in one file, and back."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import msgspec

from ..errors import ModelError
from ..runtime import disk_cache
from ..runtime.disk_cache import CUBIN, META, SOURCE, DiskCache, Meta

_FILES = "|".join(map(re.escape, (SOURCE, CUBIN, META)))
_MEMBER = re.compile(rf"([0-9a-f]{{40}})/({_FILES})")
_LARGEST = 64 << 20


def write_archive(store: DiskCache, path: Path, arch: str | None) -> tuple[int, int]:
    """Write the whole entries of a cache; return how many and their bytes.

    Raises:
        ModelError: the file cannot be written.
    """
    count = size = 0
    try:
        with tarfile.open(path, "w:gz") as archive:
            for folder, _, _ in store.usage():
                entry = store.get(folder.name)
                if entry is None or arch not in (None, entry.meta.arch):
                    continue
                files = {META: msgspec.json.encode(entry.meta), CUBIN: entry.code,
                         SOURCE: (folder / SOURCE).read_bytes()}
                for name, content in files.items():
                    member = tarfile.TarInfo(f"{folder.name}/{name}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
                count, size = count + 1, size + sum(map(len, files.values()))
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {error.strerror or error}") from None
    return count, size


def read_archive(store: DiskCache, path: Path) -> tuple[int, list[tuple[str, str]]]:
    """Add an archive's entries to a cache; return how many, and (name, reason) of the refused.

    Only the three files of an entry are read, by exact name; nothing is unpacked by path.

    Raises:
        ModelError: the file cannot be read, or is no archive.
    """
    entries: dict[str, dict[str, bytes]] = {}
    refused: list[tuple[str, str]] = []
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                match = _MEMBER.fullmatch(member.name)
                if match is None or not member.isfile() or member.size > _LARGEST:
                    refused.append((member.name, "it is no file of a cache entry"))
                    continue
                file = archive.extractfile(member)
                assert file is not None
                entries.setdefault(match[1], {})[match[2]] = file.read()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist") from None
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ModelError(f"{path} is not an archive of ge2 cache export: {error}") from None
    added = 0
    for key, files in entries.items():
        reason = _add(store, key, files)
        if reason:
            refused.append((key, reason))
        else:
            added += 1
    return added, refused


def _add(store: DiskCache, key: str, files: dict[str, bytes]) -> str:
    """Add one entry; return why it is refused, or an empty string."""
    if set(files) != {SOURCE, CUBIN, META}:
        return "it is not complete"
    try:
        meta = msgspec.json.decode(files[META], type=Meta)
        text = files[SOURCE].decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"it cannot be read: {error}"
    if disk_cache.sha256(text) != meta.source_sha256:
        return f"the checksum of {SOURCE} differs"
    expected = disk_cache.make_key(text, meta.arch, meta.options, meta.nvrtc)
    if meta.key != key or expected != key:
        return "its key is not that of its content, or it is of another ge2"
    if disk_cache.sha256(files[CUBIN]) != meta.cubin_sha256:
        return f"the checksum of {CUBIN} differs"
    return "" if store.put(key, text, files[CUBIN], meta).path else "it cannot be written"
