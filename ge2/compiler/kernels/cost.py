"""What each variant costs on a problem: axes of the cost model, and the selector's cost seam."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...contract import DTYPES
from ...evidence.costmodel import CostAxes, CostModel, Prediction
from ...problem import Problem
from .conv_plans import PIXELS, conv_sizes
from .facts import PRODUCTS, problem_dims
from .metadata import Variant
from .norm_gemm_plans import STREAM
from .work import bytes_of, flops_of

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

POINTS_PER_DOUBLING = 10.0

# Share of the peak that an inner loop reaches on whole tiles, from measurements on an H200.
_EFFICIENCY = {
    "gemm_bias_act_wgmma": 0.80, "gemm_bias_act_tc_f16": 0.55, "gemm_bias_act_f32_tiled": 0.75,
    "gemm_bias_act_f32": 0.05, "gemm_bias_act_skinny": 0.6, "conv2d_implicit_tc": 0.4,
    "conv2d_implicit": 0.45, "conv2d_direct": 0.05,
}
_DEFAULT_EFFICIENCY = 0.5


def axes_of(problem: Problem, variant: Variant) -> CostAxes:
    """Return the cost axes of a variant that the guards let through."""
    if problem.op_type in PRODUCTS:
        return _gemm_axes(problem, variant)
    if problem.op_type == "CONV2D":
        return _conv_axes(problem, variant)
    if problem.op_type == "ATTENTION":
        return _attention_axes(problem, variant)
    return _stream_axes(problem, variant)


def predict(problem: Problem, variant: Variant, model: CostModel) -> Prediction:
    """Return the time of a variant on the model's device."""
    return model.predict(axes_of(problem, variant))


def cost_points(model: CostModel) -> Callable[[Problem, Variant, DeviceProfile], float | None]:
    """Return a cost model for selector.rank: points below 0 for each doubling of the time.

    The unit is a microsecond, so that only differences between variants mean anything.
    """
    def points(problem: Problem, variant: Variant, device: DeviceProfile) -> float | None:
        time_us = predict(problem, variant, model).time_us
        return -POINTS_PER_DOUBLING * math.log2(max(time_us, 1e-3))

    return points


def _number(variant: Variant, name: str, default: int) -> int:
    value = variant.param_map.get(name, default)
    return value if isinstance(value, int) else default


def _gemm_axes(problem: Problem, variant: Variant) -> CostAxes:
    dims = problem_dims(problem)
    m, n, k, batch = (max(dims[name], 1) for name in ("M", "N", "K", "BATCH"))
    a = problem.inputs[0]
    assert a is not None
    size = DTYPES[a.dtype].itemsize
    name = variant.kernel.name
    if "MT" in variant.param_map:  # few rows: the large matrix is read once, in slices
        lines = max(m, n)
        per_block = 32
        blocks = math.ceil(lines / per_block) * batch
        share = 1.0 / blocks
        return CostAxes(name, blocks, 4, 2.0 * m * n * k * batch * share, False,
                        bytes_of(problem) * share, bytes_of(problem), _EFFICIENCY[name])
    bm, bn = _number(variant, "BM", 16), _number(variant, "BN", 16)
    splits = _number(variant, "SPLIT", 1)
    tiles = math.ceil(m / bm) * math.ceil(n / bn) * batch * splits
    # Short tiles spend more of their time on filling and draining, small ones reuse less.
    efficiency = _EFFICIENCY.get(name, _DEFAULT_EFFICIENCY)
    efficiency *= (bm * bn / (bm * bn + 2048.0)) * (1.0 if k >= 512 else 0.9)
    tensor = "tensor_core" in variant.kernel.flags
    traffic = (bm + bn) * k / splits * size + bm * bn * size
    smem = (bm + bn) * _number(variant, "BK", 32) * size * _number(variant, "STAGES", 2)
    if problem.op_type == "NORM_GEMM":
        smem = bm * k * size + STREAM
    resident = 1 if "persistent" in variant.kernel.flags else max(1, min(4, (200 << 10) // smem))
    return CostAxes(name, tiles, resident, 2.0 * bm * bn * k / splits, tensor, traffic,
                    bytes_of(problem), efficiency, launches=1 + (splits > 1))


def _conv_axes(problem: Problem, variant: Variant) -> CostAxes:
    sizes = conv_sizes(problem)
    x = problem.inputs[0]
    assert x is not None
    size = DTYPES[x.dtype].itemsize
    name = variant.kernel.name
    rows = _number(variant, "BM", _number(variant, "CHANNELS", 0))
    columns = _number(variant, "BN", _number(variant, "PIXELS", PIXELS))
    tensor = "tensor_core" in variant.kernel.flags
    efficiency = _EFFICIENCY.get(name, _DEFAULT_EFFICIENCY)
    if not rows:
        outputs = max(problem.outputs[0].size, 1)
        blocks = math.ceil(outputs / 128)
        return CostAxes(name, blocks, 8, flops_of(problem) / blocks, tensor,
                        2.0 * 128 * sizes.taps * size / 8, bytes_of(problem), efficiency)
    blocks = (math.ceil(sizes.group_out / rows) * sizes.groups
              * math.ceil(max(sizes.pixels, 1) / columns))
    resident = 1 if "persistent" in variant.kernel.flags else 2
    return CostAxes(name, blocks, resident, 2.0 * rows * columns * sizes.taps, tensor,
                    (rows + columns) * sizes.taps * size, bytes_of(problem),
                    efficiency * rows / (rows + 16.0),
                    launches=1 + ("workspace" in variant.kernel.flags))


def _attention_axes(problem: Problem, variant: Variant) -> CostAxes:
    """Tiles of queries of a head, each of which reads the head's keys and values once."""
    dims = problem_dims(problem)
    blocks = math.ceil(max(dims["QUERIES"], 1) / _number(variant, "BM", 64)) * max(dims["HEADS"], 1)
    name, tensor = variant.kernel.name, "tensor_core" in variant.kernel.flags
    size = DTYPES[problem.outputs[0].dtype].itemsize
    traffic = dims["KEYS"] * (dims["HEAD_SIZE"] + dims["VALUE_SIZE"]) * size
    resident = 1 if "persistent" in variant.kernel.flags else 2
    return CostAxes(name, blocks, resident, flops_of(problem) / blocks, tensor, float(traffic),
                    bytes_of(problem), _EFFICIENCY.get(name, _DEFAULT_EFFICIENCY))


def _stream_axes(problem: Problem, variant: Variant) -> CostAxes:
    """Everything that is bound by memory: blocks of equal shares, read and written once."""
    nbytes = bytes_of(problem)
    threads = _number(variant, "THREADS", 256)
    elements = threads * 4 * _number(variant, "UNROLL", 1) * _number(variant, "VECTORS", 1)
    size = max(problem.outputs[0].size, *(t.size for t in problem.inputs if t is not None), 1)
    blocks = math.ceil(size / elements)
    launches = 2 if "semaphores" in variant.kernel.flags else 1
    again = 1.5 if "online" in variant.kernel.flags else 1.0
    return CostAxes(variant.kernel.name, blocks, max(1, 2048 // max(threads, 32)),
                    4.0 * elements, False, again * nbytes / blocks, again * nbytes,
                    _DEFAULT_EFFICIENCY, launches)
