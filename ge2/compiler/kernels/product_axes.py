"""The axes of a product of stacked matrices: which count as rows, which stay a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...problem import TensorSpec

Ints = tuple[int, ...]
Axes = list[tuple[int, Ints]]


class ProductAxes(NamedTuple):
    """The axes of a product, with one stride for each of its tensors.

    Attributes:
        m: extent of the rows after folding a batch axis into them where B does not vary along it.
        rows, columns: strides in elements; A is indexed (m, k), B (n, k), all others (m, n).
        batch: (extent, strides) of the batch axes that are left, outermost first.
    """

    m: int
    rows: list[int]
    columns: list[int]
    batch: Axes


def product_axes(specs: Sequence[TensorSpec], trans_a: bool, trans_b: bool) -> ProductAxes:
    """Return the axes of a product, with as many rows and as few batch axes as its strides allow.

    Args:
        specs: A, B, Y, then further tensors of Y's shape; all of rank 2 and more.
        trans_a, trans_b: A is stored [k, m], B [n, k].
    """
    shape = specs[2].shape
    as_is = (not trans_a, trans_b, *(True,) * (len(specs) - 2))
    pairs = [spec.strides[-2:] if kept else spec.strides[:-3:-1]
             for spec, kept in zip(specs, as_is, strict=True)]
    rows, columns = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    m, batch = _fold_into_m(shape[-2], rows, _batch_axes(shape[:-2], specs))
    return ProductAxes(m, rows, columns, batch)


def _batch_axes(shape: Ints, specs: Sequence[TensorSpec]) -> Axes:
    """Return (extent, stride of each operand) of the batch axes, neighbours merged."""
    axes: Axes = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        strides = tuple(_batch_stride(spec, len(shape) - axis, extent) for spec in specs)
        if axes and all(outer == inner * extent
                        for outer, inner in zip(axes[-1][1], strides, strict=True)):
            axes[-1] = (axes[-1][0] * extent, strides)
        else:
            axes.append((extent, strides))
    return axes


def _batch_stride(spec: TensorSpec, from_matrix: int, extent: int) -> int:
    """Return the stride of a batch axis counted back from the matrix; 0 where spec lacks it."""
    axis = len(spec.shape) - 2 - from_matrix
    if axis < 0 or spec.shape[axis] != extent:
        return 0
    return spec.strides[axis]


def _fold_into_m(m: int, rows: list[int], axes: Axes) -> tuple[int, Axes]:
    """Make the innermost batch axis part of m where B does not vary along it.

    A stack of matrices times one matrix is one tall product: fuller tiles, no batch loop.
    """
    while axes:
        extent, strides = axes[-1]
        if strides[1] != 0:
            break
        others = [i for i in range(len(rows)) if i != 1]
        if m == 1:
            for i in others:
                rows[i] = strides[i]
        elif any(strides[i] != rows[i] * m for i in others):
            break
        m *= extent
        axes = axes[:-1]
    return m, axes
