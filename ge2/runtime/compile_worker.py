"""Compiling one kernel, here or in a worker process, and the pool of such workers.

Workers are fresh interpreters that this module starts itself and talks to over pipes. They are not
forked (a fork copies CUDA state that does not survive it) and not made by multiprocessing (which
runs the user's main script again). NVRTC's threads do not scale, its processes do.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from . import nvrtc
from .disk_cache import LOCK_SECONDS, DiskCache, Meta, make_key, meta_of


class Request(msgspec.Struct, frozen=True):
    """One kernel to compile; text decides everything, paths only say where files are."""

    text: str
    name: str
    template: str
    entry: str
    arch: str
    is_ptx: bool
    include_dirs: tuple[str, ...]
    options: tuple[str, ...] = nvrtc.OPTIONS
    cache_root: str | None = None
    cache_max_bytes: int = 2 << 30
    always_miss: bool = False
    lock_seconds: float = LOCK_SECONDS

    @property
    def key(self) -> str:
        """The kernel's key in the cache."""
        return make_key(self.text, self.arch, self.options, nvrtc.version())


class Result(msgspec.Struct, frozen=True):
    """A compiled kernel, or the log of one that did not compile (then meta is None)."""

    meta: Meta | None
    code: bytes = b""
    path: str | None = None
    log: str = ""
    from_cache: bool = False
    disk_error: str = ""


def build(request: Request, cache: DiskCache | None = None) -> Result:
    """Return the kernel from the cache, or compile it under its key's lock and publish it."""
    if cache is None:
        cache = _cache(request.cache_root, request.cache_max_bytes, request.always_miss)
    key = request.key
    with cache.lock(key, request.lock_seconds):
        entry = cache.get(key)
        if entry:
            path = str(entry.path) if entry.path else None
            return Result(entry.meta, entry.code, path, from_cache=True)
        target = nvrtc.Target(request.arch, request.is_ptx)
        try:
            binary = nvrtc.compile_text(request.text, request.name, target, request.include_dirs,
                                        request.options)
        except nvrtc.NvrtcRefused as error:
            return Result(None, log=error.log)
        meta = meta_of(key, request.template, request.entry, request.arch, request.options,
                       nvrtc.version(), request.text, binary)
        entry = cache.put(key, request.text, binary.code, meta)
    return Result(meta, entry.code, str(entry.path) if entry.path else None, binary.log,
                  disk_error=cache.problem)


@functools.cache
def _cache(root: str | None, max_bytes: int, always_miss: bool) -> DiskCache:
    return DiskCache(Path(root) if root else None, max_bytes, always_miss, quiet=True)


def serve() -> None:
    """Answer requests on stdin until it closes; whatever else prints goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; its end closes stdin.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (message := _receive(sys.stdin.buffer)) is not None:
        _send(replies, build(msgspec.msgpack.decode(message, type=Request)))


def _send(stream: IO[bytes], message: msgspec.Struct) -> None:
    payload = msgspec.msgpack.encode(message)
    stream.write(struct.pack("<Q", len(payload)) + payload)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    payload = stream.read(length)
    return payload if len(payload) == length else None


class Worker:
    """One worker process."""

    def __init__(self) -> None:
        script = ("import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
                  f"from {__name__} import serve; serve()")
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, json.dumps(sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def build(self, request: Request, seconds: float | None = None) -> Result | None:
        """Compile in the worker; None where it died or took longer, and then it is of no more use.
        """
        assert self._process.stdin and self._process.stdout
        timer = threading.Timer(seconds, self._process.kill) if seconds else None
        if timer:
            timer.start()
        try:
            _send(self._process.stdin, request)
            reply = _receive(self._process.stdout)
        except OSError:
            reply = None
        finally:
            if timer:
                timer.cancel()
        return None if reply is None else msgspec.msgpack.decode(reply, type=Result)

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def build_all(requests: Sequence[Request], workers: int,
              seconds: float | None = None) -> list[Result | None]:
    """Compile with worker processes; None marks a kernel whose worker died or was too slow.

    Args:
        requests: what to compile; the results come in the same order.
        workers: how many processes at most.
        seconds: time limit for each kernel.

    Raises:
        OSError: no process can be started.
    """
    results: list[Result | None] = [None] * len(requests)
    todo = list(reversed(range(len(requests))))
    pool: list[Worker] = []

    def drain() -> None:
        worker: Worker | None = None
        while todo:
            try:
                index = todo.pop()
            except IndexError:
                return
            if worker is None:
                worker = Worker()
                pool.append(worker)
            results[index] = worker.build(requests[index], seconds)
            if results[index] is None:
                worker = None

    threads = [_Drain(drain) for _ in range(min(workers, len(requests)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.finish()
    finally:
        todo.clear()
        for worker in pool:
            worker.close()
    return results


class _Drain(threading.Thread):
    """A thread that keeps the exception that ended it."""

    def __init__(self, work: Any) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        """Wait for the end and raise what ended it."""
        self.join()
        if self._error:
            raise self._error
