"""Launch rules of gather: slices from anywhere, and elements of rows in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..contract import DTYPES
from ..errors import StrideMismatch
from ..problem import Problem, TensorSpec
from .elementwise import axes_fields, axes_value, index_types
from .movement import WORDS, word_bytes
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_COPIED = 16  # bytes that gather_staged copies at once, and stores where places are kept
_MOST_STAGED = 64 * 1024  # bytes of a block: three of them fit on a multiprocessor of an H200
_STORED = 4  # bytes of a thread: wider ones spread a warp's indices over more lines


@lru_cache(maxsize=1)
def _layout() -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(("x", "u8"), ("indices", "u8"), ("out", "u8"), ("words", "i8"),
                       ("axes", axes_fields(3)), ("extent", "i8"), ("outer_step", "i8"),
                       ("axis_step", "i8"))
    return dtype, args_checks(dtype)


@dataclass(frozen=True, slots=True)
class GatherRule:
    """gather: whole slices in the widest words that fit; x may step anywhere between slices."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, indices = problem.inputs
        out, axis = problem.outputs[0], problem.attr_map["axis"]
        assert x is not None and indices is not None and isinstance(axis, int)
        if out.size == 0 or x.size == 0:
            return []
        inner = prod(x.shape[axis + 1:])
        outer_step, axis_step = _steps(x, indices, axis)
        width = word_bytes(x, inner, outer_step, axis_step)
        width = word_bytes(TensorSpec(x.dtype, (), (), min(width, out.align)), inner)
        word = width // DTYPES[x.dtype].itemsize
        slice_words = inner // word
        axes = (prod(x.shape[:axis]), indices.size, slice_words)
        words = prod(axes)
        reach = max(x.size, abs(outer_step) * axes[0] + abs(axis_step) * x.shape[axis] + inner)
        linear, offset = index_types(words, reach)
        dtype, checks = _layout()
        context = {
            **variant.param_map, "word": WORDS[width], "index": DTYPES[indices.dtype].c_type,
            "linear": linear, "offset": offset, "ARGS_CHECKS": checks,
        }
        values = {"words": words, "axes": axes_value(axes), "extent": x.shape[axis],
                  "outer_step": outer_step // word, "axis_step": axis_step // word}
        args, relocs = ArgsBuilder(dtype, values,
                                   {"x": (0, 0), "indices": (1, 0), "out": (2, 0)}).pack()
        threads = variant.param("THREADS")
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        return [LaunchRecord(source, (-(-words // (threads * variant.param("UNROLL"))), 1, 1),
                             (threads, 1, 1), args, relocs, pdl=True)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [gather_problem(dtype, shape, index, axis) for dtype, shape, index, axis in (
            ("f32", (10, 8), "i64", 0), ("bf16", (4, 10, 3), "i32", 1), ("u8", (33,), "i64", 0),
            ("f64", (3, 5), "i32", 1))]


@lru_cache(maxsize=1)
def _staged_layout() -> tuple[np.dtype[Any], str]:
    dtype = args_dtype(("x", "u8"), ("indices", "u8"), ("out", "u8"), ("rows", "i8"),
                       ("extent", "i4"), ("count", "i4"))
    return dtype, args_checks(dtype)


def staged_bytes(problem: Problem, variant: Variant) -> int:
    """Return the bytes of shared memory of a block of gather_staged: rows of x, and its places."""
    x, indices = problem.inputs
    assert x is not None and indices is not None
    several = int(variant.param("GROUPS")) > 1
    rows = int(variant.param("ROWS")) * x.shape[-1] * DTYPES[x.dtype].itemsize
    return rows * 2 + indices.size * 4 if several else rows


def staged_refusal(problem: Problem, variant: Variant) -> str:
    """Return why gather_staged cannot serve a problem, or an empty string."""
    (x, indices), axis = problem.inputs, problem.attr_map["axis"]
    assert x is not None and indices is not None and isinstance(axis, int)
    if axis != len(x.shape) - 1:
        return "slices are longer than an element"
    if not (x.is_dense and indices.is_dense):
        return "x or its indices are strided"
    if x.align < _COPIED or x.shape[-1] * DTYPES[x.dtype].itemsize % _COPIED:
        return "rows of x are not whole 16-byte words"
    if staged_bytes(problem, variant) > _MOST_STAGED:
        return "rows of x are too long to be kept"
    return ""


@dataclass(frozen=True, slots=True)
class StagedRule:
    """gather_staged: a block keeps a few rows of x at a time; x and its indices dense."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        x, indices = problem.inputs
        out = problem.outputs[0]
        assert x is not None and indices is not None
        if out.size == 0 or x.size == 0:
            return []
        size, count = DTYPES[x.dtype].itemsize, indices.size
        rows = prod(x.shape[:-1])
        per_block = int(variant.param("ROWS")) * int(variant.param("GROUPS"))
        # Places that a block keeps are read in wide accesses; indices want narrow threads.
        stored = _STORED if variant.param("GROUPS") == 1 else _COPIED
        dtype, checks = _staged_layout()
        context = {
            **variant.param_map, "word": WORDS[size], "index": DTYPES[indices.dtype].c_type,
            "vector": word_bytes(TensorSpec(x.dtype, (), (), min(out.align, stored)),
                                 count) // size,
            "ARGS_CHECKS": checks,
        }
        values = {"rows": rows, "extent": x.shape[-1], "count": count}
        args, relocs = ArgsBuilder(dtype, values,
                                   {"x": (0, 0), "indices": (1, 0), "out": (2, 0)}).pack()
        source = KernelSource(variant.kernel.template, tuple(sorted(context.items())),
                              variant.kernel.name)
        # The base of shared memory is rounded up by as much as is asked for in addition.
        return [LaunchRecord(source, (-(-rows // per_block), 1, 1),
                             (variant.param("THREADS"), 1, 1), args, relocs,
                             smem=staged_bytes(problem, variant) + 1024)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [gather_problem(dtype, shape, index, 1, count) for dtype, shape, index, count in (
            ("f32", (5, 20), "i64", (3, 8)), ("bf16", (11, 64), "i32", (7, 2)),
            ("u8", (4, 16), "i32", (33,)), ("f64", (2, 6), "i64", (5,)))]


def _steps(x: TensorSpec, indices: TensorSpec, axis: int) -> tuple[int, int]:
    """Return the elements between neighbours of the outer axes (as one) and of the picked one.

    Raises:
        StrideMismatch: slices are not contiguous, or the outer axes are not one.
    """
    inner = TensorSpec(x.dtype, x.shape[axis + 1:], x.strides[axis + 1:])
    outer = [(n, s) for n, s in zip(x.shape[:axis], x.strides[:axis], strict=True) if n != 1]
    together = all(a[1] == b[0] * b[1] for a, b in pairwise(outer))
    if not (inner.is_dense and together and indices.is_dense):
        raise StrideMismatch("gather takes contiguous slices", found=(x.strides, indices.strides))
    return outer[-1][1] if outer else 0, x.strides[axis] if x.shape[axis] > 1 else 0


def gather_problem(dtype: str, shape: tuple[int, ...], index: str, axis: int,
                   indices: tuple[int, ...] = (2, 3)) -> Problem:
    """Return a GATHER problem on dense tensors."""
    out = (*shape[:axis], *indices, *shape[axis + 1:])
    return Problem("GATHER", (TensorSpec.dense(dtype, shape), TensorSpec.dense(index, indices)),
                   (TensorSpec.dense(dtype, out),), (("axis", axis),))


RULES: dict[str, LaunchRule] = {"gather": GatherRule(), "gather.staged": StagedRule()}
