"""Runs one launch record on the host."""

from __future__ import annotations

import ctypes
import math
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ...compiler.kernels import source as sources_of
from ...errors import LaunchFailed, OutOfMemory
from ...launch.record import LaunchRecord
from . import compiler, native
from .memory import Buffer, Memory
from .report import EmulationError, Report, decode
from .tensor_map import encode_tensor_map

DEFAULT_STEP_LIMIT = 2_000_000_000
MAX_TOGETHER = 64  # blocks of a cooperative launch
MAX_SHARED = {75: 65536, 80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}

# The runtime has one launch at a time per process.
_lock = threading.Lock()


def fill_args(record: LaunchRecord, address_of: Callable[[int], int]) -> bytes:
    """Return the record's args with every address and tensor map hole filled.

    Args:
        record: the launch.
        address_of: slot (input, output, WORKSPACE, SEMAPHORES) -> address.
    """
    args = bytearray(record.args)
    for reloc in record.relocs:
        address = address_of(reloc.slot) + reloc.addend
        args[reloc.offset:reloc.offset + 8] = address.to_bytes(8, "little")
    for spec in record.tensor_maps:
        address = address_of(spec.slot) + spec.addend
        args[spec.offset:spec.offset + 128] = encode_tensor_map(spec, address)
    return bytes(args)


def launch(record: LaunchRecord, args: bytes, *,
           memory: Memory | Iterable[Buffer | tuple[int, int]], source: str | None = None,
           arch: str = "sm_90a", includes: tuple[Path, ...] = (), bank_conflicts: bool = False,
           step_limit: int = DEFAULT_STEP_LIMIT, seed: int = 0, check: bool = True) -> Report:
    """Run a launch record on the host and return what the detectors saw.

    Args:
        record: grid, block, cluster, shared memory, kernel; its own args are not looked at.
        args: the Args bytes with host addresses filled in.
        memory: every range that the kernel may touch; a Memory keeps which bytes hold values from
            one launch to the next, plain (address, nbytes) ranges count as holding values.
        source: CUDA text to run instead of the record's template.
        arch: architecture to pretend, for __CUDA_ARCH__ and the shared-memory limit.
        includes: folders searched for <ge2/...> instead of the usual ones.
        bank_conflicts: count shared-memory wavefronts per access site.
        step_limit: basic blocks after which a launch counts as endless.
        seed: 0: threads run in a fixed order and copies complete as late as they may; else both are
            drawn at random, the same for the same seed.
        check: raise on findings; else they are only in the report.

    Raises:
        EmulationError: a detector saw a fault; lists all findings.
        LaunchFailed: what the driver would refuse: block size, shared memory, cluster, args size.
        CompileFailed, EnvironmentUnusable: see compile().
    """
    kernel = record.kernel.entry
    if math.prod(record.grid) == 0:
        return Report(kernel)
    text = source if source is not None else sources_of.render(record.kernel)
    _check_launch(record, arch)
    library = compiler.compile(text, compiler.CompileOptions(kernel, arch, includes))
    built = native.kernel(library)
    if built.args_size != len(args):
        raise LaunchFailed(f"{kernel}: wrong size of Args", found=len(args),
                           wanted=built.args_size)
    if 0 < built.most_threads < math.prod(record.block):
        raise LaunchFailed(f"{kernel}: block exceeds __launch_bounds__", found=record.block,
                           wanted=f"at most {built.most_threads} threads")
    arena = memory if isinstance(memory, Memory) else Memory(memory)
    with _lock:
        report = decode(_call(record, args, built.entry, arena, bank_conflicts, step_limit,
                              seed), kernel, library, seed)
    if check and report.findings:
        raise EmulationError(report)
    return report


def _check_launch(record: LaunchRecord, arch: str) -> None:
    kernel = record.kernel.entry
    threads = math.prod(record.block)
    if not 0 < threads <= 1024:
        raise LaunchFailed(f"{kernel}: block size", found=record.block, wanted="1 to 1024 threads")
    limit = MAX_SHARED.get(int(re.sub(r"\D", "", arch)), 232448)
    if record.smem > limit:
        raise LaunchFailed(f"{kernel}: too much shared memory for {arch}", argument="smem",
                           found=f"{record.smem} bytes", wanted=f"at most {limit}")
    if record.cooperative and math.prod(record.grid) > MAX_TOGETHER:
        raise LaunchFailed(f"{kernel}: too many blocks to emulate together", found=record.grid,
                           wanted=f"at most {MAX_TOGETHER}")
    blocks = math.prod(record.cluster)
    fits = all(g % c == 0 for g, c in zip(record.grid, record.cluster, strict=True))
    if not fits or not 0 < blocks <= 16:
        raise LaunchFailed(f"{kernel}: cluster does not divide the grid", found=record.cluster,
                           wanted=f"at most 16 blocks that divide {record.grid}")
    if math.prod(record.grid) // blocks >= 1 << 18:
        raise LaunchFailed(f"{kernel}: grid too large to emulate", found=record.grid,
                           wanted="fewer than 262,144 blocks")


def _call(record: LaunchRecord, args: bytes, entry: int, arena: Memory, bank_conflicts: bool,
          step_limit: int, seed: int) -> str:
    runtime = native.runtime()
    # Tensor maps inside Args need 64-byte alignment.
    room = np.zeros(len(args) + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start:start + len(args)] = np.frombuffer(args, np.uint8)
    call: Any = native.LaunchArgs()
    call.grid, call.block = native.Triple(*record.grid), native.Triple(*record.block)
    # Blocks that may wait for each other run as one group, as a cluster's do.
    call.cluster = native.Triple(*(record.grid if record.cooperative else record.cluster))
    call.shared_bytes, call.want_banks = record.smem, int(bank_conflicts)
    call.overlaps, call.seed = int(record.pdl), seed
    call.step_limit, call.entry = step_limit, entry
    call.args, call.arena = room.ctypes.data + start, arena.handle
    text = runtime.ge2emu_launch(ctypes.byref(call))
    if not text:
        raise OutOfMemory("no memory for the emulator's thread stacks")
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        runtime.ge2emu_free_text(text)
