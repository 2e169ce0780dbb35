"""Launch rules of concatenation: a copy for each input, or all inputs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.size import common_divisor
from ..compiler.kernels.walk import INT32_MAX, Walk, vector_width, walk_of
from ..contract import DTYPES
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long",
         16: "ge2::Vec<unsigned, 4>"}
"""Bytes -> the type that a kernel copies; the element type does not matter to it."""


def word_bytes(spec: TensorSpec, *extents: int) -> int:
    """Return the widest word that divides the address and these extents (elements)."""
    size = DTYPES[spec.dtype].itemsize
    words = common_divisor(16, spec.align)
    for extent in extents:
        words = common_divisor(words, extent * size)
    return max(words, size)


@lru_cache(maxsize=1024)
def _layout(rank: int) -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(("in", "u8"), ("out", "u8"), ("words", "i8"), ("axes", axes_fields(rank)),
                       ("stride", "i8", (2, rank)))
    return dtype, args_checks(dtype)


def copy_record(variant: Variant, source: TensorSpec, target: TensorSpec, slots: tuple[int, int],
                addend: int) -> LaunchRecord:
    """Return the copy of source into a strided region of the output, addend bytes in."""
    tensors = (source, replace(target, align=common_divisor(target.align, addend or 16)))
    walk: Walk = walk_of(tensors)
    width = max(vector_width(walk, tensors), 1)
    if walk.strides[0][-1] != 1 or (len(walk.shape) == 1 and walk.size % width):
        width = 1
    shape = (*walk.shape[:-1], walk.shape[-1] // width)
    strides = [(*(s // width for s in stride[:-1]), stride[-1]) for stride in walk.strides]
    words = walk.size // width
    linear, offset = index_types(words, walk.reach)
    dtype, checks = _layout(len(shape))
    context = {
        **variant.param_map, "rank": len(shape), "linear": linear, "offset": offset,
        "word": WORDS[DTYPES[source.dtype].itemsize * width], "ARGS_CHECKS": checks,
    }
    values = {"words": words, "axes": axes_value(shape), "stride": strides}
    args, relocs = ArgsBuilder(dtype, values, {"in": (slots[0], 0), "out": (slots[1], addend)}
                               ).pack()
    per_block = variant.param("THREADS") * variant.param("UNROLL")
    return LaunchRecord(
        KernelSource(variant.kernel.template, tuple(sorted(context.items())), variant.kernel.name),
        (-(-words // per_block), 1, 1), (variant.param("THREADS"), 1, 1), args, relocs)


@dataclass(frozen=True, slots=True)
class ConcatRule:
    """concat_copy: one record per input that is not empty."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        axis = problem.attr_map["axis"]
        assert isinstance(axis, int), axis
        out = problem.outputs[0]
        size, start = DTYPES[out.dtype].itemsize, 0
        records = []
        for slot, source in enumerate(problem.inputs):
            assert source is not None
            if source.size:
                target = replace(out, shape=source.shape)
                records.append(copy_record(variant, source, target, (slot, len(problem.inputs)),
                                           start * out.strides[axis] * size))
            start += source.shape[axis]
        return records

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        def dense(dtype: str, *shape: int) -> TensorSpec:
            return TensorSpec.dense(dtype, shape)

        return [
            concat_problem([dense("f32", 3, 8), dense("f32", 3, 4)], 1),
            concat_problem([dense("bf16", 3, 5), dense("bf16", 3, 2)], 1),
            concat_problem([dense("i64", 2, 3, 4), dense("i64", 2, 1, 4)], 1),
            concat_problem([TensorSpec("u8", (4, 6), (1, 4)), dense("u8", 0, 6)], 0),
        ]


_MOST_INPUTS = 8  # that a thread of concat_rows chooses between


def _widths(problem: Problem) -> list[int]:
    """Return the elements of each input between neighbours of the axes before the joined one."""
    axis = problem.attr_map["axis"]
    assert isinstance(axis, int), axis
    return [prod(x.shape[axis:]) for x in problem.inputs if x is not None]


def rows_refusal(problem: Problem) -> str:
    """Return why concat_rows cannot serve a problem, or an empty string."""
    tensors = [t for t in problem.tensors if t is not None]
    if len(problem.inputs) > _MOST_INPUTS:
        return f"more than {_MOST_INPUTS} inputs"
    if not all(t.is_dense and t.align >= 16 for t in tensors):
        return "a tensor is strided, or not aligned to 16 bytes"
    if problem.outputs[0].size > INT32_MAX - 64 * 1024:
        return "an offset exceeds 31 bits"
    return ""


def long_pieces(problem: Problem) -> bool:
    """Whether few warps of concat_rows meet an end of a piece, and concat_copy has narrow words."""
    size, widths = DTYPES[problem.outputs[0].dtype].itemsize, _widths(problem)
    words = min(common_divisor(16, width * size) for width in widths)
    return words < 8 and min(widths) * size >= 64 * 16


@lru_cache(maxsize=64)
def _rows_layout(inputs: int) -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(*((f"in{i}", "u8") for i in range(inputs)), ("out", "u8"), ("size", "i4"),
                       ("rows", "i4"), ("axes", axes_fields(2)), ("start", "i4", (inputs + 1,)))
    return dtype, args_checks(dtype)


@dataclass(frozen=True, slots=True)
class RowsRule:
    """concat_rows: one record for all inputs; dense and aligned."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        out, inputs, widths = problem.outputs[0], len(problem.inputs), _widths(problem)
        if out.size == 0:
            return []
        size, across = DTYPES[out.dtype].itemsize, sum(widths)
        dtype, checks = _rows_layout(inputs)
        context = {**variant.param_map, "inputs": inputs, "vector": 16 // size,
                   "type": WORDS[size], "ARGS_CHECKS": checks}
        rows = out.size // across
        values = {"size": out.size, "rows": rows, "axes": axes_value((rows, across)),
                  "start": [sum(widths[:i]) for i in range(inputs + 1)]}
        args, relocs = ArgsBuilder(dtype, values, {
            **{f"in{i}": (i, 0) for i in range(inputs)}, "out": (inputs, 0)}).pack()
        threads = int(variant.param("THREADS"))
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        return [LaunchRecord(source, (-(-out.size // (threads * (16 // size))), 1, 1),
                             (threads, 1, 1), args, relocs)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        def dense(dtype: str, *shape: int) -> TensorSpec:
            return TensorSpec.dense(dtype, shape)

        return [
            concat_problem([dense("f16", 5, 37), dense("f16", 5, 9), dense("f16", 5, 16)], 1),
            concat_problem([dense("f32", 3, n, 7) for n in (5, 0, 2)], 1),
            concat_problem([dense("u8", 3, 70), dense("u8", 3, 1)], 1),
            concat_problem([dense("i64", 6), dense("i64", 3)], 0),
        ]


def concat_problem(inputs: Sequence[TensorSpec], axis: int) -> Problem:
    """Return the CONCAT problem of these inputs with a dense output."""
    shape = list(inputs[0].shape)
    shape[axis] = sum(t.shape[axis] for t in inputs)
    return Problem("CONCAT", tuple(inputs), (TensorSpec.dense(inputs[0].dtype, tuple(shape)),),
                   (("axis", axis),))


RULES: dict[str, LaunchRule] = {"movement.concat": ConcatRule(), "movement.rows": RowsRule()}
