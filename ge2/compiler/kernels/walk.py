"""How strided tensors are walked together: collapsed axes, vector width, fast division.

Selector guards and launch rules ask the same functions, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...contract import DTYPES
from ...problem import TensorSpec
from ..ir.size import Size, apply

VECTOR_BYTES = 16
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Walk:
    """Several tensors of one shape, walked in the order of the last one's memory.

    Attributes:
        shape: extents after collapsing, outermost first; at least one axis.
        strides: one tuple per tensor, in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def reach(self) -> int:
        """Largest absolute element offset that any tensor is read or written at."""
        return max(
            max(_reach(self.shape, strides, 1), _reach(self.shape, strides, -1))
            for strides in self.strides
        )


@lru_cache(maxsize=8192)
def collapse(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Walk:
    """Drop axes of extent 1, order by the last tensor's strides, merge what all can merge."""
    axes = [axis for axis, extent in enumerate(shape) if extent != 1]
    axes.sort(key=lambda axis: -abs(strides[-1][axis]))
    extents: list[int] = []
    merged: list[list[int]] = []
    for axis in axes:
        step = [tensor[axis] for tensor in strides]
        if extents and all(
            outer == inner * shape[axis] for outer, inner in zip(merged[-1], step, strict=True)
        ):
            extents[-1] *= shape[axis]
            merged[-1] = step
        else:
            extents.append(shape[axis])
            merged.append(step)
    if not extents:
        return Walk((1,), tuple((0,) for _ in strides))
    return Walk(tuple(extents), tuple(zip(*merged, strict=True)))


def walk_of(tensors: Sequence[TensorSpec]) -> Walk:
    """Return the joint walk of tensors that have the same shape; the last one sets the order."""
    return collapse(tensors[-1].shape, tuple(t.strides for t in tensors))


def vector_width(walk: Walk, tensors: Sequence[TensorSpec]) -> int:
    """Return the elements per access along the innermost axis; 0 where its strides forbid it.

    Every tensor steps by 1 or 0 there, the last one by 1. The width is at most 16 bytes of the
    widest tensor; it divides every other stride, the innermost extent (unless that is the only
    axis: the kernel then does the tail) and, in bytes, every address.
    """
    inner = [strides[-1] for strides in walk.strides]
    if any(step not in (0, 1) for step in inner) or inner[-1] == 0:
        return 0
    sizes = [DTYPES[t.dtype].itemsize for t in tensors]
    width = VECTOR_BYTES // max(sizes)
    while width > 1 and not _fits(walk, tensors, sizes, inner, width):
        width //= 2
    return width


def _fits(walk: Walk, tensors: Sequence[TensorSpec], sizes: Sequence[int], inner: Sequence[int],
          width: int) -> bool:
    if len(walk.shape) > 1 and walk.shape[-1] % width:
        return False
    for tensor, strides, size, step in zip(tensors, walk.strides, sizes, inner, strict=True):
        if step and (tensor.align % (width * size) or any(s % width for s in strides[:-1])):
            return False
    return True


@lru_cache(maxsize=65536)
def divider(divisor: int) -> tuple[int, int]:
    """Return (multiplier, shift): n // divisor == ((n * multiplier >> 32) + n) >> shift.

    Exact for 0 <= n < 2**31 and 1 <= divisor < 2**31.
    """
    if isinstance(divisor, Size):
        return apply(_multiplier, divisor), apply(_shift, divisor)
    return _multiplier(divisor), _shift(divisor)


def _multiplier(divisor: int) -> int:
    return (((1 << _shift(divisor)) - divisor) << 32) // divisor + 1


def _shift(divisor: int) -> int:
    return (divisor - 1).bit_length()


def _reach(shape: Sequence[int], strides: Sequence[int], sign: int) -> int:
    return sum(max(0, (extent - 1) * stride * sign)
               for extent, stride in zip(shape, strides, strict=True))
