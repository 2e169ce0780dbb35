"""How groups of blocks share long rows: what row_pipe and row_ring take, and when they win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ...contract import DTYPES
from ...evidence.device import arch_number
from ...problem import Problem, TensorSpec
from ..ir.row import RowOp
from ..ir.size import larger, smaller
from .row_plans import (
    WARP,
    RowAccess,
    RowLayout,
    copies_along,
    moving_inputs,
    row_access,
    row_layout,
    row_op_of,
    row_vector,
)
from .walk import VECTOR_BYTES

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from .metadata import Variant

MIN_SLICE = 1024  # accesses of a row that a block should at least have
SLACK = 1024  # shared_memory() rounds its base up
KEPT_REGISTERS = 64  # of a thread, for extras that all rows share
# Share of the multiprocessors that clusters of so many blocks reach at most: they do not span the
# chip's graphics processing clusters, whose sizes differ. Counted on an H200.
_REACH = {2: 1.0, 4: 10 / 11, 8: 10 / 11, 16: 28 / 33}


def state_bytes(op: RowOp) -> int:
    """Return the size of the operator's State struct on the device."""
    sizes = [DTYPES[v.dtype].itemsize for v in op.state]
    offset = 0
    for size in sizes:
        offset = -(-offset // size) * size + size
    return -(-offset // max(sizes)) * max(sizes)


def packets(op: RowOp) -> int:
    """Return how many packets of three words and a tag a state travels in."""
    return -(-state_bytes(op) // 12)


@dataclass(frozen=True, slots=True)
class RingPlan:
    """How blocks share rows.

    Attributes:
        blocks: per row.
        groups: that walk over the rows side by side.
        per_sm: blocks that a multiprocessor should hold.
        smem: bytes of a block, alignment slack included.
        keep: extras stay in registers.
        full: each thread has all its accesses in every row.
    """

    blocks: int
    groups: int
    per_sm: int
    smem: int
    keep: bool
    full: bool


def ring_plan(problem: Problem, variant: Variant, device: DeviceProfile) -> RingPlan | None:
    """Return how a variant of row_pipe or row_ring solves a problem; None where it cannot."""
    params = tuple(int(variant.param(name)) for name in ("THREADS", "VECTORS", "STAGES"))
    cluster = int(variant.param_map.get("BLOCKS", 0))
    return _ring_plan(problem, *params, cluster, device)


@lru_cache(maxsize=4096)
def _ring_plan(problem: Problem, threads: int, vectors: int, stages: int, cluster: int,
               device: DeviceProfile) -> RingPlan | None:
    accesses, capacity = row_layout(problem).n // row_vector(problem), threads * vectors
    smem = ring_bytes(problem, threads, vectors, stages, cluster)
    if smem > device.smem_per_block or not row_layout(problem).rows or accesses <= 0:
        return None
    by_memory = min(device.smem_per_sm // (smem + 1024), 4)
    for full in (True, False):
        keep, registers = _kept(problem, threads, vectors, full)
        # Each quarter of a multiprocessor has its own registers and takes whole warps.
        warps = device.registers_per_sm // (4 * WARP * registers) * 4
        per_sm = max(1, min(by_memory, warps // (threads // WARP + 1)))
        if cluster:
            reach = int(device.sm_count * _REACH[cluster] + 0.5) * per_sm
            blocks, groups = cluster, smaller(row_layout(problem).rows, max(1, reach // cluster))
        else:
            blocks, groups = _groups(row_layout(problem).rows, accesses, capacity,
                                     device.sm_count * per_sm)
        if accesses == blocks * capacity or (not full and accesses <= blocks * capacity):
            return RingPlan(blocks, groups, per_sm, smem, keep, full)
    return None


def _groups(rows: int, accesses: int, capacity: int, at_once: int) -> tuple[int, int]:
    """Return (blocks per row, groups) of row_pipe, (0, 0) where the device does not hold a row."""
    blocks = -(-accesses // capacity)
    if blocks > at_once:
        return 0, 0
    groups = smaller(rows, at_once // blocks)
    # Room to spare: the multiprocessors that whole groups leave over share the work.
    spare = smaller(at_once // groups, -(-accesses // MIN_SLICE))
    if accesses != blocks * capacity or 4 * spare > 5 * blocks:
        blocks = larger(blocks, spare)
    return blocks, groups


def _kept(problem: Problem, threads: int, vectors: int, full: bool) -> tuple[bool, int]:
    """Return whether a thread keeps extras, and its registers, as compiled for sm_90a.

    Where some threads have less to do than others, many kept extras take more registers than small
    blocks that share a multiprocessor have, and than large ones ever have.
    """
    kept = _kept_registers(problem, vectors)
    many = kept > KEPT_REGISTERS // 2 and not full
    keep = 0 < kept <= KEPT_REGISTERS and not (many and threads > 256)
    wide = any(DTYPES[v.dtype].itemsize == 8 for v in row_op_of(problem).state)
    return keep, 128 if wide or (keep and many) else 96 if keep else 72


def ring_bytes(problem: Problem, threads: int, vectors: int, stages: int, cluster: int) -> int:
    """Return the shared memory of a block, alignment slack included (see RowRing)."""
    op = row_op_of(problem)
    exchange = 32 + 4 * 16 * cluster * packets(op) if cluster else 16
    firsts = stages * 16 * len(moving_inputs(problem)) if op.pivot else 0
    head = -(-(192 + threads // WARP * 128 + exchange + firsts) // 1024) * 1024
    chunk = row_vector(problem) * _bytes_of(moving_inputs(problem))
    return head + stages * threads * vectors * chunk + SLACK


def _kept_registers(problem: Problem, vectors: int) -> int:
    """Return registers of the extras that a thread can keep; 0 where rows differ in them."""
    op, layout = row_op_of(problem), row_layout(problem)
    n_in = op.n_inputs + op.n_extras
    if any(any(strides) for strides in layout.lead.strides[op.n_inputs : n_in]):
        return 0
    return vectors * row_vector(problem) * _bytes_of(layout.tensors[op.n_inputs : n_in]) // 4


def _bytes_of(tensors: Sequence[TensorSpec]) -> int:
    return sum(DTYPES[t.dtype].itemsize for t in tensors)


def refuse_ring(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of row_pipe and row_ring: aligned rows longer than a block holds, in several rounds."""
    op, layout, access = row_op_of(problem), row_layout(problem), row_access(problem)
    if not op.streamable:
        return "the operator has no merge"
    if not op.reads_row_to_finish:
        return "no output needs the row again"
    if not copies_along(layout.steps[: op.n_inputs]):
        return "an operand of the state is not contiguous along the row"
    if access.shifted or not all(
            _copies_whole(layout, i, access) for i in range(op.n_inputs) if layout.steps[i]):
        return "rows are not whole 16-byte accesses"
    threads, vectors, stages = (variant.param(p) for p in ("THREADS", "VECTORS", "STAGES"))
    cluster, accesses = int(variant.param_map.get("BLOCKS", 0)), layout.n // access.vector
    needed = ring_bytes(problem, threads, vectors, stages, cluster)
    if needed > device.smem_per_block:
        return f"needs {needed} bytes of shared memory, a block has {device.smem_per_block}"
    if cluster > 8 and arch_number(device.arch) not in (90, 100):
        return "clusters have at most 8 blocks"
    if ring_plan(problem, variant, device) is None:
        return "the row does not fit on the device" if not cluster else "the cluster is too small"
    least = max(cluster // 2, 1) * threads * vectors
    if accesses > least:
        return ""
    return "a smaller cluster holds the row" if cluster else "a block holds the row"


def _copies_whole(layout: RowLayout, index: int, access: RowAccess) -> bool:
    """Return whether pairs of accesses are whole multiples of what the copy engine moves."""
    tensor, lead = layout.tensors[index], layout.lead.strides[index]
    size = DTYPES[tensor.dtype].itemsize
    return (2 * access.vector * size % VECTOR_BYTES == 0 and tensor.align % VECTOR_BYTES == 0
            and all(s * size % VECTOR_BYTES == 0 for s in (*lead, layout.n))
            and layout.n % access.vector == 0)


def ring_preference(problem: Problem, variant: Variant) -> float:
    """Return score points by row length, from measurements on an H200.

    One block holds rows up to 4096 accesses of 16 bytes. From there clusters of blocks of 32 KB
    a stage, two or three of them on a multiprocessor: while one waits for its cluster, the others
    have work. Rows that 16 such blocks do not hold are for groups through global memory.
    """
    accesses = row_layout(problem).n // row_vector(problem)
    threads = variant.param("THREADS")
    if accesses <= 4096:
        return -40.0
    if "BLOCKS" in variant.param_map:
        return (10.0 if accesses <= 32768 else 3.0) - 2.0 * float(threads != 256)
    wanted = 512 if accesses > 65536 else 256
    return (10.0 if accesses > 32768 else 3.0) - 2.0 * float(threads != wanted)
