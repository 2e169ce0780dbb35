"""The C++ runtime as Python functions."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import compiler

Triple = ctypes.c_uint32 * 3


class LaunchArgs(ctypes.Structure):
    """Mirrors LaunchArgs of native/runtime/api.cpp."""

    _fields_ = [
        ("grid", Triple),
        ("block", Triple),
        ("cluster", Triple),
        ("shared_bytes", ctypes.c_uint32),
        ("want_banks", ctypes.c_uint32),
        ("overlaps", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("step_limit", ctypes.c_uint64),
        ("entry", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
    ]


@cache
def runtime() -> ctypes.CDLL:
    """Return the loaded runtime; global, because kernel libraries take its symbols."""
    library = ctypes.CDLL(str(compiler.runtime_library()), mode=ctypes.RTLD_GLOBAL)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ge2emu_arena_new": (ctypes.c_void_p, []),
        "ge2emu_arena_free": (None, [ctypes.c_void_p]),
        "ge2emu_arena_add": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64,
                                            ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32,
                                            ctypes.c_uint32]),
        "ge2emu_arena_get_state": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p,
                                                  ctypes.c_void_p]),
        "ge2emu_arena_set_state": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p,
                                                  ctypes.c_void_p]),
        "ge2emu_launch": (ctypes.c_void_p, [ctypes.POINTER(LaunchArgs)]),
        "ge2emu_free_text": (None, [ctypes.c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel library.

    Attributes:
        entry: address of the function that runs one thread.
        args_size: bytes of its Args.
        most_threads: first argument of __launch_bounds__, 0 without.
    """

    entry: int
    args_size: int
    most_threads: int


@cache
def kernel(path: Path) -> Kernel:
    """Load a kernel library."""
    runtime()
    library = ctypes.CDLL(str(path))
    library.ge2emu_args_size.restype = ctypes.c_ulong
    library.ge2emu_most_threads.restype = ctypes.c_ulong
    entry = ctypes.cast(library.ge2emu_entry, ctypes.c_void_p).value
    assert entry is not None
    return Kernel(entry, int(library.ge2emu_args_size()), int(library.ge2emu_most_threads()))
