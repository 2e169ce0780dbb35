"""Runs cases on a device: one upload, the launches, one download, then every byte is checked."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ge2.launch_table as table
from ge2.compiler.kernels.metadata import Variant
from ge2.contract import DTYPES, numpy_dtype
from ge2.launch.record import LaunchRecord
from ge2.problem import Problem
from ge2.runtime.device import Allocation, Device, EmulatedUnit, Unit
from ge2.runtime.problem_reference import reference

from .case import Case
from .layouts import Operand

Array = np.ndarray[Any, Any]

GUARD = 256
POISON = 0xFF  # NaN in every float type, so that an element left unwritten is seen
_ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "f64": 2.0**-53}
# Epilogues of 16-bit products use an erf with an absolute error of 3.3e-5.
_EPILOGUE_SLACK = 4e-5
_TF32_SLACK = 2.0**-9
# wgmma aligns 33 addends of 8-bit floats to the largest and drops what lies 13 bits below it; the
# sums move on to f32 every 128 of k.
_WGMMA_F8_SLACK = 2.0**-11
# Kernels may round each weight, (code - zero point) * scale, to the element type of A.
_NBITS_SLACK = {"f16": 2.0**-10, "bf16": 2.0**-8}
_TINY = {"f32": 1e-37, "f16": 2.0**-24, "bf16": 1e-37, "f64": 1e-300}


@dataclass(slots=True)
class Placed:
    """An operand in the image of device memory: byte offsets of storage and first element."""

    operand: Operand
    start: int
    nbytes: int
    first: int

    def view(self, image: Array) -> Array:
        """Return the operand's elements in an image."""
        spec = self.operand.spec
        dtype = numpy_dtype(spec.dtype)
        if spec.size == 0:
            return np.zeros(spec.shape, dtype)
        # As plain bits: NumPy has no strided views of some of ml_dtypes' types.
        storage = image[self.start:self.start + self.nbytes].view(f"u{dtype.itemsize}")
        strides = tuple(s * dtype.itemsize for s in spec.strides)
        return np.lib.stride_tricks.as_strided(storage[self.operand.offset:], spec.shape,
                                               strides).view(dtype)


