"""ge2 cache: what is in the cache of compiled kernels, and keeping it in order."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click
import msgspec

from .. import paths
from ..runtime import disk_cache
from ..runtime.disk_cache import CUBIN, META, DiskCache, Meta
from .output import Report, bad, human_bytes, report_options

_AGE = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.group()
def cache() -> None:
    """Look after the cache of compiled kernels."""


@cache.command()
@report_options
def info(json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Show where the cache is, how large, and its cap."""
    report = Report(json_target, quiet=quiet, verbose=verbose)
    store = disk_cache.default_cache()
    usage = store.usage()
    size = sum(bytes_ for _, bytes_, _ in usage)
    report.line(f"folder   {paths.cache_dir()}")
    report.line(f"kernels  {len(usage)}")
    report.line(f"size     {human_bytes(size)} of {human_bytes(store.max_bytes)}")
    if store.root is None:
        report.line(f"state    in memory only: {store.problem or 'GE2_CACHE=0'}")
    report.data = {"folder": str(paths.cache_dir()), "kernels": len(usage), "bytes": size,
                   "max_bytes": store.max_bytes, "on_disk": store.root is not None,
                   "problem": store.problem}
    report.finish()


@cache.command("list")
@report_options
def list_(json_target: str | None, quiet: bool, verbose: bool) -> None:
    """List the kernels, most recently used first."""
    report = Report(json_target, quiet=quiet, verbose=verbose)
    rows, data = [], []
    for folder, size, used in sorted(_store().usage(), key=lambda item: -item[2]):
        meta = _meta(folder)
        if meta is None:
            continue
        age = _age(time.time() - used)
        rows.append((folder.name[:12], meta.entry, meta.arch, human_bytes(size),
                     meta.resources.registers, meta.resources.spill_stores,
                     f"{meta.compile_ms:.0f} ms", age))
        data.append({"key": folder.name, "entry": meta.entry, "arch": meta.arch, "bytes": size,
                     "template": meta.template, "nvrtc": meta.nvrtc, "last_used": used,
                     "registers": meta.resources.registers, "compile_ms": meta.compile_ms})
    report.table(("key", "kernel", "arch", "size", "regs", "spills", "compile", "last used"), rows,
                 right=frozenset({3, 4, 5, 6, 7}))
    report.data = {"kernels": data}
    report.finish()


@cache.command()
@click.option("--repair", is_flag=True, help="Remove what is not whole.")
@report_options
def verify(repair: bool, json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Check every kernel against its checksum; exit code 1 when one is bad."""
    report = Report(json_target, quiet=quiet, verbose=verbose)
    store = _store()
    broken = []
    usage = store.usage()
    for folder, _, _ in usage:
        reason = _problem(folder)
        if reason:
            broken.append({"folder": str(folder), "reason": reason})
            report.line(f"{bad('bad')}  {folder}: {reason}{' (removed)' if repair else ''}")
            if repair:
                store.drop(folder.name)
    report.line(f"{len(usage) - len(broken)} of {len(usage)} kernels are whole")
    if broken and not repair:
        report.message("a bad kernel is compiled again when it is needed; ge2 cache verify "
                       "--repair removes it now")
    report.data = {"kernels": len(usage), "bad": broken, "repaired": repair}
    report.finish()
    return 1 if broken and not repair else 0


@cache.command()
@click.option("--max-size", metavar="SIZE", help="Keep at most this much (512M, 2G).")
@click.option("--older-than", metavar="AGE", help="Remove what was not used for 30d, 12h, ...")
@report_options
def prune(max_size: str | None, older_than: str | None, json_target: str | None, quiet: bool,
          verbose: bool) -> None:
    """Remove kernels that were not used lately, by size or age."""
    report = Report(json_target, quiet=quiet, verbose=verbose)
    store = _store()
    removed = freed = 0
    limit = store.max_bytes if max_size is None else disk_cache.parse_size(max_size)
    total = sum(size for _, size, _ in store.usage())
    oldest = _oldest(older_than)
    for folder, size, used in sorted(store.usage(), key=lambda item: item[2]):
        if used < oldest or total - freed > limit:
            store.drop(folder.name)
            removed, freed = removed + 1, freed + size
    report.line(f"removed {removed} kernels, {human_bytes(freed)}")
    report.data = {"removed": removed, "bytes": freed}
    report.finish()


@cache.command()
@report_options
def clear(json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Remove every compiled kernel; exit code 1 when some could not be removed."""
    report = Report(json_target, quiet=quiet, verbose=verbose)
    store = _store()
    count, left = store.clear()
    report.line(f"removed {count - left} kernels from {store.root or 'memory'}")
    if left:
        report.line(f"{bad('bad')}  {left} kernels could not be removed: is {store.root} yours?")
    report.data = {"removed": count - left, "left": left}
    report.finish()
    return 1 if left else 0


@cache.command()
@click.argument("file")
@click.option("--arch", metavar="SM", help="Only kernels of this architecture.")
@report_options
def export(file: str, arch: str | None, json_target: str | None, quiet: bool, verbose: bool
           ) -> None:
    """Write the kernels into FILE (a .tar.gz), to import them on a machine of the same kind."""
    from .cache_archive import write_archive

    report = Report(json_target, quiet=quiet, verbose=verbose)
    count, size = write_archive(_store(), Path(file), arch)
    report.line(f"wrote {count} kernels, {human_bytes(size)}, to {file}")
    report.data = {"kernels": count, "bytes": size, "file": file}
    report.finish()


@cache.command("import")
@click.argument("file")
@report_options
def import_(file: str, json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Add the kernels of FILE, which `ge2 cache export` wrote.

    Kernels are programs: import files only from those whose programs you would run. Each one's
    checksum and contract version is looked at; exit code 1 when some are refused.
    """
    from .cache_archive import read_archive

    report = Report(json_target, quiet=quiet, verbose=verbose)
    added, refused = read_archive(_store(), Path(file))
    for name, reason in refused:
        report.line(f"{bad('refused')}  {name}: {reason}")
    report.line(f"imported {added} kernels")
    report.data = {"imported": added, "refused": [{"name": n, "reason": r} for n, r in refused]}
    report.finish()
    return 1 if refused else 0


def _store() -> DiskCache:
    return disk_cache.default_cache()


def _meta(folder: Path) -> Meta | None:
    try:
        return msgspec.json.decode((folder / META).read_bytes(), type=Meta)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _problem(folder: Path) -> str:
    meta = _meta(folder)
    if meta is None:
        return f"{META} cannot be read"
    try:
        code = (folder / CUBIN).read_bytes()
    except OSError as error:
        return f"{CUBIN} cannot be read: {error.strerror}"
    if meta.key != folder.name:
        return "it belongs to another key"
    if disk_cache.sha256(code) != meta.cubin_sha256:
        return f"the checksum of {CUBIN} differs"
    return ""


def _oldest(older_than: str | None) -> float:
    if older_than is None:
        return 0.0
    match = _AGE.fullmatch(older_than)
    if match is None:
        raise click.BadParameter(f"{older_than!r} is not an age such as 30d, 12h or 90m",
                                 param_hint="--older-than")
    return time.time() - int(match[1]) * _SECONDS[match[2]]


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit} ago"
    return "just now"
