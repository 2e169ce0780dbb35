"""Operands of a problem in memory: laid out as its specs say, with poisoned outputs and guards.

Inputs of large problems repeat along one axis with a prime period: every output element can be
compared, and the float64 reference takes a period instead of the whole. A prime shares no factor
with tiles, so an element that comes from another tile's place shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..compiler.ir.expr import ExprBundle, walk
from ..contract import DTYPES, numpy_dtype
from ..problem import Problem, TensorSpec
from ..runtime.device import Allocation, Device
from ..runtime.problem_reference import random_inputs, reference

Array = np.ndarray[Any, Any]

POISON = 0xFB  # as bytes of a float: finite, negative and far out
GUARD_BYTES = 256
REFERENCE_ELEMENTS = 1 << 21
REFERENCE_FLOPS = 1e10
_PRIMES = (3, 7, 13, 31, 61, 127, 251, 509, 1021, 8191, 65521, 524287)


@dataclass(frozen=True, slots=True)
class Period:
    """How a problem's operands repeat: per tensor the axis (from the end), None where not."""

    length: int
    axes: tuple[int | None, ...]


def period_of(problem: Problem) -> Period | None:
    """Return how the operands may repeat so that the reference stays small; None: not at all."""
    axes = _repeated_axes(problem)
    if axes is None:
        return None
    output = problem.outputs[0]
    extent = output.shape[axes[len(problem.inputs)] or 0] if output.shape else 0
    rest = max(max((t.size for t in problem.tensors if t is not None), default=1)
               // max(extent, 1), 1)
    work = _flops_per_step(problem, extent)
    most = min(REFERENCE_ELEMENTS // rest, int(REFERENCE_FLOPS / max(work, 1.0)))
    fitting = [p for p in _PRIMES if p <= max(most, 3) and 2 * p < extent]
    return Period(fitting[-1], axes) if fitting else None


def _flops_per_step(problem: Problem, extent: int) -> float:
    from ..compiler.kernels.work import flops_of

    return flops_of(problem) / max(extent, 1)


def _repeated_axes(problem: Problem) -> tuple[int | None, ...] | None:
    """Return for each tensor the axis that counts the same independent rows of the output."""
    if any(_reads_coordinates(value) for _, value in problem.attrs):
        return None
    out = problem.outputs[0]
    if problem.op_type == "GEMM_BIAS_ACT":
        row = len(out.shape) - 2
        a = -1 if problem.attr_map.get("trans_a") else -2
        rest = [None if t is None else row for t in problem.inputs[2:]]
        assert problem.inputs[0] is not None
        return (len(problem.inputs[0].shape) + a, None, *rest, *(row for _ in problem.outputs))
    if problem.op_type == "NORM_GEMM":
        of_rows = (0 if t is not None and slot not in (1, 2, 3) else None
                   for slot, t in enumerate(problem.inputs))
        return (*of_rows, *(0 for _ in problem.outputs))
    if problem.op_type in ("CONV2D", "POOL1D", "POOL2D", "POOL3D"):
        images = [0 if t is not None and i in (0, 3) else None
                  for i, t in enumerate(problem.inputs)]
        return (*images, 0)
    if problem.op_type == "ATTENTION":
        return _attention_axes(problem)
    if problem.op_type == "LAB_GRAPH":
        return problem.attr_map["repeats"]  # type: ignore[return-value]
    if problem.op_type == "LAB_COMPOSE_PRODUCT":
        rows = problem.outputs[0].shape[0]
        more = (0 if t is not None and len(t.shape) == 2 and t.shape[0] == rows else None
                for t in problem.inputs[2:])
        return (0, None, *more, *(0 for _ in problem.outputs))
    if problem.op_type == "LAB_FUSE":
        return (0, None, None, 0, 0)
    if problem.op_type in ("ELEMENTWISE", "ROW", "LAB_REDUCE", "LAB_STREAM", "LAB_REMAT",
                           "LAB_COMPOSE_ROWS"):
        x = problem.inputs[0]
        shape = out.shape if problem.op_type == "ELEMENTWISE" else x.shape if x else ()
        least = 1 if problem.op_type == "ELEMENTWISE" else 2
        if len(shape) < least or any(t is None or not t.shape or t.shape[0] != shape[0]
                                     for t in problem.tensors):
            return None
        return (0,) * len(problem.tensors)
    return None


def _attention_axes(problem: Problem) -> tuple[int | None, ...] | None:
    """Return the heads where each has its own keys, else the samples; None for packed sequences."""
    q, k = problem.inputs[:2]
    assert q is not None and k is not None
    if any(t is not None for t in problem.inputs[5:7]):
        return None
    axis = 1 if q.shape[1] == k.shape[1] else 0
    return tuple(None if t is None or len(t.shape) <= axis else axis for t in problem.tensors)


def _reads_coordinates(value: object) -> bool:
    return isinstance(value, ExprBundle) and any(
        node.kind in ("coord", "scalar") for node in walk(value.outputs))


def shortened(problem: Problem, period: Period) -> Problem:
    """Return the problem over one period (its strides only tell which axes broadcast)."""
    def cut(spec: TensorSpec | None, axis: int | None) -> TensorSpec | None:
        if spec is None or axis is None:
            return spec
        shape = (*spec.shape[:axis], period.length, *spec.shape[axis + 1:])
        return TensorSpec(spec.dtype, shape, spec.strides, spec.align)

    specs = [cut(s, a) for s, a in zip(problem.tensors, period.axes, strict=True)]
    n = len(problem.inputs)
    outputs = tuple(s for s in specs[n:] if s is not None)
    return replace(problem, inputs=tuple(specs[:n]), outputs=outputs)


class Data:
    """Random inputs of a problem and what must come out.

    Attributes:
        inputs: one array per input over one period, None where absent.
        period: None where the arrays are whole.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self.period = period_of(problem)
        small = shortened(problem, self.period) if self.period else problem
        self._small = small
        self.inputs = random_inputs(small, seed)
        self._wanted: list[Array] | None = None

    @property
    def wanted(self) -> list[Array]:
        """The float64 outputs over one period."""
        if self._wanted is None:
            with np.errstate(all="ignore"):
                self._wanted = reference(self._small, self.inputs)
        return self._wanted

    def whole(self, slot: int) -> Array | None:
        """Return an input in its full extent."""
        array = self.inputs[slot]
        axis = self.period.axes[slot] if self.period else None
        spec = self.problem.inputs[slot]
        if array is None or axis is None or spec is None or self.period is None:
            return array
        if spec.strides[axis] == 0:
            return np.broadcast_to(array.take([0], axis), spec.shape)
        return array.take(np.arange(spec.shape[axis]) % self.period.length, axis)

    def output_axis(self, index: int) -> int | None:
        """Return the axis along which an output repeats."""
        return self.period.axes[len(self.problem.inputs) + index] if self.period else None


def reach(spec: TensorSpec) -> tuple[int, int]:
    """Return the lowest and one past the highest element offset that an index reaches."""
    if spec.size == 0:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + 1


@dataclass(slots=True)
class Tensor:
    """Device memory of one operand, between guards.

    Attributes:
        spec: shape, strides, alignment.
        memory: the allocation.
        first: byte offset of element 0. start, end: bytes that elements lie in.
    """

    spec: TensorSpec
    memory: Allocation
    first: int
    start: int
    end: int

    @property
    def address(self) -> int:
        """Address of element 0."""
        return self.memory.address + self.first

    def view(self, raw: Array) -> Array:
        """Return the memory's bytes as the strided tensor."""
        dtype = numpy_dtype(self.spec.dtype)
        # As plain bits: NumPy has no strided views of some of ml_dtypes' types.
        body = raw[self.start:self.end].view(f"u{dtype.itemsize}")
        origin = (self.first - self.start) // dtype.itemsize
        strides = tuple(s * dtype.itemsize for s in self.spec.strides)
        return np.lib.stride_tricks.as_strided(
            body[origin:], self.spec.shape, strides).view(dtype)


def allocate(device: Device, spec: TensorSpec) -> Tensor:
    """Return memory for a tensor whose address has exactly the alignment of its spec."""
    size = DTYPES[spec.dtype].itemsize
    low, high = reach(spec)
    shift = max(spec.align, size) if spec.align < 16 else 0
    start = GUARD_BYTES + (shift + low * size) % 16
    end = start + (high - low) * size
    return Tensor(spec, device.allocate(end + GUARD_BYTES), start - low * size, start, end)


def fill(device: Device, tensor: Tensor, array: Array | None) -> None:
    """Poison a tensor's memory and, for an input, write its elements."""
    raw = np.full(tensor.memory.nbytes, POISON, np.uint8)
    if array is not None and tensor.spec.size:
        # An axis of stride 0 is one element: writing it once is enough.
        lead = tuple(slice(0, 1) if s == 0 else slice(None) for s in tensor.spec.strides)
        tensor.view(raw)[lead] = array[lead]
    device.copy(tensor.memory.address, raw.__array_interface__["data"][0], raw.nbytes, 0)
    device.synchronize(0)


def read(device: Device, tensor: Tensor) -> Array:
    """Return all bytes of a tensor's memory."""
    raw = np.empty(tensor.memory.nbytes, np.uint8)
    device.copy(raw.__array_interface__["data"][0], tensor.memory.address, raw.nbytes, 0)
    device.synchronize(0)
    return raw


def duplicate(device: Device, tensor: Tensor) -> Tensor:
    """Return another tensor with the same contents."""
    copy = allocate(device, tensor.spec)
    device.copy(copy.memory.address, tensor.memory.address, tensor.memory.nbytes, 0)
    return copy


def guards_hold(tensor: Tensor, raw: Array) -> bool:
    """Whether nothing was written outside a tensor's elements."""
    return bool((raw[:tensor.start] == POISON).all() and (raw[tensor.end:] == POISON).all())


def total_bytes(specs: Sequence[TensorSpec | None]) -> int:
    """Return the bytes that tensors take in memory."""
    return sum((reach(s)[1] - reach(s)[0]) * DTYPES[s.dtype].itemsize
               for s in specs if s is not None)
