"""Problems as things to time: random operands in enough buffer sets to miss the L2 cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ge2.launch_table as table
from ge2.compiler.kernels import selector
from ge2.compiler.kernels.metadata import Variant
from ge2.contract import DTYPES, FLOAT8_MAX, numpy_dtype
from ge2.evidence.measure import Candidate, rotations
from ge2.problem import Problem, TensorSpec
from ge2.runtime.device import CudaDevice
from ge2.runtime.memory import SCRATCH
from ge2.tune.bench import units_of_call

MAX_BYTES = 24 << 30
_PRODUCTS = ("GEMM_BIAS_ACT", "MATMUL_NBITS")

Tensors = list[Any]


def _float8(halves: Any, dtype: str) -> Any:
    """Return 8-bit floats, truncated, of the bits of f16."""
    if dtype == "f8e5m2":
        return (halves >> 8).astype("u1")
    magnitude = (halves & 0x7fff).astype("i4") - 0x2000  # exponents differ by 8
    return ((magnitude * (magnitude > 0) >> 7) | (halves >> 8 & 0x80)).astype("u1")


def problem_bytes(problem: Problem) -> int:
    """Return the bytes that every tensor of a problem takes once (stride 0 counts once)."""
    return sum(_storage(spec) * DTYPES[spec.dtype].itemsize
               for spec in problem.tensors if spec is not None)


def _storage(spec: TensorSpec) -> int:
    return spec.max_offset + 1 if spec.size else 0


def buffer_sets(problem: Problem, device: CudaDevice,
                pool: dict[tuple[str, int, int, int], Any] | None = None) -> list[Tensors]:
    """Return sets of CuPy arrays with random contents, one array per tensor (None where absent).

    Args:
        problem, device: what will run where.
        pool: keeps large arrays for the next problem that has as many elements in the same place.
    """
    import cupy

    nbytes = problem_bytes(problem)
    count = min(rotations(nbytes, device.profile.l2_bytes), max(2, MAX_BYTES // max(nbytes, 1)))
    draw = cupy.random.default_rng(0)

    def make(spec: TensorSpec | None) -> Any:
        if spec is None:
            return None
        size = _storage(spec)
        kind = DTYPES[spec.dtype].kind
        if kind == "float":
            values = draw.standard_normal(size, dtype="f4")
            if spec.dtype == "bf16":  # the upper half of an f32
                return (values.view("u4") >> 16).astype("u2")
            if spec.dtype in FLOAT8_MAX:
                return _float8(values.astype("f2").view("u2"), spec.dtype)
            return values.astype(numpy_dtype(spec.dtype))
        if problem.op_type in _PRODUCTS and DTYPES[spec.dtype].itemsize == 1:
            return draw.integers(0, 256, size).astype("u1").view(numpy_dtype(spec.dtype))
        return draw.integers(0, 2 if kind == "bool" else 100, size).astype(numpy_dtype(spec.dtype))

    def take(spec: TensorSpec | None, number: int, position: int) -> Any:
        if pool is None or spec is None or _storage(spec) < 1 << 20:
            return make(spec)
        key = (spec.dtype, _storage(spec), number, position)
        if key not in pool:
            pool[key] = make(spec)
        return pool[key]

    return [[take(spec, number, position) for position, spec in enumerate(problem.tensors)]
            for number in range(count)]


def problem_candidate(problem: Problem, device: CudaDevice, sets: Sequence[Tensors],
                      variant: Variant | None = None, constant: Sequence[int] = ()) -> Candidate:
    """Return a candidate that solves a problem on each of the buffer sets.

    Args:
        problem, device, sets: what, where and on which buffers. What is made of the problem's
            constant inputs is made here.
        variant: how; default: as selected.
        constant: slots of inputs that stand for a model's weights; see launch_table.bind.
    """
    chosen = variant or selector.select(problem, device.profile).variant
    records = table.bind(problem, chosen, device.profile, constant=constant, prepare=True)
    workspace = max((record.workspace for record in records), default=0)
    semaphores = max((record.semaphores for record in records), default=0)
    scratch = SCRATCH.get(device, 0, workspace, semaphores) if workspace or semaphores else (0, 0)
    launches: list[Callable[[int], object]] = []
    for tensors in sets:
        addresses = [0 if t is None else t.data.ptr for t in tensors]
        launches.append(_in_order(units_of_call(device, records, addresses, *scratch)))
    return Candidate(launches, problem_bytes(problem))


def _in_order(units: Sequence[Callable[[int], object]]) -> Callable[[int], object]:
    def enqueue(stream: int) -> None:
        for unit in units:
            unit(stream)

    return enqueue


def torch_candidate(sets: Sequence[Tensors], nbytes: int,
                    call: Callable[[list[Any]], object]) -> Candidate:
    """Return a candidate that calls a torch function on torch views of the same buffers."""
    import cupy
    import torch

    def prepare(tensors: Tensors) -> Callable[[int], object]:
        views = [None if t is None else torch.as_tensor(t, device="cuda") for t in tensors]

        def enqueue(stream: int) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                call(views)

        return enqueue

    del cupy
    return Candidate([prepare(tensors) for tensors in sets], nbytes)
