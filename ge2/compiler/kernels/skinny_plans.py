"""Which kernel, and how much of the device, suits a few rows against a large matrix of weights.

Such products take as long as reading the weights, plus a start and an end that small weights do not
hide. The constants are microseconds and rates measured on an H200 with cold weights; what they
decide (how to split, when shared memory pays) depends on their ratios only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

from ...contract import DTYPES
from ...problem import Problem

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from .metadata import Variant

MEMORY_BOUND = 30.0  # points ahead of kernels whose tiles are made for more rows
POINTS = 12.0  # for each factor of two in time
SM_RATE = 60_000.0  # bytes that one multiprocessor takes in a microsecond, at most
L2_OVER_MEMORY = 1.6  # as a multiple of the copy rate
LATENCY = 1.5  # microseconds from asking for a byte of loaded memory to having it
CLUSTERS_OF_FOUR = 0.9  # share of the multiprocessors that they can cover


@dataclass(frozen=True, slots=True)
class Skinny:
    """A product turned so that its small operand has m rows.

    Attributes:
        by_rows: the weights' rows run along k.
        itemsize: bytes of an element. batches: number of products.
        rate: bytes a microsecond from memory.
    """

    m: int
    n: int
    k: int
    batches: int
    by_rows: bool
    itemsize: int
    rate: float

    @property
    def stream(self) -> float:
        """Microseconds to read the weights once."""
        return self.n * self.k * self.itemsize * self.batches / self.rate


def skinny_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return points for a variant of the kernels in TIMES; 0 for any other."""
    from ...launch.gemm_call import skinny_call

    predict = TIMES.get(variant.kernel.name)
    if predict is None:
        return 0.0
    call = skinny_call(problem)
    size = Skinny(max(call.m, 1), max(call.n, 1), max(call.k, 1), max(call.batches, 1),
                  call.b.column == 1, DTYPES[call.b.dtype].itemsize, device.copy_gbps * 1e3)
    usual = 2.0 + size.stream
    return MEMORY_BOUND - POINTS * log2(predict(size, variant, device) / usual)


def _unlaunched(variant: Variant) -> float:
    """Starting before the launch ahead has finished hides part of the start."""
    return 0.0 if variant.param("PDL") else 0.5


def cuda_core_time(size: Skinny, variant: Variant, device: DeviceProfile) -> float:
    """Each further row costs arithmetic and reads of X; columns are read less evenly than rows."""
    stream = size.stream * (1.0 + 0.08 * (int(variant.param("MT")) - 1))
    suits = int(variant.param("PARTS")) == (2 if size.by_rows else 8)
    base = 1.95 + 0.95 * stream if size.by_rows else 2.85 + 1.05 * stream
    return base * (1.0 if suits else 1.06) + _unlaunched(variant)


def direct_time(size: Skinny, variant: Variant, device: DeviceProfile) -> float:
    """Everything is asked for at once where a warp's share of k is one batch of loads."""
    stream = size.stream * (1.04 if size.m <= 8 else 1.37)
    share = size.k // (32 * int(variant.param("WARPS")))
    wanted = 2 if share > 4 or (size.m > 8 and share <= 2) else 4
    suits = int(variant.param("UNROLL")) == wanted
    return ((1.45 + stream) * (1.0 if suits else 1.06)
            * (1.0 if variant.param("WARPS") == 16 else 1.05) + _unlaunched(variant))


def ring_time(size: Skinny, variant: Variant, device: DeviceProfile) -> float:
    """The slowest of memory, L2 (X is read for every tile) and the busiest multiprocessor."""
    from ...launch.gemm_skinny import ring_bytes, ring_width

    groups, stages, split = (int(variant.param(p)) for p in ("GROUPS", "STAGES", "SPLIT"))
    ring = ring_bytes(variant, ring_width(size.m))
    tiles = -(-size.n // (64 * groups)) * size.batches
    blocks = tiles * split
    resident = max(1, device.smem_per_sm // (ring + 2048))
    room = device.sm_count * resident * (CLUSTERS_OF_FOUR if split == 4 else 1.0)
    waves = max(1, -(-blocks // int(room)))
    shared = min(resident, -(-blocks // device.sm_count))
    steps = -(-size.k // 64)
    moved = -(-steps // split) * (ring // stages) * shared * waves
    in_flight = (stages - 2) * (ring // stages) * shared
    per_block = moved / min(SM_RATE, in_flight / LATENCY)
    per_l2 = tiles * steps * (ring // stages) / (size.rate * L2_OVER_MEMORY)
    summing = 0.0 if split == 1 else 0.3 + 0.08 * split * (1.0 + size.m / 12.0)
    depth = 0.04 * abs(stages - 8) if steps <= 8 * split else 0.0
    uneven = 1.0 if waves == 1 else 0.6 + 0.4 * waves
    return (1.8 + summing + depth + _unlaunched(variant)
            + max(0.98 * size.stream * uneven, per_l2, per_block))


TIMES: dict[str, Callable[[Skinny, Variant, DeviceProfile], float]] = {
    "gemm_bias_act_skinny": cuda_core_time,
    "gemm_bias_act_skinny_mma": direct_time,
    "gemm_bias_act_skinny_ring": ring_time,
}
