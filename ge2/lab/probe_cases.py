"""What the device probe runs: one launch per point of each response curve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..evidence.device import DeviceProfile
from ..launch.record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype

THREADS = 256
ACCESS = 16  # bytes
SOURCE, TARGET = 0, 1

_POINTERS = (("source", "u8"), ("target", "u8"))
_LAYOUTS: dict[str, np.dtype[Any]] = {
    "probe_memory": args_dtype(*_POINTERS, ("tiles", "i8"), ("pitch", "i8"), ("repeats", "i8")),
    "probe_stride": args_dtype(*_POINTERS, ("words", "i8")),
    "probe_chase": args_dtype(("next", "u8"), ("target", "u8"), ("steps", "i8")),
    "probe_staging": args_dtype(*_POINTERS, ("tiles", "i8")),
}
_TURNS = args_dtype(("target", "u8"), ("turns", "i8"))
_SLOTS = {"source": SOURCE, "next": SOURCE, "target": TARGET}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the probe's launches are; tests take smaller ones.

    Attributes:
        large: bytes of the largest read; beyond every cache.
        turns: of loops that time instructions.
        steps: of a pointer chase.
    """

    large: int = 1 << 30
    turns: int = 4096
    steps: int = 4096


@dataclass(frozen=True, slots=True)
class Case:
    """One launch to time.

    Attributes:
        section: curve that the point belongs to. params: where on it.
        record: the launch; slot 0 is read, slot 1 written.
        work: what it does, in units of `unit` seconds: bytes, operations, steps or 1.
        unit: of the reported value: "GB/s", "TFLOP/s", "ns" (time per work), "us".
        capture: False times a plain launch rather than a graph node.
        chain: bytes that a chain of addresses in slot 0 has to cover, 0 for none.
    """

    section: str
    params: tuple[tuple[str, int | str], ...]
    record: LaunchRecord
    work: float
    unit: str
    capture: bool = True
    chain: int = 0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        inner = " ".join(f"{k}={v}" for k, v in self.params)
        object.__setattr__(self, "name", f"{self.section} {inner}")

    def value(self, time_us: float) -> float:
        """Return what a time means in units of `unit`."""
        if self.unit in ("us", "ns"):
            return time_us / self.work * (1e3 if self.unit == "ns" else 1.0)
        return self.work / time_us * {"GB/s": 1e-3, "TFLOP/s": 1e-6}[self.unit]


def _record(kernel: str, context: dict[str, Any], values: dict[str, int], *, grid: int,
            threads: int, smem: int = 0, cluster: int = 1) -> LaunchRecord:
    layout = _LAYOUTS.get(kernel, _TURNS)
    assert layout.names is not None
    args, relocs = ArgsBuilder(
        layout, values, {n: (_SLOTS[n], 0) for n in layout.names if n in _SLOTS}).pack()
    full = tuple(sorted({**context, "ARGS_CHECKS": args_checks(layout)}.items()))
    return LaunchRecord(KernelSource(f"lab/{kernel}.cu.j2", full, kernel), (grid, 1, 1),
                        (threads, 1, 1), args, relocs, smem, cluster=(cluster, 1, 1))


