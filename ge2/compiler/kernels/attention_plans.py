"""Which tile of queries suits an attention: large ones reuse keys, small ones fill a device."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from ...problem import Problem
from .facts import problem_dims
from .metadata import Variant

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

# Work per time of a tile of so many queries against that of 64 or, on CUDA cores, 32 of them. Not
# measured: shares of reads from shared memory that more queries spare.
_MMA = {128: 1.25, 64: 1.0}
_SIMT = {64: 1.3, 32: 1.0, 16: 0.6, 8: 0.3}
# Points lost by tiles of so many keys.
_MANY_KEYS: dict[int | str, float] = {64: 0.0, 32: 1.0, 16: 2.0}
_FEW_KEYS: dict[int | str, float] = {64: 1.0, 32: 0.0, 16: 0.5}


def attention_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return score points: six for each factor of two in time, by waves of tiles and their rate."""
    rates = {"attention_mma": _MMA, "attention_simt": _SIMT}.get(variant.kernel.name)
    if rates is None:
        return 0.0
    dims = problem_dims(problem)
    rows = int(variant.param("BM"))
    tiles = -(-dims["QUERIES"] // rows) * dims["HEADS"]
    work = max(dims["QUERIES"] * dims["HEADS"] / device.sm_count, 1.0)
    points = -6.0 * log2(max(-(-tiles // device.sm_count), 1) * rows / rates[rows] / work)
    keys = variant.param_map.get("BN", 64)
    return points - (_FEW_KEYS if dims["KEYS"] <= 32 else _MANY_KEYS)[keys]
