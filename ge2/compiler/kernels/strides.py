"""Stride arithmetic: reshapes without copies, broadcasting, joint collapsing of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import StrideMismatch
from ...problem import TensorSpec, dense_strides

Ints = tuple[int, ...]


def reshape_strides(shape: Ints, strides: Ints, new: Ints) -> Ints | None:
    """Return the strides under which the same elements read as shape new; None if there are none.

    Row-major order of elements is kept; strides may be 0 or negative.
    """
    if 0 in shape:
        return dense_strides(new)
    groups = _runs(shape, strides)
    result: list[int] = []
    position, left = 0, groups[0][0] if groups else 1
    for extent in new:
        if extent == 1:
            result.append(0)
            continue
        if left == 1 and position + 1 < len(groups):
            position += 1
            left = groups[position][0]
        if not groups or left % extent:
            return None
        left //= extent
        result.append(groups[position][1] * left)
    return tuple(result)


def _runs(shape: Ints, strides: Ints) -> list[tuple[int, int]]:
    """Return (extent, stride) of maximal runs of axes that count through memory evenly."""
    runs: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == stride * extent:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    return runs


def expand(spec: TensorSpec, shape: Ints) -> TensorSpec:
    """Return spec broadcast to shape; broadcast axes have stride 0.

    Raises:
        StrideMismatch: it does not broadcast.
    """
    missing = len(shape) - len(spec.shape)
    strides = [0] * missing
    for have, stride, wanted in zip(spec.shape, spec.strides, shape[missing:], strict=True):
        if have != wanted and have != 1:
            raise StrideMismatch("operand does not broadcast", found=spec.shape, wanted=shape)
        strides.append(0 if have == 1 else stride)
    return replace(spec, shape=shape, strides=tuple(strides))


def collapse(shape: Ints, strides: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Return shape and strides with axes merged wherever every tensor allows it.

    Axes of extent 1 are dropped; at least one axis is left.
    """
    merged: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        if merged and all(s[-1] == t[axis] * extent for s, t in zip(steps, strides, strict=True)):
            merged[-1] *= extent
            for s, t in zip(steps, strides, strict=True):
                s[-1] = t[axis]
        else:
            merged.append(extent)
            for s, t in zip(steps, strides, strict=True):
                s.append(t[axis])
    if not merged:
        return (1,), [(0,) for _ in strides]
    return tuple(merged), [tuple(s) for s in steps]
