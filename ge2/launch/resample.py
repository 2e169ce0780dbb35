"""Launch rules of resampling: tables of places and weights along one or two axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..compiler.ir.size import common_divisor
from ..compiler.kernels.walk import INT32_MAX
from ..contract import DTYPES
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_SPECIALISED = (1, 2, 4)  # numbers of taps that the loops are unrolled for
_MOST_STAGED = 64 * 1024  # bytes of a block: three of them fit on a multiprocessor of an H200
_PICKED_BYTES, _SUMMED_BYTES = 8, 4  # of neighbours that one thread makes


@dataclass(frozen=True, slots=True)
class _View:
    """x as [outer, rows, middle, columns, inner]; rows has extent 1 where one axis is resampled.

    Attributes:
        outer, middle, inner: extents of what stays.
        rows, columns: (extent in x, extent in y).
        slots: of places_a, weights_a, places_b, weights_b; None where absent.
        taps: along rows and columns.
    """

    outer: int
    middle: int
    inner: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    slots: tuple[int | None, ...]
    taps: tuple[int, int]


def _view(problem: Problem) -> _View:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    axes = cast("tuple[int, ...]", problem.attr_map["axes"])
    present = [slot if slot < len(problem.inputs) and problem.inputs[slot] is not None else None
               for slot in range(1, 5)]
    tables = [problem.inputs[1 + 2 * i] for i in range(len(axes))]
    taps = [t.shape[1] for t in tables if t is not None]
    last = axes[-1]
    columns, inner = (x.shape[last], y.shape[last]), prod(x.shape[last + 1:])
    if len(axes) == 1:
        return _View(prod(x.shape[:last]), 1, inner, (1, 1), columns,
                     (None, None, *present[:2]), (1, taps[0]))
    first = axes[0]
    return _View(prod(x.shape[:first]), prod(x.shape[first + 1:last]), inner,
                 (x.shape[first], y.shape[first]), columns, tuple(present), (taps[0], taps[1]))


@lru_cache(maxsize=1)
def _layout() -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(
        ("x", "u8"), ("place_a", "u8"), ("weight_a", "u8"), ("place_b", "u8"), ("weight_b", "u8"),
        ("y", "u8"), ("walk", axes_fields(4)), ("column", axes_fields(2)), ("threads", "i8"),
        ("rows_in", "i8"), ("columns_in", "i8"), ("rows", "i8"), ("taps_a", "i4"),
        ("taps_b", "i4"))
    return dtype, args_checks(dtype)


@dataclass(frozen=True, slots=True)
class ResampleRule:
    """resample: a thread makes a few neighbours of several rows."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if y.size == 0:
            return []
        seen = _view(problem)
        size = DTYPES[y.dtype].itemsize
        weighs = [seen.slots[1] is not None, seen.slots[3] is not None]
        wide = _SUMMED_BYTES if any(weighs) else _PICKED_BYTES
        columns = common_divisor(min(max(wide // size, 1), y.align // size),
                                 seen.columns[1] * seen.inner)
        rows = int(variant.param("ROWS"))
        walk = (seen.outer, -(-seen.rows[1] // rows), seen.middle,
                seen.columns[1] * seen.inner // columns)
        threads, per_block = prod(walk), int(variant.param("THREADS"))
        linear, offset = index_types(threads + per_block, max(x.size, y.size))
        dtype, checks = _layout()
        taps = [n if n in _SPECIALISED else 0 for n in seen.taps]
        context = {
            **variant.param_map, "columns": columns, "taps_a": taps[0], "taps_b": taps[1],
            "picks_a": _cpp(seen.slots[0] is not None), "weighs_a": _cpp(weighs[0]),
            "weighs_b": _cpp(weighs[1]), "type": DTYPES[y.dtype].c_type,
            "weight": "double" if y.dtype == "f64" else "float", "linear": linear,
            "offset": offset, "ARGS_CHECKS": checks,
        }
        values = {
            "walk": axes_value(walk), "column": axes_value((seen.columns[1], seen.inner)),
            "threads": threads, "rows_in": seen.rows[0], "columns_in": seen.columns[0],
            "rows": seen.rows[1], "taps_a": seen.taps[0], "taps_b": seen.taps[1],
        }
        names = ("place_a", "weight_a", "place_b", "weight_b")
        slots = {name: (slot, 0) for name, slot in zip(names, seen.slots, strict=True)
                 if slot is not None}
        args, relocs = ArgsBuilder(dtype, values, {
            "x": (0, 0), "y": (len(problem.inputs), 0), **slots}).pack()
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        return [LaunchRecord(source, (-(-threads // per_block), 1, 1), (per_block, 1, 1), args,
                             relocs)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            resample_problem("f32", (2, 3, 6, 5), (2, 3), ((12, 2), (10, 2))),
            resample_problem("f16", (1, 8, 8, 4), (1, 2), ((16, 1), (12, 1)), weighs=False),
            resample_problem("f64", (3, 7, 2), (1,), ((5, 4),)),
            resample_problem("bf16", (2, 4, 9), (0, 2), ((3, 3), (4, 2))),
            resample_problem("u8", (2, 9), (1,), ((20, 1),), weighs=False),
        ]


@lru_cache(maxsize=1)
def _staged_layout() -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(
        ("x", "u8"), ("place_a", "u8"), ("weight_a", "u8"), ("place_b", "u8"), ("weight_b", "u8"),
        ("y", "u8"), ("blocks", axes_fields(2)), ("rows_in", "i4"), ("columns_in", "i4"),
        ("rows", "i4"), ("columns", "i4"))
    return dtype, args_checks(dtype)


def staged_bytes(problem: Problem, variant: Variant) -> int:
    """Return the bytes of sums along rows that a block of resample_staged keeps."""
    threads, columns = int(variant.param("THREADS")), int(variant.param("COLUMNS"))
    together = threads // columns * int(variant.param("UNROLL"))
    rows = -(-_view(problem).rows[0] // together) * together
    return rows * columns * _weight_size(problem)


def _weight_size(problem: Problem) -> int:
    return 8 if problem.outputs[0].dtype == "f64" else 4


def staged_refusal(problem: Problem, variant: Variant) -> str:
    """Return why resample_staged cannot serve a problem, or an empty string."""
    y, seen = problem.outputs[0], _view(problem)
    if None in seen.slots or any(n not in _SPECIALISED for n in seen.taps):
        return "not two axes of sums of 1, 2 or 4 taps"
    tables = [t for t in problem.inputs[1:] if t is not None]
    if max(seen.taps) * _weight_size(problem) > 16 or any(t.align < 16 for t in tables):
        return "the taps of an element are not one aligned vector"
    if seen.middle != 1 or seen.inner != 1:
        return "the axes are not the last two"
    vector = 16 // _weight_size(problem)
    if seen.columns[1] % vector or y.align < min(vector * DTYPES[y.dtype].itemsize, 16):
        return "rows of y are not whole vectors"
    if max(seen.rows) * max(seen.columns) > INT32_MAX // 8:
        return "an offset within a plane exceeds 31 bits"
    if staged_bytes(problem, variant) > _MOST_STAGED:
        return "a plane has too many rows for their sums to be kept"
    return ""


def grows(problem: Problem) -> bool:
    """Whether y has at least half as many rows again as x, and no fewer columns."""
    seen = _view(problem)
    return 2 * seen.rows[1] >= 3 * seen.rows[0] and seen.columns[1] >= seen.columns[0]


@dataclass(frozen=True, slots=True)
class StagedRule:
    """resample_staged: a block makes some columns of a plane."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        y = problem.outputs[0]
        if y.size == 0:
            return []
        seen = _view(problem)
        tiles = -(-seen.columns[1] // int(variant.param("COLUMNS")))
        dtype, checks = _staged_layout()
        context = {
            **variant.param_map, "taps_a": seen.taps[0], "taps_b": seen.taps[1],
            "type": DTYPES[y.dtype].c_type, "weight": "double" if y.dtype == "f64" else "float",
            "ARGS_CHECKS": checks,
        }
        values = {
            "blocks": axes_value((seen.outer, tiles)), "rows_in": seen.rows[0],
            "columns_in": seen.columns[0], "rows": seen.rows[1], "columns": seen.columns[1],
        }
        names = ("place_a", "weight_a", "place_b", "weight_b")
        args, relocs = ArgsBuilder(dtype, values, {
            "x": (0, 0), "y": (len(problem.inputs), 0),
            **{name: (1 + i, 0) for i, name in enumerate(names)}}).pack()
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        # The base of shared memory is rounded up by as much as is asked for in addition.
        return [LaunchRecord(source, (seen.outer * tiles, 1, 1), (variant.param("THREADS"), 1, 1),
                             args, relocs, smem=staged_bytes(problem, variant) + 1024)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            resample_problem("f32", (2, 3, 6, 5), (2, 3), ((12, 2), (72, 2))),
            resample_problem("f16", (1, 8, 8), (1, 2), ((16, 2), (12, 2))),
            resample_problem("bf16", (3, 7, 2), (1, 2), ((5, 4), (8, 1))),
            resample_problem("f64", (2, 4, 9), (1, 2), ((3, 1), (4, 2))),
            resample_problem("f32", (2, 4, 9), (1, 2), ((3, 4), (4, 1))),
        ]


def _cpp(value: bool) -> str:
    return "true" if value else "false"


def resample_problem(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...],
                     tables: Sequence[tuple[int, int]], *, weighs: bool = True) -> Problem:
    """Return a RESAMPLE problem on dense tensors; tables holds (extent of y, taps) per axis."""
    out = list(shape)
    inputs: list[TensorSpec | None] = [TensorSpec.dense(dtype, shape)]
    for axis, table in zip(axes, tables, strict=True):
        out[axis] = table[0]
        weight = TensorSpec.dense("f64" if dtype == "f64" else "f32", table)
        inputs += [TensorSpec.dense("i32", table), weight if weighs else None]
    return Problem("RESAMPLE", tuple(inputs), (TensorSpec.dense(dtype, tuple(out)),),
                   (("axes", axes),))


RULES: dict[str, LaunchRule] = {"resample": ResampleRule(), "resample.staged": StagedRule()}
