"""Sources in, loaded functions out: what a plan needs is compiled once, in parallel where it pays.

Compiling needs no GPU. Each (source, arch) is compiled once per process however many threads ask;
more than two missing kernels go to worker processes.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config, log, paths
from ..compiler.kernels import source as sources_of
from ..contract import GE2_API_VERSION
from ..errors import (
    ApiVersionMismatch,
    CompileFailed,
    EnvironmentUnusable,
    Invalid,
    LaunchFailed,
)
from ..launch.record import KernelSource
from . import compile_worker, disk_cache, elf, failures, nvrtc
from .compile_worker import Request, Result
from .disk_cache import Meta

IN_PROCESS_LIMIT = 2
_FIRST_ERROR = re.compile(r"^.*\b(error|fatal)\b.*$", re.MULTILINE)
_PTX_VERSION = re.compile(rb"\b" + sources_of.API_SYMBOL.encode() + rb" = (\d+)")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel on disk.

    Attributes:
        path: the cubin (PTX where meta.is_ptx), in the cache or in a folder of this process.
        meta: what is known of it.
        from_cache: nothing was compiled for it in this process.
    """

    path: Path
    meta: Meta
    from_cache: bool


class _Table:
    """What this process has compiled or is compiling, and the modules it has loaded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.futures: dict[tuple[KernelSource, str], Future[Compiled]] = {}
        self.functions: dict[tuple[KernelSource, int], int] = {}
        self.modules: list[Any] = []

    def forget_parents(self) -> None:
        """Drop, in a forked child, what the parent's threads were compiling and had loaded."""
        self.lock = threading.Lock()
        self.futures = {key: future for key, future in self.futures.items() if future.done()}
        self.functions, self.modules = {}, []


_table = _Table()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _table.forget_parents())


def compile(sources: Iterable[KernelSource], arch: str) -> dict[KernelSource, Compiled]:
    """Compile the sources that are not compiled yet, for one GPU architecture.

    Args:
        sources: duplicates count once.
        arch: the device's, with its suffix ("sm_90a"); a GPU newer than NVRTC gets PTX.

    Raises:
        CompileFailed: the first source that does not compile; the others are compiled and kept.
        EnvironmentUnusable: cupy or NVRTC is not installed.
    """
    results = try_compile(sources, arch)
    for outcome in results.values():
        if isinstance(outcome, Exception):
            raise outcome
    return {s: c for s, c in results.items() if isinstance(c, Compiled)}


def try_compile(sources: Iterable[KernelSource], arch: str, *, seconds: float | None = None,
                ) -> dict[KernelSource, Compiled | CompileFailed]:
    """Compile like compile(), but return what failed beside what did not.

    Args:
        sources, arch: as for compile().
        seconds: time limit for each kernel; with one, every kernel goes to a worker process.
    """
    wanted = list(dict.fromkeys(sources))
    mine: list[KernelSource] = []
    with _table.lock:
        for source in wanted:
            if (source, arch) not in _table.futures:
                _table.futures[source, arch] = Future()
                mine.append(source)
        futures = {source: _table.futures[source, arch] for source in wanted}
    if mine:
        _settle(mine, arch, seconds)
    return {source: _outcome(future) for source, future in futures.items()}


def _outcome(future: Future[Compiled]) -> Compiled | CompileFailed:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, CompileFailed):
        return error
    raise error


def _settle(mine: Sequence[KernelSource], arch: str, seconds: float | None) -> None:
    """Give each future of `mine` its result or its error; failures may be tried again later."""
    interrupted = CompileFailed("compiling was interrupted")
    outcomes: Sequence[Compiled | Exception] = [interrupted] * len(mine)
    try:
        outcomes = _compile_batch(mine, arch, seconds)
    except Exception as error:
        outcomes = [error] * len(mine)
    finally:
        # Also on Ctrl-C: other threads may be waiting for these.
        _release(mine, arch, outcomes)


def _release(mine: Sequence[KernelSource], arch: str,
             outcomes: Sequence[Compiled | Exception]) -> None:
    with _table.lock:
        for source, outcome in zip(mine, outcomes, strict=True):
            if isinstance(outcome, Compiled):
                _table.futures[source, arch].set_result(outcome)
            else:
                _table.futures.pop((source, arch)).set_exception(outcome)


