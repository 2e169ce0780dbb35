"""Cost axes of realizations, for the cost model: launches, blocks, bytes, operations."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..compiler.kernels import registry
from ..compiler.kernels.metadata import Variant
from ..compiler.kernels.work import bytes_of, flops_of
from ..contract import DTYPES
from ..evidence.costmodel import CostAxes
from ..evidence.device import DeviceProfile, profile_for
from ..problem import Problem
from . import plans, sweep
from .plans import PlanVariant
from .realizations import Realization

# Operations per element of x: multiply-adds count two, an exponential or erf about 20.
_REDUCE_OPS = {"sum": 1.0, "max": 1.0, "argmax": 6.0, "variance": 12.0, "logsumexp": 45.0}
_STREAM_OPS = {"online": 48.0, "blockwise": 28.0, "rescale_on_growth": 26.0, "two_pass": 26.0}
_REMAT_OPS = {"values": 110.0, "statistics": 116.0, "nothing": 124.0}
_FUSE_OPS = {"everything": 90.0}
# Passes over memory beyond the distinct bytes, in tensors of x's size.
_REMAT_EXTRA = {"values": 2.0, "statistics": 0.0, "nothing": 0.0}
_FUSE_EXTRA = {"unfused": 6.0, "elementwise": 4.0, "epilogue": 2.0, "accumulation": 2.0,
               "everything": 0.0}
_FORMULA_OPS = 30.0  # of an element of a formula or a row operator
EFFICIENCY = 0.5


def axes(problem: Problem, one: Realization, device: DeviceProfile) -> CostAxes:
    """Return the cost axes of a realization on a problem.

    Raises:
        Ge2Error: the problem cannot be bound.
    """
    if isinstance(one.variant, PlanVariant):
        return _plan_axes(problem, one.variant, device)
    return _kernel_axes(problem, one.variant, device)


def of_variant(problem: Problem, variant: Any) -> CostAxes:
    """Return the cost axes on an H200 of a variant, a treatment, or a variant under a condition."""
    device = profile_for("sm_90a")
    if isinstance(variant, PlanVariant):
        return _plan_axes(problem, variant, device)
    return _kernel_axes(problem, getattr(variant, "base", variant), device)


@lru_cache(maxsize=1024)
def _plan_axes(problem: Problem, variant: PlanVariant, device: DeviceProfile) -> CostAxes:
    """Return the sums over a plan's launches, as if they were one."""
    if variant.how.composed is not None:
        composed = plans.composed_problem(problem, variant.how)
        return replace(_kernel_axes(composed, registry.variant(plans.COMPOSED), device),
                       kernel=f"{variant.id} {sweep.condition(problem)}",
                       size=sweep.extent(problem))
    steps = plans.plan(problem, variant, device).steps
    records = [record for step in steps for record in step.records]
    blocks = sum(math.prod(record.grid) for record in records)
    nbytes = float(sum(bytes_of(step.problem) for step in steps))
    flops = float(sum(flops_of(s.problem) or _FORMULA_OPS * s.problem.outputs[0].size
                      for s in steps))
    x = problem.inputs[0]
    assert x is not None
    narrow = x.dtype != "f32" and flops_of(problem) > 0
    return CostAxes(f"{variant.id} {sweep.condition(problem)}", blocks, 2, flops / blocks, narrow,
                    nbytes / blocks, nbytes, EFFICIENCY, len(records), sweep.extent(problem))


@lru_cache(maxsize=4096)
def _kernel_axes(problem: Problem, variant: Variant, device: DeviceProfile) -> CostAxes:
    records = plans.bind(problem, variant, device)
    first = max(records, key=lambda r: math.prod(r.grid))
    blocks, threads = math.prod(first.grid), math.prod(first.block)
    resident = max(1, min(2048 // threads, 32, device.smem_per_sm // (first.smem + 1024)))
    x = problem.inputs[0]
    assert x is not None
    size = x.size * DTYPES[x.dtype].itemsize
    nbytes = bytes_of(problem) + _extra_tensors(problem, variant) * size
    flops = x.size * _operations(problem, variant)
    kernel = f"{variant.id} {sweep.condition(problem)}".strip()
    tensor = problem.op_type == "LAB_COMPOSE_PRODUCT" and x.dtype != "f32"
    return CostAxes(kernel, blocks, resident, flops / blocks, tensor, nbytes / blocks, nbytes,
                    EFFICIENCY, len(records), sweep.extent(problem))


def _choice(variant: Variant) -> str:
    """Return what a variant is a choice of."""
    return next((str(variant.param_map[name]) for name in ("REALIZATION", "KEEP", "FUSE")
                 if name in variant.param_map), "")


def _extra_tensors(problem: Problem, variant: Variant) -> float:
    """Return how many tensors of x's size a variant moves beyond inputs and outputs."""
    if problem.op_type == "LAB_COMPOSE_ROWS":
        x = problem.inputs[0]
        assert x is not None
        again = any(y.shape == x.shape for y in problem.outputs)
        return float(again and len(problem.inputs))
    return {**_REMAT_EXTRA, **_FUSE_EXTRA}.get(_choice(variant), 0.0)


def kept_bytes(problem: Problem, one: Realization, device: DeviceProfile) -> int:
    """Return the bytes that a realization keeps from its forward part to its backward part."""
    if isinstance(one.variant, PlanVariant):
        return plans.kept_bytes(problem, one.variant)
    return max((r.workspace for r in plans.bind(problem, one.variant, device)), default=0)


def synchronisations(one: Realization) -> str:
    """Return what threads wait for, in words."""
    params = one.variant.param_map
    return {
        "warp": "shuffles", "block": "barriers", "cluster": "cluster barrier",
        "grid": "one atomic per block"}.get(str(params.get("SCOPE")), {
            "direct": "none", "shared": "2 barriers per tile", "double_buffer": "1 per tile",
            "cp_async": "1 per tile", "producer_consumer": "mbarriers"}.get(
                str(params.get("STAGING", params.get("REALIZATION"))), "barriers"))


def _operations(problem: Problem, variant: Variant) -> float:
    if problem.op_type == "LAB_COMPOSE_PRODUCT":
        x = problem.inputs[0]
        assert x is not None
        # A row output takes the product once more.
        twice = any(len(y.shape) == 2 for y in problem.outputs) and len(
            getattr(problem.attr_map["row"], "state", ())) > 0
        return flops_of(problem) * (1.0 + twice) / x.size
    if problem.op_type == "LAB_COMPOSE_ROWS":
        return _FORMULA_OPS
    if problem.op_type == "LAB_REDUCE":
        return _REDUCE_OPS.get(sweep.condition(problem), 10.0)
    if problem.op_type == "LAB_STAGE":
        weights = problem.inputs[1]
        return 3.0 * (weights.size if weights else 1)
    table = {"LAB_STREAM": (_STREAM_OPS, 40.0), "LAB_REMAT": (_REMAT_OPS, 110.0),
             "LAB_FUSE": (_FUSE_OPS, 60.0)}
    known, otherwise = table[problem.op_type]
    return known.get(_choice(variant), otherwise)
