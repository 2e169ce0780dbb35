"""Launch rules of padding: 16 bytes of y per thread, with the ends of rows apart or not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..compiler.kernels.walk import INT32_MAX
from ..contract import DTYPES, numpy_dtype
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types
from .movement import WORDS
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis, or several neighbours that are not padded."""

    size: int
    stride: int
    low: int
    high: int

    @property
    def padded(self) -> bool:
        return self.low != 0 or self.high != 0


def _collapsed(x: TensorSpec, pads: tuple[int, ...]) -> list[_Axis]:
    """Return x's axes, outermost first, neighbours merged where padding and strides allow."""
    rank = len(x.shape)
    merged: list[_Axis] = []
    for axis in range(rank):
        one = _Axis(x.shape[axis], x.strides[axis], pads[axis], pads[rank + axis])
        if one.size == 1 and not one.padded:
            continue
        last = merged[-1] if merged else None
        if last and not last.padded and not one.padded and last.stride == one.stride * one.size:
            merged[-1] = _Axis(last.size * one.size, one.stride, 0, 0)
        else:
            merged.append(one)
    return merged or [_Axis(1, 1, 0, 0)]


@lru_cache(maxsize=64)
def _layout(rank: int) -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(("x", "u8"), ("y", "u8"), ("size", "i8"), ("axes", axes_fields(rank)),
                       ("stride", "i8", (rank,)), ("extent", "i8", (rank,)),
                       ("low", "i8", (rank,)), ("fill", "u8"))
    return dtype, args_checks(dtype)


def _bits(value: float, dtype: str) -> int:
    """Return the bits of an element, as an unsigned number."""
    element = np.asarray(value).astype(numpy_dtype(dtype))
    return int.from_bytes(element.tobytes(), "little")


def _values(problem: Problem, axes: list[_Axis]) -> dict[str, Any]:
    """Return the members that both kernels' Args have."""
    y = problem.outputs[0]
    return {
        "size": y.size, "axes": axes_value([a.size + a.low + a.high for a in axes]),
        "stride": [a.stride for a in axes], "extent": [a.size for a in axes],
        "low": [a.low for a in axes],
        "fill": _bits(cast("float", problem.attr_map["value"]), y.dtype),
    }


@dataclass(frozen=True, slots=True)
class PadRule:
    """pad: one thread makes 16 bytes of y; x of any strides."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if y.size == 0:
            return []
        axes = _collapsed(x, cast("tuple[int, ...]", problem.attr_map["pads"]))
        itemsize = DTYPES[y.dtype].itemsize
        vector = max(min(_VECTOR_BYTES, y.align) // itemsize, 1)
        reach = max(sum(abs(a.stride) * a.size for a in axes),
                    *(a.size + abs(a.low) + abs(a.high) for a in axes))
        linear, offset = index_types(y.size + vector, reach)
        dtype, checks = _layout(len(axes))
        context = {
            **variant.param_map, "rank": len(axes), "vector": vector, "type": WORDS[itemsize],
            "linear": linear, "offset": offset, "mode": problem.attr_map["mode"],
            "ARGS_CHECKS": checks,
        }
        args, relocs = ArgsBuilder(dtype, _values(problem, axes), {"x": (0, 0), "y": (1, 0)}).pack()
        threads = int(variant.param("THREADS"))
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        blocks = -(-y.size // (threads * vector))
        return [LaunchRecord(source, (blocks, 1, 1), (threads, 1, 1), args, relocs)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            pad_problem(TensorSpec.dense("f32", (5, 7)), (1, 2, 0, 3), value=1.5),
            pad_problem(TensorSpec.dense("f16", (2, 3, 8, 6)), (0, 0, 2, 1, 0, 0, 1, 3),
                        mode="reflect"),
            pad_problem(TensorSpec("i64", (4, 6), (1, 4)), (-1, 2, 1, -2), mode="edge"),
            pad_problem(TensorSpec.dense("u8", (9,)), (4, 20), mode="wrap"),
        ]


@lru_cache(maxsize=64)
def _rows_layout(rank: int) -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(("x", "u8"), ("y", "u8"), ("size", "i8"), ("axes", axes_fields(rank)),
                       ("stride", "i8", (rank,)), ("extent", "i8", (rank,)),
                       ("low", "i8", (rank,)), ("fill", "u8"), ("reach", "i8"),
                       ("within", axes_fields(2)), ("ends", axes_fields(2)), ("rows", "i4"),
                       ("from", "i4"), ("to", "i4"))
    return dtype, args_checks(dtype)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of y for pad_rows: columns [start, stop) show x; vector elements are stored at once."""

    axes: list[_Axis]
    width: int
    start: int
    stop: int
    vector: int