def _compile_batch(mine: Sequence[KernelSource], arch: str,
                   seconds: float | None) -> list[Compiled | Exception]:
    cache = disk_cache.default_cache()
    try:
        requests = _requests(mine, arch, cache)
    except EnvironmentUnusable as error:
        return [_without_compiler(source, arch, cache, error) for source in mine]
    results: list[Result | None] = [_from_cache(request, cache) for request in requests]
    missing = [i for i, result in enumerate(results) if result is None]
    for i in missing:
        _log_miss(requests[i], cache)
    for i, result in zip(missing, _build([requests[i] for i in missing], cache, seconds),
                         strict=True):
        results[i] = result
        if result.meta is not None:
            use = result.meta.resources
            log.topic("compile").info(
                "%s for %s in %.0f ms: %d registers, %d bytes spilled", requests[i].name,
                requests[i].arch, result.meta.compile_ms, use.registers,
                use.spill_stores + use.spill_loads)
    return [_finish(source, request, result)
            for source, request, result in zip(mine, requests, results, strict=True)]


def _without_compiler(source: KernelSource, arch: str, cache: disk_cache.DiskCache,
                      why: EnvironmentUnusable) -> Compiled | Exception:
    """Return what another machine compiled of a source, where the cache holds it."""
    entry = None if source.options else cache.find(sources_of.render(source), arch)
    if entry is not None and entry.path is not None:
        return Compiled(entry.path, entry.meta, from_cache=True)
    return EnvironmentUnusable(
        str(why), hint=f"{_log_name(source)} is not in the cache either: ge2 cache import takes "
                       "kernels that another machine compiled")


def _requests(mine: Sequence[KernelSource], arch: str,
              cache: disk_cache.DiskCache) -> list[Request]:
    target = nvrtc.target_for(arch)
    headers = sources_of.Headers()
    folders = tuple(map(str, headers.folders))
    root = str(cache.root) if cache.root else None
    debug = config.get("GE2_LINEINFO") == "1"
    options = (*nvrtc.OPTIONS, "-lineinfo") if debug else nvrtc.OPTIONS
    texts = [sources_of.render(source, headers) for source in mine]
    if debug:
        texts = [sources_of.with_template_lines(source, text)
                 for source, text in zip(mine, texts, strict=True)]
    return [
        Request(text, _log_name(source), source.template, source.entry, target.arch,
                target.is_ptx, folders, (*options, *source.options), cache_root=root,
                cache_max_bytes=cache.max_bytes, always_miss=cache.always_miss)
        for source, text in zip(mine, texts, strict=True)
    ]


def _log_name(source: KernelSource) -> str:
    return sources_of.shown_name(source).removesuffix(".j2")


def _from_cache(request: Request, cache: disk_cache.DiskCache) -> Result | None:
    entry = cache.get(request.key)
    if entry is None:
        return None
    return Result(entry.meta, entry.code, str(entry.path), from_cache=True)


def _log_miss(request: Request, cache: disk_cache.DiskCache) -> None:
    if not log.topic("cache").isEnabledFor(logging.INFO):
        return
    wanted = Meta(request.key, request.template, request.entry, request.arch, request.options,
                  nvrtc.version(), request.is_ptx, nvrtc.Resources(), 0.0,
                  disk_cache.sha256(request.text), "")
    log.topic("cache").info("miss %s %s: %s", request.name, request.key[:12],
                            cache.why_missing(wanted))


def _build(requests: Sequence[Request], cache: disk_cache.DiskCache,
           seconds: float | None) -> list[Result]:
    """Compile here or in workers; a kernel whose worker died is tried once more, here."""
    results: list[Result | None] = [None] * len(requests)
    if requests and (len(requests) > IN_PROCESS_LIMIT or seconds):
        try:
            results = compile_worker.build_all(requests, _jobs(), seconds)
        except OSError as error:
            log.topic("compile").info("no compile workers: %s", error)
        for result in results:
            if result and result.disk_error:
                cache.warn_once(result.disk_error)
    if seconds:
        slow = Result(None, log=f"compiling did not end within {seconds:g} s, or crashed")
        return [result or slow for result in results]
    return [result or compile_worker.build(request, cache)
            for request, result in zip(requests, results, strict=True)]


def _jobs() -> int:
    """Return the number of worker processes: GE2_JOBS, else the CPUs that this process may use.

    Raises:
        Invalid: GE2_JOBS is no positive number.
    """
    text = config.get("GE2_JOBS")
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (
            os.cpu_count() or 1)
    if not text.isdecimal() or int(text) < 1:
        raise Invalid("GE2_JOBS has a bad value", found=repr(text), wanted="a positive number")
    return int(text)


