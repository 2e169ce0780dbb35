"""Device memory that outlives a call: scratch for plain launchers, memory owned by captured graphs.

A kernel's semaphores are zero at entry and left zero at exit, so that one zeroed buffer serves all
launches of a stream.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import driver
from .device import Allocation, Device

SEMAPHORE_BYTES = 4
_GROWTH = 2
_PER_THREAD_STREAM = 2  # cudaStreamPerThread: one handle, a stream of its own in every thread


@dataclass(slots=True)
class _Scratch:
    device: Device  # keeps the id in the key from being used again
    workspace: Allocation | None = None
    semaphores: Allocation | None = None
    retired: list[Allocation] = field(default_factory=list)


class ScratchPool:
    """Workspace and semaphores per (device, stream); grows, never shrinks.

    A buffer that was outgrown stays allocated, since launches in flight may use it; sizes double,
    so that at most as much again is held.
    """

    def __init__(self) -> None:
        self._scratch: dict[tuple[Any, ...], _Scratch] = {}
        self._lock = threading.Lock()

    def get(self, device: Device, stream: int, workspace: int, semaphores: int) -> tuple[int, int]:
        """Return addresses of workspace bytes and of zeroed semaphore words on a stream.

        While the stream is capturing, the memory is the captured graph's own: it is released after
        the last graph made from the capture is destroyed.
        """
        if device.is_capturing(stream):
            owned = [device.allocate(workspace),
                     device.allocate(SEMAPHORE_BYTES * semaphores, zero=True)]
            keep_with_capture(stream, owned)
            return owned[0].address, owned[1].address
        thread = threading.get_ident() if stream == _PER_THREAD_STREAM else 0
        with self._lock:
            entry = self._scratch.setdefault((id(device), device.index, stream, thread),
                                             _Scratch(device))
            entry.workspace = _grown(device, entry.workspace, workspace, False, entry.retired)
            entry.semaphores = _grown(device, entry.semaphores, SEMAPHORE_BYTES * semaphores, True,
                                      entry.retired)
        return (entry.workspace.address if entry.workspace else 0,
                entry.semaphores.address if entry.semaphores else 0)

    def forget(self, device: Device, stream: int) -> None:
        """Drop a stream's scratch after a failed launch: its semaphores may not be zero."""
        with self._lock:
            for key in [k for k in self._scratch if k[:3] == (id(device), device.index, stream)]:
                scratch = self._scratch[key]
                if scratch.semaphores is not None:
                    scratch.retired.append(scratch.semaphores)
                    scratch.semaphores = None


def _grown(device: Device, have: Allocation | None, wanted: int, zero: bool,
           retired: list[Allocation]) -> Allocation | None:
    if wanted == 0 or (have is not None and have.nbytes >= wanted):
        return have
    if have is not None:
        retired.append(have)
        wanted = max(wanted, _GROWTH * have.nbytes)
    return device.allocate(wanted, zero=zero)


SCRATCH = ScratchPool()


# -- memory that belongs to a captured graph ------------------------------------------------------

# CUDA calls the destructor of a graph's user object from a thread of its own, possibly after the
# interpreter is gone, and no CUDA call is allowed in it. So the destructor is libc's sem_post on a
# semaphore that is never freed before it was posted, and the memory goes at the next capture.
_SEM_BYTES = 64
_pending: list[tuple[int, Sequence[Any]]] = []
_pending_lock = threading.Lock()


def keep_with_capture(stream: int, owned: Sequence[Any]) -> None:
    """Tie objects to the graph that a stream is being captured into.

    They live until every graph and executable graph made from the capture is destroyed; they are
    released at the first capture, or call of release_captured, after that.
    """
    release_captured()
    libc = _libc()
    semaphore = libc.malloc(_SEM_BYTES)
    libc.sem_init(semaphore, 0, 0)
    api = driver.api()
    _, graph = driver.captured_graph(stream)
    destroy = api.CUhostFn(ctypes.cast(libc.sem_post, ctypes.c_void_p).value)
    no_sync = api.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
    user_object = driver.check(api.cuUserObjectCreate(semaphore, destroy, 1, int(no_sync)))
    move = api.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
    driver.check(api.cuGraphRetainUserObject(graph, user_object, 1, int(move)))
    with _pending_lock:
        _pending.append((semaphore, owned))


def release_captured() -> int:
    """Release what destroyed graphs owned; return how many captures still own something."""
    libc = _libc()
    with _pending_lock:
        kept = []
        for semaphore, owned in _pending:
            if libc.sem_trywait(semaphore) == 0:
                libc.free(semaphore)
            else:
                kept.append((semaphore, owned))
        _pending[:] = kept
        return len(kept)


def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    libc.sem_trywait.argtypes = [ctypes.c_void_p]
    return libc
