"""Launch rules of kernels that only move data: concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.size import common_divisor
from ..compiler.kernels.walk import Walk, vector_width, walk_of
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


def concat_problem(inputs: Sequence[TensorSpec], axis: int) -> Problem:
    """Return the CONCAT problem of these inputs with a dense output."""
    shape = list(inputs[0].shape)
    shape[axis] = sum(t.shape[axis] for t in inputs)
    return Problem("CONCAT", tuple(inputs), (TensorSpec.dense(inputs[0].dtype, tuple(shape)),),
                   (("axis", axis),))


RULES: dict[str, LaunchRule] = {"movement.concat": ConcatRule()}