def _finish(source: KernelSource, request: Request,
            result: Result | None) -> Compiled | Exception:
    assert result is not None
    if result.meta is None:
        return _failure(source, request, result.log)
    path = Path(result.path) if result.path else _keep(result.meta, result.code)
    return Compiled(path, result.meta, result.from_cache)


def _keep(meta: Meta, code: bytes) -> Path:
    """Store a kernel that the cache did not take in a folder of this process."""
    path = paths.private_folder() / f"{meta.key}.{'ptx' if meta.is_ptx else 'cubin'}"
    paths.write_atomic(path, code)
    return path


def _failure(source: KernelSource, request: Request, log: str) -> CompileFailed:
    mapped = map_log(log, _log_name(source), source)
    first = _FIRST_ERROR.search(mapped)
    folder = failures.save_compile(request, mapped)
    context = ", ".join(f"{k}={v}" for k, v in source.context if isinstance(v, int | str)
                        and len(str(v)) < 40 and "\n" not in str(v))
    return CompileFailed(
        f"{source.template} does not compile for {request.arch} ({context})",
        found=(first[0] if first else mapped).strip() or "no log", log=mapped,
        source_path=str(folder / "kernel.cu") if folder else "",
        hint=f"python {folder}/run.py compiles it again" if folder else "")


def map_log(log: str, name: str, source: KernelSource) -> str:
    """Return a compiler log with the rendered source's lines replaced by the template's."""
    lines = sources_of.line_map(source)

    def place(match: re.Match[str]) -> str:
        rendered = int(match[1])
        line = lines[rendered - 1] if 0 < rendered <= len(lines) else 0
        return f"{source.template}:{line} (rendered line {rendered})" if line else match[0]

    return re.sub(rf"{re.escape(name)}\((\d+)\)", place, log)


def check_api(code: bytes, where: str) -> None:
    """Refuse a cubin or PTX that was compiled against another contract version.

    Raises:
        ApiVersionMismatch: names both versions; also for a file that carries none.
    """
    try:
        found = elf.read_u32(code, sources_of.API_SYMBOL)
    except elf.BadElf:
        match = _PTX_VERSION.search(code)
        found = int(match[1]) if match else None
    if found != GE2_API_VERSION:
        raise ApiVersionMismatch(f"{where} speaks another GE2_API_VERSION",
                                 found="none" if found is None else found, wanted=GE2_API_VERSION,
                                 hint="Compile it again with this ge2.")


def load(source: KernelSource, device_index: int) -> int:
    """Return the CUfunction handle of a kernel on a device, compiling and loading it if need be.

    The module stays loaded while the process lives. A cached cubin that the driver refuses is
    built once more.

    Raises:
        CompileFailed, LaunchFailed, ApiVersionMismatch, EnvironmentUnusable.
    """
    handle = _table.functions.get((source, device_index))
    if handle is not None:
        return handle
    arch = device_arch(device_index)
    compiled = compile([source], arch)[source]
    try:
        handle = load_file(compiled.path, source.entry, device_index)
    except (LaunchFailed, OSError) as error:
        log.topic("compile").warning("%s; compiling it again", error)
        forget(source, arch)
        compiled = compile([source], arch)[source]
        handle = load_file(compiled.path, source.entry, device_index)
    with _table.lock:
        return _table.functions.setdefault((source, device_index), handle)


def forget(source: KernelSource, arch: str) -> None:
    """Drop a compiled kernel from this process and from the cache."""
    with _table.lock:
        future = _table.futures.pop((source, arch), None)
    if future is not None and future.exception() is None:
        disk_cache.default_cache().drop(future.result().meta.key)


def load_file(path: Path, entry: str, device_index: int) -> int:
    """Return the CUfunction handle of an entry of a cubin file on a device.

    Raises:
        ApiVersionMismatch: it was compiled against another contract version.
        LaunchFailed: the driver refuses it.
        OSError: it cannot be read.
    """
    check_api(path.read_bytes(), str(path))
    paths.let_cupy_start()
    import cupy

    with cupy.cuda.Device(device_index):
        try:
            module = cupy.RawModule(path=str(path))
            kernel = module.get_function(entry).kernel
        except RuntimeError as error:  # CUDADriverError is one.
            raise LaunchFailed(f"the driver does not load {path}", found=str(error)) from error
    with _table.lock:
        _table.modules += (module, kernel)
    return int(kernel.ptr)


def device_arch(device_index: int) -> str:
    """Return the compile target of a CUDA device ("sm_90a").

    Raises:
        EnvironmentUnusable: no driver, or no such device.
    """
    from .device import probe

    return probe(device_index).arch