@dataclass(frozen=True, slots=True)
class Memory:
    """A walk over memory; see kernels/lab/probe_memory.cu.j2.

    Attributes:
        mode: "copy", "read" or "write". nbytes: of the buffer.
        blocks: of the grid; 0 gives every tile a block. smem: held back to limit residency.
    """

    mode: str
    nbytes: int
    vectors: int = 2
    threads: int = 128
    blocks: int = 0
    repeats: int = 1
    width: int = 0
    pitch: int = 4096
    smem: int = 0

    def case(self, section: str, **params: int | str) -> Case:
        """Return the launch as a point of a curve."""
        reads, writes = self.mode != "write", self.mode != "read"
        tiles = max(self.nbytes // (self.threads * self.vectors * ACCESS), 1)
        moved = tiles * self.threads * self.vectors * ACCESS * self.repeats
        record = _record(
            "probe_memory", {"THREADS": self.threads, "VECTORS": self.vectors, "READS": reads,
                             "WRITES": writes, "WIDTH": self.width},
            {"tiles": tiles, "pitch": self.pitch, "repeats": self.repeats},
            grid=min(self.blocks or tiles, tiles), threads=self.threads, smem=self.smem)
        return Case(section, tuple(params.items()), record, moved * (reads + writes), "GB/s")


def cases(device: DeviceProfile, sizes: Sizes | None = None) -> Iterator[Case]:
    """Yield every point of the probe that the device can run."""
    sizes = sizes or Sizes()
    yield from _bandwidth(device, sizes)
    yield from _responses(device, sizes)
    yield from _latency(device, sizes)
    yield from _shared(device, sizes)
    yield from _rates(device, sizes)
    yield from _waiting(device, sizes)


def _bandwidth(device: DeviceProfile, sizes: Sizes) -> Iterator[Case]:
    for mode in ("copy", "read", "write"):
        for shift in (14, 12, 10, 8, 6, 4, 2):
            nbytes = sizes.large >> shift
            yield Memory(mode, nbytes).case("size", mode=mode, bytes=nbytes)
        for vectors in (1, 2, 4, 8):
            for threads in (128, 256):
                yield Memory(mode, sizes.large, vectors, threads).case(
                    "size", mode=mode, bytes=sizes.large, vectors=vectors, threads=threads)
    for share in (8, 4, 3, 2, 1.5, 1, 0.75, 0.5):
        nbytes = max(int(device.l2_bytes / share) // 65536, 1) * 65536
        repeats = max(1, sizes.large // 2 // nbytes)
        yield Memory("read", nbytes, 4, 256, 8 * device.sm_count, repeats).case(
            "l2", bytes=nbytes)


def _responses(device: DeviceProfile, sizes: Sizes) -> Iterator[Case]:
    half = sizes.large // 2
    for blocks in (1, 2, 4, 8):
        for vectors in (1, 2, 4, 8):
            inflight = blocks * THREADS * vectors * ACCESS
            yield Memory("read", half, vectors, THREADS, blocks * device.sm_count).case(
                "in flight", blocks=blocks, vectors=vectors, bytes_per_sm=inflight)
    for blocks in (1, 2, 3, 4, 6, 8):
        # What a block holds back leaves room for just so many.
        smem = device.smem_per_sm // blocks - 1024
        smem = min(smem // 1024 * 1024, device.smem_per_block)
        yield Memory("copy", half, 1, THREADS, smem=smem).case(
            "occupancy", blocks=blocks, threads_per_sm=blocks * THREADS)
    pitch = min(half // (2 * THREADS * ACCESS), 4096)  # so that the tallest tile fits
    for width in (1, 2, 4, 8, 16, 32, 64, 256):
        if width <= pitch:
            yield Memory("read", half, 2, THREADS, width=width, pitch=pitch).case(
                "tile shape", row_bytes=width * ACCESS, rows=2 * THREADS // width)
    for stride in (1, 2, 4, 8, 16, 32):
        words = sizes.large // 4 // 4
        span = 4 * THREADS * stride
        record = _record("probe_stride", {"STRIDE": stride}, {"words": words // span * span},
                         grid=max(words // span, 1), threads=THREADS)
        used = words // span * 4 * THREADS * 4.0
        yield Case("stride", (("words", stride),), record, max(used, 1.0), "GB/s")
    if device.caps.get("async_copy"):
        for stages in (1, 2, 3, 4, 6, 8, 12):
            tiles = half // (THREADS * ACCESS)
            record = _record("probe_staging", {"STAGES": stages}, {"tiles": tiles},
                             grid=min(2 * device.sm_count, tiles), threads=THREADS,
                             smem=stages * THREADS * ACCESS + 1024)
            yield Case("staging", (("stages", stages), ("bytes_per_sm", 2 * stages * 4096)),
                       record, tiles * THREADS * ACCESS, "GB/s")


def _latency(device: DeviceProfile, sizes: Sizes) -> Iterator[Case]:
    for label, nbytes in (("L1", 32 << 10), ("L2", device.l2_bytes // 8),
                          ("memory", min(max(8 * device.l2_bytes, 1 << 20), sizes.large))):
        record = _record("probe_chase", {}, {"steps": sizes.steps}, grid=1, threads=32)
        yield Case("latency", (("level", label), ("bytes", nbytes)), record, sizes.steps, "ns",
                   chain=nbytes)


def _shared(device: DeviceProfile, sizes: Sizes) -> Iterator[Case]:
    grid, turns = 2 * device.sm_count, max(sizes.turns // 8, 1)
    for words, strides in ((1, (1, 2, 3, 4, 8, 16, 32)), (4, (4,))):
        for stride in strides:
            record = _record("probe_shared", {"WORDS": words, "STRIDE": stride},
                             {"turns": turns}, grid=grid, threads=1024, smem=32768 + 1024)
            yield Case("shared", (("words", words), ("stride", stride)), record,
                       grid * 1024.0 * turns * 8 * words * 4, "GB/s")


def _rates(device: DeviceProfile, sizes: Sizes) -> Iterator[Case]:
    grid, turns = 8 * device.sm_count, max(sizes.turns // 4, 1)
    for dtype, kind, share in (("f32", "float", 1), ("f64", "double", 2), ("i32", "int", 1)):
        record = _record("probe_arithmetic", {"TYPE": kind}, {"turns": turns // share or 1},
                         grid=grid, threads=THREADS)
        work = 2.0 * grid * THREADS * 8 * 16 * (turns // share or 1)
        yield Case("rate", (("dtype", dtype), ("unit", "fma")), record, work, "TFLOP/s")
    for dtype, k in _mma_kinds(device):
        record = _record("probe_mma", {"FUNCTION": f"mma_m16n8k{k}_{dtype}"}, {"turns": turns},
                         grid=grid, threads=THREADS)
        work = 2.0 * 16 * 8 * k * grid * (THREADS // 32) * 8 * 4 * turns
        yield Case("rate", (("dtype", dtype), ("unit", "mma")), record, work, "TFLOP/s")
    if device.caps.get("wgmma"):
        for dtype, k, mask in (("f16", 16, "0xbbffbbffu"), ("bf16", 16, "0xbfffbfffu"),
                               ("tf32", 8, "0xbfffffffu")):
            function = f"wgmma_{dtype}<WIDTH{', 0, 0' if dtype != 'tf32' else ''}>"
            record = _record("probe_wgmma", {"FUNCTION": function, "MASK": mask},
                             {"turns": turns}, grid=device.sm_count, threads=256,
                             smem=(2 * 64 + 256) * 128 + 1024)
            work = 2.0 * 64 * 256 * k * 16 * turns * 2 * device.sm_count
            yield Case("rate", (("dtype", dtype), ("unit", "wgmma")), record, work, "TFLOP/s")


def _mma_kinds(device: DeviceProfile) -> list[tuple[str, int]]:
    return [("f16", 16), ("bf16", 16), ("tf32", 8)] if device.caps.get("bf16") else []


def _waiting(device: DeviceProfile, sizes: Sizes) -> Iterator[Case]:
    def record(kind: str, threads: int, turns: int, cluster: int = 1) -> LaunchRecord:
        return _record("probe_barrier", {"KIND": kind, "THREADS": threads}, {"turns": turns},
                       grid=cluster * max(device.sm_count // cluster, 1), threads=threads,
                       cluster=cluster)

    for capture, kind in ((True, "graph node"), (False, "launch")):
        yield Case("launch", (("kind", kind),), record("none", 32, 0), 1.0, "us", capture)
    turns = sizes.turns
    yield Case("barrier", (("kind", "warp shuffle"), ("threads", 32)),
               record("warp", 32, turns), turns, "ns")
    for threads in (64, 128, 256, 512, 1024):
        yield Case("barrier", (("kind", "block"), ("threads", threads)),
                   record("block", threads, turns), turns, "ns")
    if device.caps.get("cluster"):
        for blocks in (2, 4, 8):
            yield Case("barrier", (("kind", "cluster"), ("blocks", blocks)),
                       record("cluster", 256, turns, blocks), turns, "ns")
