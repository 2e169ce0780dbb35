"""Buffers that kernels may touch: exact sizes, far apart, with shadow state that outlives a launch.

State is kept per byte: whether it holds a value; so a workspace written by one launch may be read
by the next, and a read of bytes that nobody wrote is found.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import OutOfMemory
from . import native

_GAP = 1 << 16


@dataclass(frozen=True, slots=True)
class Buffer:
    """One valid range of global memory.

    Attributes:
        address, nbytes: the range, in bytes.
        name: what reports call it ("input 0").
        writable: whether a kernel may write it.
        initialised: whether it holds values before the first launch.
        late: whether the launch before may still write it: one that overlaps that launch
            (LaunchRecord.pdl) reads it only after griddep_wait.
    """

    address: int
    nbytes: int
    name: str = "buffer"
    writable: bool = True
    initialised: bool = True
    late: bool = False


class Memory:
    """A set of buffers and their shadow state."""

    def __init__(self, buffers: Iterable[Buffer | tuple[int, int]] = ()) -> None:
        self._native = native.runtime()
        self.handle = int(self._native.ge2emu_arena_new())
        self.buffers: list[Buffer] = []
        self._maps: list[mmap.mmap] = []
        for index, item in enumerate(buffers):
            self.add(item if isinstance(item, Buffer)
                     else Buffer(item[0], item[1], f"buffer {index}"))

    def __del__(self) -> None:
        handle = getattr(self, "handle", 0)
        if handle:
            self._native.ge2emu_arena_free(handle)

    def add(self, buffer: Buffer) -> Buffer:
        """Make memory that somebody else owns valid; empty buffers are ignored."""
        if buffer.nbytes:
            failed = self._native.ge2emu_arena_add(
                self.handle, buffer.address, buffer.nbytes, buffer.name.encode(),
                int(buffer.writable), int(buffer.initialised), int(buffer.late))
            if failed:
                raise OutOfMemory("no memory for the emulator's shadow state",
                                  found=f"{buffer.nbytes} bytes")
        self.buffers.append(buffer)
        return buffer

    def allocate(self, nbytes: int, name: str, *, writable: bool = True,
                 initialised: bool = False, late: bool = False, offset: int = 0) -> Buffer:
        """Return a new buffer far from all others, filled with 0xFF bytes (NaN, -1).

        Args:
            nbytes: exact size; every access beyond it is found.
            name: what reports call it.
            writable, initialised, late: see Buffer.
            offset: bytes past a multiple of 4096 at which it starts, to test weak alignment.
        """
        block = mmap.mmap(-1, nbytes + offset + 2 * _GAP)
        self._maps.append(block)
        base = ctypes.addressof(ctypes.c_char.from_buffer(block)) + _GAP + offset
        ctypes.memset(base, 0xFF, nbytes)
        return self.add(Buffer(base, nbytes, name, writable, initialised, late))

    def bytes_of(self, buffer: Buffer) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the buffer's bytes as an array that shares its memory."""
        block = (ctypes.c_uint8 * buffer.nbytes).from_address(buffer.address)
        return np.ctypeslib.as_array(block)

    def written(self, buffer: Buffer) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return, for each byte, whether it holds a value."""
        state = np.zeros(buffer.nbytes, np.uint8)
        if buffer.nbytes:
            self._native.ge2emu_arena_get_state(self.handle, buffer.address, state.ctypes.data)
        return (state & 1).astype(bool)

    def set_written(self, buffer: Buffer,
                    written: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Say, for each byte, whether it holds a value."""
        state = np.ascontiguousarray(written, np.uint8)
        if buffer.nbytes:
            self._native.ge2emu_arena_set_state(self.handle, buffer.address, state.ctypes.data)
