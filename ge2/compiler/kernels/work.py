"""What a problem reads, writes and computes at least, and the least time that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...contract import DTYPES
from ...problem import Problem, TensorSpec
from .facts import PRODUCTS

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile


def flops_of(problem: Problem) -> int:
    """Return the multiplications and additions of products and convolutions, else 0."""
    output = problem.outputs[0]
    if problem.op_type in PRODUCTS or problem.op_type == "MATMUL_NBITS":
        a = problem.inputs[0]
        assert a is not None
        k = a.shape[-2] if problem.attr_map.get("trans_a") else a.shape[-1]
        return 2 * output.size * k
    if problem.op_type.startswith("CONV"):
        weights = problem.inputs[1]
        assert weights is not None
        return 2 * output.size * (weights.size // max(weights.shape[0], 1))
    if problem.op_type == "LAB_GRAPH":
        return int(str(problem.attr_map["flops"]))
    if problem.op_type == "LAB_COMPOSE_PRODUCT":
        a, b = problem.inputs[:2]
        assert a is not None and b is not None
        return 2 * a.size * b.shape[0]
    if problem.op_type == "ATTENTION":
        return _attention_flops(problem)
    if problem.op_type == "LAB_STAGE":
        taps = problem.inputs[1]
        assert taps is not None
        return 2 * output.size * taps.size
    return 0


def _attention_flops(problem: Problem) -> int:
    """Return those of both products over the keys that the band lets queries see."""
    q, k, v = problem.inputs[:3]
    assert q is not None and k is not None and v is not None
    left, right, offset = (int(str(problem.attr_map[name])) for name in (
        "left_window_size", "right_window_size", "query_offset"))
    queries, keys = q.shape[2], k.shape[2]
    pairs = queries * keys
    if left >= 0 or right >= 0:
        place = np.arange(queries) + offset
        begin = np.maximum(place - left, 0) if left >= 0 else 0
        end = np.minimum(place + right + 1, keys) if right >= 0 else keys
        pairs = int(np.maximum(end - begin, 0).sum())
    return 2 * q.shape[0] * q.shape[1] * pairs * (q.shape[3] + v.shape[3])


def bytes_of(problem: Problem) -> int:
    """Return the bytes of all distinct elements that a problem reads and writes."""
    return sum(distinct_bytes(spec) for spec in problem.tensors if spec is not None)


def distinct_bytes(spec: TensorSpec) -> int:
    """Return the bytes of a tensor's distinct elements: those of a broadcast axis count once."""
    count = DTYPES[spec.dtype].itemsize
    for extent, stride in zip(spec.shape, spec.strides, strict=True):
        count *= extent if stride else min(extent, 1)
    return count


def peak_tflops(problem: Problem, device: DeviceProfile) -> float:
    """Return the arithmetic peak for a problem's element type."""
    narrow = problem.outputs[0].dtype in ("f16", "bf16")
    return device.tensor_tflops if narrow else device.fp32_tflops


def least_seconds(problem: Problem, device: DeviceProfile) -> float:
    """Return the time below which a device cannot solve a problem: memory or arithmetic."""
    return max(bytes_of(problem) / (device.copy_gbps * 1e9),
               flops_of(problem) / (peak_tflops(problem, device) * 1e12))