def _rows(problem: Problem) -> _Rows:
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    axes = _collapsed(x, cast("tuple[int, ...]", problem.attr_map["pads"]))
    last = axes[-1]
    width = last.size + last.low + last.high
    return _Rows(axes, width, max(last.low, 0), min(last.low + last.size, width),
                 _VECTOR_BYTES // DTYPES[y.dtype].itemsize)


def rows_refusal(problem: Problem) -> str:
    """Return why pad_rows cannot serve a problem, or an empty string."""
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    rows = _rows(problem)
    if x.align < _VECTOR_BYTES or y.align < _VECTOR_BYTES:
        return "x or y is not aligned to 16 bytes"
    if not x.is_dense:
        return "x is strided"
    if rows.stop - rows.start < 2 * rows.vector:
        return "rows show less than two vectors of x"
    pads = sum(abs(a.low) + abs(a.high) for a in rows.axes)
    if max(x.size, y.size) + (pads + 2) * _VECTOR_BYTES > INT32_MAX:
        return "an offset exceeds 31 bits"
    return ""


def pads_short_rows(problem: Problem) -> bool:
    """Whether most warps of pad would meet the end of a row, and copy no aligned vectors."""
    rows = _rows(problem)
    aligned = rows.width % rows.vector == 0 and rows.axes[-1].low % rows.vector == 0
    return rows.width < 64 * rows.vector and not aligned


@dataclass(frozen=True, slots=True)
class RowsRule:
    """pad_rows: blocks of whole rows; x dense, and aligned like y."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, y = problem.inputs[0], problem.outputs[0]
        assert x is not None
        if y.size == 0:
            return []
        rows = _rows(problem)
        rank, threads = len(rows.axes), int(variant.param("THREADS"))
        dtype, checks = _rows_layout(rank)
        context = {
            **variant.param_map, "rank": rank, "vector": rows.vector,
            "type": WORDS[DTYPES[y.dtype].itemsize], "mode": problem.attr_map["mode"],
            "ARGS_CHECKS": checks,
        }
        within = (rows.stop - rows.start) // rows.vector
        gap = rows.width - (rows.stop - rows.start)
        ends = (gap + 2 * rows.vector - 2) // rows.vector
        per_block, count = -(-threads // within), y.size // rows.width
        values = {
            **_values(problem, rows.axes), "reach": x.size,
            "within": axes_value((per_block, within)), "ends": axes_value((per_block, ends)),
            "rows": count, "from": rows.start, "to": rows.stop,
        }
        args, relocs = ArgsBuilder(dtype, values, {"x": (0, 0), "y": (1, 0)}).pack()
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        # Behind the last row is one more gap between vectors within rows.
        return [LaunchRecord(source, (-(-(count + 1) // per_block), 1, 1), (threads + 32, 1, 1),
                             args, relocs)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [
            pad_problem(TensorSpec.dense("f16", (2, 3, 5, 20)), (0, 0, 1, 1, 0, 0, 1, 1)),
            pad_problem(TensorSpec.dense("f32", (2, 6, 11)), (0, 3, 3, 0, 3, 3), mode="reflect"),
            pad_problem(TensorSpec.dense("i64", (7, 9)), (-1, 2, 1, -2), mode="edge"),
            pad_problem(TensorSpec.dense("u8", (40,)), (4, 30), mode="wrap", value=1.0),
        ]


def pad_problem(x: TensorSpec, pads: tuple[int, ...], *, mode: str = "constant",
                value: float = 0.0) -> Problem:
    """Return the PAD problem of an input with a dense output."""
    rank = len(x.shape)
    shape = tuple(n + pads[i] + pads[rank + i] for i, n in enumerate(x.shape))
    return Problem("PAD", (x,), (TensorSpec.dense(x.dtype, shape),), (
        ("mode", mode), ("pads", pads), ("value", value)))


RULES: dict[str, LaunchRule] = {"pad": PadRule(), "pad.rows": RowsRule()}
