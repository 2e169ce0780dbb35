"""How long wgmma kernels take, from waves of tiles, with costs in microseconds seen on an H200.

A launch takes a start, then for each wave of tiles the steps of K (128 bytes of each operand's rows
at a time) and the epilogue. In ping-pong, one warp group's epilogue hides under products of the
other.
"""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

from ...contract import DTYPES
from .facts import Facts
from .metadata import Variant
from .work import distinct_bytes

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

START = 3.0
EARLY = 0.7  # of the start, saved by a launch that overlaps the end of the one before
EPILOGUE, PER_ELEMENT = 0.3, 0.019  # per thread
PREPARE = 3.0  # a launch that splits an operand, beyond its traffic
SHORT = 40.0  # launches above this gain nothing from overlapping
MEET = 3.0  # what blocks that share a tile wait for each other
TFLOPS, GBPS = 800.0, 4200.0
SUM_GBPS = 85.0  # of one multiprocessor that adds up another's sums
MIN_STEPS = 4  # in a part of a split tile

# (schedule, rows, columns) -> a step; times SLOW_ROWS where rows do not begin at 128-byte lines.
STEP = {
    ("cooperative", 128, 256): 0.700, ("cooperative", 128, 192): 0.527,
    ("cooperative", 128, 128): 0.360, ("cooperative", 128, 64): 0.285,
    ("pingpong", 128, 192): 0.515, ("pingpong", 128, 128): 0.356, ("pingpong", 64, 256): 0.378,
    ("single", 64, 128): 0.212, ("single", 64, 64): 0.155,
}
SLOW_ROWS = {(128, 128): 1.15, (128, 64): 1.7, (64, 128): 2.2, (64, 64): 2.0}


def wgmma_preference(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Return six points less for each factor of two beyond a perfect use of the device."""
    dims = facts.dims
    flops = 2.0 * max(dims["M"], 1) * max(dims["N"], 1) * max(dims["K"], 1) * max(dims["BATCH"], 1)
    if variant.param_map.get("MODE") == "x3":
        flops *= 6.0
    elif variant.param_map.get("MODE") == "tf32":
        flops *= 2.0
    perfect = START - EARLY + flops / (TFLOPS * 1e6) * 132.0 / device.sm_count
    return -6.0 * log2(wgmma_time(variant, facts, device) / perfect)


def wgmma_time(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Return the estimated microseconds of a launch."""
    params, dims = variant.param_map, facts.dims
    schedule, bm, bn = str(params["SCHEDULE"]), int(params["BM"]), int(params["BN"])
    steps = steps_of(variant, dims["K"], facts.operands["A"].dtype)
    tiles = -(-dims["M"] // bm) * -(-dims["N"] // bn) * max(dims["BATCH"], 1)
    step = STEP.get((schedule, bm, bn), bm * bn / 45_000)
    if _slow_rows(facts):
        step *= SLOW_ROWS.get((bm, bn), 1.0)
    epilogue = epilogue_time(schedule, bm, bn)
    whole, splits = tail_split(variant, tiles, steps, device.sm_count)
    waves = ceil(whole / device.sm_count)
    time = waves_time(schedule, waves, steps * step, epilogue)
    if splits > 1:
        partial = bm * bn * 4 / SUM_GBPS / 1e3
        time += ceil(steps / splits) * step + MEET + splits * partial + (epilogue if not whole
                                                                         else 0.0)
    time = max(time, _bytes(facts) / GBPS / 1e3) + START
    if params.get("MODE") == "x3" or variant.kernel.name.endswith("_any"):
        time += (2 - len(facts.problem.constant)) * PREPARE
    if params.get("MODE") == "x3":
        time += 2.5 * (_bytes(facts) - _constant_bytes(facts)) / GBPS / 1e3
    if params.get("PDL") == 1:
        # Overlapping launches help short ones; many waves of small tiles get in each other's way.
        overlaps = waves <= 2 or (time < SHORT and schedule != "single")
        time = time - EARLY if overlaps else time * 1.03
    return time


def epilogue_time(schedule: str, bm: int, bn: int) -> float:
    """Return the estimated microseconds of a tile's epilogue."""
    threads = 128 if schedule != "cooperative" else 256
    return EPILOGUE + PER_ELEMENT * bm * bn / threads


def waves_time(schedule: str, waves: int, busy: float, epilogue: float) -> float:
    """Return the microseconds of waves of tiles, each busy for so long before its epilogue."""
    if schedule == "pingpong":
        return max(waves * busy + epilogue, ceil(waves / 2) * (busy + epilogue) + busy / 2)
    return waves * (busy + epilogue)


def steps_of(variant: Variant, k: int, dtype: str) -> int:
    """Return how many stages of operands a tile takes."""
    if variant.param_map.get("MODE") == "x3":
        return 6 * -(-k // 64)
    return -(-k * DTYPES[dtype].itemsize // 128)


def tail_split(variant: Variant, tiles: int, steps: int, sm_count: int) -> tuple[int, int]:
    """Return how many tiles one block computes each, and the parts of each of the others.

    A variant with TAIL = "split" splits those behind the last whole wave so far that their parts
    fill the device.
    """
    if variant.param_map.get("TAIL") != "split":
        return tiles, 1
    rest = tiles % sm_count
    if rest == 0:
        return tiles, 1
    splits = max(1, min(sm_count // rest, steps // MIN_STEPS))
    return (tiles - rest, splits) if splits > 1 else (tiles, 1)


def _slow_rows(facts: Facts) -> bool:
    for name in ("A", "B"):
        spec = facts.operands[name]
        itemsize = DTYPES[spec.dtype].itemsize
        if any(s > 1 and s * itemsize % 128 for s in spec.strides[-2:]):
            return True
    return False


def _bytes(facts: Facts) -> float:
    return float(sum(distinct_bytes(facts.operands[name]) for name in ("A", "B", "Y")))


def _constant_bytes(facts: Facts) -> float:
    """Return the bytes of operands that are split once, and not in every call."""
    inputs = facts.problem.inputs
    return float(sum(distinct_bytes(x) for slot in facts.problem.constant if (x := inputs[slot])))