class Runner:
    """Keeps device memory from case to case."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._memory: Allocation | None = None

    def check(self, case: Case, variant: Variant) -> int:
        """Run a case with a variant and compare with float64; return how many launches it took.

        Raises:
            AssertionError: a wrong element, or a byte outside of the outputs has changed.
        """
        records = table.bind(case.problem, variant, self.device.profile)
        if records:
            self.check_units(case, self.device.prepare(records))
        return len(records)

    def check_units(self, case: Case, units: Sequence[Unit]) -> None:
        """Run prepared launches of a case and compare with float64."""
        placed, image, scratch = _place(case, [unit.record for unit in units])
        before = image.copy()
        base = self._base(len(image))
        self.device.copy(base, image.ctypes.data, len(image), 0)
        addresses = [base + p.first if p else 0 for p in placed]
        for unit in units:
            unit.args.patch(addresses, base + scratch[0], base + scratch[1])
            if isinstance(unit, EmulatedUnit):
                unit.memory = [(base + p.start, p.nbytes) for p in placed if p and p.nbytes]
                unit.memory += [(base + scratch[0], scratch[1] - scratch[0] - GUARD),
                                (base + scratch[1], len(image) - scratch[1] - GUARD)]
            unit(0)
        self.device.synchronize(0)
        self.device.copy(image.ctypes.data, base, len(image), 0)
        self.device.synchronize(0)
        compare(case, placed, before, image, scratch,
                units[0].record.kernel.entry if units else "")

    def _base(self, nbytes: int) -> int:
        if self._memory is None or self._memory.nbytes < nbytes:
            self._memory = self.device.allocate(max(nbytes, 1 << 24))
        return self._memory.address


def _place(case: Case, records: Sequence[LaunchRecord],
           ) -> tuple[list[Placed | None], Array, tuple[int, int]]:
    """Return operands with guards around them, the image with data, and workspace, semaphores."""
    placed: list[Placed | None] = []
    end = 0
    for operand in case.operands:
        if operand is None:
            placed.append(None)
            continue
        itemsize = DTYPES[operand.spec.dtype].itemsize
        start = end + GUARD
        nbytes = operand.elements * itemsize
        placed.append(Placed(operand, start, nbytes, start + operand.offset * itemsize))
        end = -(-(start + nbytes) // 256) * 256
    workspace = end + GUARD
    words = max((record.semaphores for record in records), default=0)
    size = -(-max((record.workspace for record in records), default=0) // 256) * 256
    semaphores = workspace + size + GUARD
    image = np.full(semaphores + 4 * words + GUARD, POISON, np.uint8)
    image[semaphores:semaphores + 4 * words] = 0
    draw = np.random.default_rng(zlib.crc32(case.name.encode()))
    ranges = {slot: (low, high) for slot, low, high in case.index_range}
    given = dict(case.given)
    for slot, spot in enumerate(placed[:len(case.problem.inputs)]):
        if spot is not None:
            storage = image[spot.start:spot.start + spot.nbytes]
            dtype = spot.operand.spec.dtype
            values = random_values(draw, dtype, spot.operand.elements, ranges.get(slot))
            if slot in given:
                values = np.array(given[slot], numpy_dtype(dtype))
            if case.positive:
                values = np.abs(values) % 1 + values.dtype.type(0.5)
            storage[:] = values.view(np.uint8)
    return placed, image, (workspace, semaphores)


def random_values(draw: np.random.Generator, dtype: str, count: int,
                  span: tuple[int, int] | None = None) -> Array:
    """Return count random elements: normal floats, small integers, or integers from a span."""
    kind = DTYPES[dtype].kind
    if kind == "float":
        return draw.standard_normal(count).astype(numpy_dtype(dtype))
    if kind == "bool":
        return draw.integers(0, 2, count).astype(np.bool_)
    low, high = span or ((0, 100) if dtype == "u8" else (-50, 50))
    return draw.integers(low, high, count).astype(numpy_dtype(dtype))


def compare(case: Case, placed: Sequence[Placed | None], before: Array, after: Array,
            scratch: tuple[int, int], entry: str) -> None:
    """Check outputs of a kernel against float64, and that nothing else has changed.

    Raises:
        AssertionError: says which element, or which byte.
    """
    n_in = len(case.problem.inputs)
    inputs = [p.view(before) if p else None for p in placed[:n_in]]
    expected = list(reference(case.problem, inputs))
    rows = case.problem.attr_map.get("rows", "none")
    if rows != "none" and placed[n_in] is not None:  # of the elements as they are stored
        expected[-1] = row_values(str(rows), placed[n_in].view(after))
    rest = after.copy()
    for index, (spot, wanted) in enumerate(zip(placed[n_in:], expected, strict=True)):
        assert spot is not None
        dtype = spot.operand.spec.dtype
        check_values(f"{case.name} output {index}", dtype, spot.view(after), wanted, case.terms,
                     slack_of(case.problem, dtype, entry) + case.slack)
        spot.view(rest)[...] = spot.view(before)
    rest[scratch[0]:scratch[1] - GUARD] = before[scratch[0]:scratch[1] - GUARD]
    changed = np.flatnonzero(rest != before)
    assert changed.size == 0, _where(case.problem, placed, int(changed[0]), scratch)


def _where(problem: Problem, placed: Sequence[Placed | None], byte: int,
           scratch: tuple[int, int]) -> str:
    if byte >= scratch[1]:
        return f"semaphores: byte {byte - scratch[1]} is not zero after the call"
    for slot, spot in enumerate(placed):
        if spot and spot.start - GUARD <= byte < spot.start + spot.nbytes + GUARD:
            return (f"{problem.op_type} wrote outside of its outputs: slot {slot}, byte "
                    f"{byte - spot.start} of {spot.nbytes}")
    return f"{problem.op_type} wrote outside of its outputs and workspace: byte {byte}"


def row_values(kind: str, stored: Array) -> Array:
    """Return in float64 what a product says of each row of its first output: [..., m, 1]."""
    exact = stored.astype(np.float64)
    if kind == "max":
        return np.max(exact, axis=-1, keepdims=True, initial=-np.inf)
    return np.sum(exact if kind == "sum" else np.square(exact), axis=-1, keepdims=True)


def slack_of(problem: Problem, dtype: str, entry: str = "") -> float:
    """Return the error of a problem's own arithmetic, as a share of the largest output.

    Args:
        problem, dtype: and the element type of the output.
        entry: the kernel that solves it.
    """
    if problem.op_type == "NORM_GEMM":
        # An element of a row may round to the other neighbour of what float64 gives.
        return _ROUNDING[dtype] + (_EPILOGUE_SLACK if dtype in ("f16", "bf16") else 0.0)
    if problem.op_type == "MATMUL_NBITS":
        return _NBITS_SLACK.get(dtype, 0.0)
    if problem.op_type in ("ATTENTION", "ATTENTION_GRAD", "PAGED_ATTENTION"):
        # Weights are rounded to 16 bits before they meet values of up to about four; sums of f64
        # cancel to results far below their terms.
        return {"f16": 4.0, "bf16": 4.0, "f64": 1.0}.get(dtype, 0.0) * _ROUNDING[dtype]
    if problem.op_type != "GEMM_BIAS_ACT":
        return 0.0
    if problem.attr_map.get("f32") == "tf32":
        return _TF32_SLACK
    a = problem.inputs[0]
    if entry == "gemm_bias_act_wgmma_8bit" and a is not None and a.dtype.startswith("f8"):
        return _WGMMA_F8_SLACK
    return _EPILOGUE_SLACK if dtype in ("f16", "bf16") else 0.0


def check_values(name: str, dtype: str, found: Array, wanted: Array, terms: int = 1,
                 slack: float = 0.0) -> None:
    """Compare with float64: one rounding to the output type plus f32 sums of `terms` terms.

    Args:
        name: for the message.
        dtype: of the output.
        found, wanted: what came out, and the same in float64.
        terms: how many products or elements one output sums up.
        slack: further error allowed, as a share of the largest output.

    Raises:
        AssertionError: names the worst element.
    """
    assert found.shape == wanted.shape, f"{name}: shape {found.shape}, wanted {wanted.shape}"
    if found.size == 0:
        return
    if DTYPES[dtype].kind != "float":
        wrong = found != wanted.astype(found.dtype)
        assert not wrong.any(), (f"{name}: {int(wrong.sum())} of {found.size} elements differ, "
                                 f"first at {np.argwhere(wrong)[0].tolist()}")
        return
    with np.errstate(all="ignore"):
        exact = wanted.astype(np.float64)
        rounded = exact.astype(found.dtype).astype(np.float64)
        got = found.astype(np.float64)
        finite = np.isfinite(rounded)
        scale = max(1.0, float(np.abs(exact[finite]).max(initial=0.0)))
        sums = 0.0 if dtype == "f64" else 8 * 2.0**-24 * max(terms, 4) ** 0.5 * scale
        limit = (1.05 * _ROUNDING[dtype] * np.abs(exact) + sums + slack * scale
                 + _TINY[dtype])
        if dtype == "f64":
            limit = limit * 16 * max(terms, 4) ** 0.5
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        good = np.where(finite, np.abs(got - exact) <= limit, same)
    if not good.all():
        at = tuple(np.argwhere(~good)[0].tolist())
        raise AssertionError(f"{name}: {int((~good).sum())} of {good.size} elements are wrong, "
                             f"first at {at}: found {got[at]}, wanted {exact[at]}")
