"""Cost axes of realizations, for the cost model: launches, blocks, bytes, operations."""

from __future__ import annotations

import math

from .. import launch_table
from ..compiler.kernels.work import bytes_of
from ..contract import DTYPES
from ..evidence.costmodel import CostAxes
from ..evidence.device import DeviceProfile
from ..problem import Problem
from . import sweep
from .primitives import Realization

# Operations per element of x: multiply-adds count two, an exponential or erf about 20.
_REDUCE_OPS = {"sum": 1.0, "max": 1.0, "argmax": 6.0, "variance": 12.0, "logsumexp": 45.0}
_STREAM_OPS = {"online": 48.0, "blockwise": 28.0, "rescale_on_growth": 26.0, "two_pass": 26.0}
_REMAT_OPS = {"values": 110.0, "statistics": 116.0, "nothing": 124.0}
_FUSE_OPS = {"everything": 90.0}
# Passes over memory beyond the distinct bytes, in tensors of x's size.
_REMAT_EXTRA = {"values": 2.0, "statistics": 0.0, "nothing": 0.0}
_FUSE_EXTRA = {"unfused": 6.0, "elementwise": 4.0, "epilogue": 2.0, "accumulation": 2.0,
               "everything": 0.0}
EFFICIENCY = 0.5


def axes(problem: Problem, one: Realization, device: DeviceProfile) -> CostAxes:
    """Return the cost axes of a realization on a problem.

    Raises:
        Ge2Error: the problem cannot be bound.
    """
    records = launch_table.bind(problem, one.variant, device)
    first = max(records, key=lambda r: math.prod(r.grid))
    blocks, threads = math.prod(first.grid), math.prod(first.block)
    resident = max(1, min(2048 // threads, 32, device.smem_per_sm // (first.smem + 1024)))
    x = problem.inputs[0]
    assert x is not None
    size = x.size * DTYPES[x.dtype].itemsize
    nbytes = bytes_of(problem) + extra_tensors(one) * size
    flops = x.size * _operations(problem, one)
    kernel = f"{one.variant.id} {sweep.condition(problem)}".strip()
    return CostAxes(kernel, blocks, resident, flops / blocks, False, nbytes / blocks, nbytes,
                    EFFICIENCY, len(records))


def extra_tensors(one: Realization) -> float:
    """Return how many tensors of x's size a realization moves beyond inputs and outputs."""
    return {**_REMAT_EXTRA, **_FUSE_EXTRA}.get(one.name, 0.0)


def kept_bytes(problem: Problem, one: Realization, device: DeviceProfile) -> int:
    """Return the bytes of workspace that a realization needs."""
    return max((r.workspace for r in launch_table.bind(problem, one.variant, device)), default=0)


def synchronisations(one: Realization) -> str:
    """Return what threads wait for, in words."""
    params = one.variant.param_map
    return {
        "warp": "shuffles", "block": "barriers", "cluster": "cluster barrier",
        "grid": "one atomic per block"}.get(str(params.get("SCOPE")), {
            "direct": "none", "shared": "2 barriers per tile", "double_buffer": "1 per tile",
            "cp_async": "1 per tile", "producer_consumer": "mbarriers"}.get(
                str(params.get("REALIZATION")), "barriers"))


def _operations(problem: Problem, one: Realization) -> float:
    if problem.op_type == "LAB_REDUCE":
        return _REDUCE_OPS.get(sweep.condition(problem), 10.0)
    if problem.op_type == "LAB_STAGE":
        weights = problem.inputs[1]
        return 3.0 * (weights.size if weights else 1)
    table = {"LAB_STREAM": (_STREAM_OPS, 40.0), "LAB_REMAT": (_REMAT_OPS, 110.0),
             "LAB_FUSE": (_FUSE_OPS, 60.0)}
    known, otherwise = table[problem.op_type]
    return known.get(one.name, otherwise)
