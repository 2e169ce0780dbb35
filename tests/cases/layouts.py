"""How an operand may lie in memory: strides, an offset and the storage around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ge2.contract import DTYPES
from ge2.problem import TensorSpec, dense_strides

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in its storage.

    Attributes:
        spec: as kernels see it.
        offset: elements from the start of the storage to the first element.
        elements: size of the storage.
    """

    spec: TensorSpec
    offset: int
    elements: int


def _dense(shape: Ints) -> tuple[Ints, int]:
    return dense_strides(shape), 0


def _unaligned(shape: Ints) -> tuple[Ints, int]:
    return dense_strides(shape), 1


def _padded(shape: Ints) -> tuple[Ints, int]:
    """Rows lie three elements apart from each other."""
    return _pitched(shape, 3)


def _pitched(shape: Ints, gap: int) -> tuple[Ints, int]:
    if len(shape) < 2:
        return dense_strides(shape), 0
    wide = (*shape[:-1], shape[-1] + gap)
    return dense_strides(wide), 0


def _pitched_16(shape: Ints) -> tuple[Ints, int]:
    """Rows start at multiples of 16 elements, so that vectors stay aligned."""
    return _pitched(shape, -shape[-1] % 16 + 16 if shape else 0)


def _step2(shape: Ints) -> tuple[Ints, int]:
    return tuple(2 * s for s in dense_strides(shape)), 0


def _flipped(shape: Ints) -> tuple[Ints, int]:
    strides = dense_strides(shape)
    if not shape:
        return strides, 0
    return (*strides[:-1], -strides[-1]), max(shape[-1] - 1, 0)


def _transposed(shape: Ints) -> tuple[Ints, int]:
    if len(shape) < 2:
        return dense_strides(shape), 0
    swapped = dense_strides((*shape[:-2], shape[-1], shape[-2]))
    return (*swapped[:-2], swapped[-1], swapped[-2]), 0


def _per_column(shape: Ints) -> tuple[Ints, int]:
    """One value per column: [n] expanded."""
    return (*(0,) * (len(shape) - 1), 1)[-len(shape):] if shape else (), 0


def _per_row(shape: Ints) -> tuple[Ints, int]:
    """One value per row: [m, 1] expanded."""
    strides = [0] * len(shape)
    if len(shape) >= 2:
        strides[-2] = 1
    return tuple(strides), 0


def _scalar(shape: Ints) -> tuple[Ints, int]:
    return (0,) * len(shape), 0


LAYOUTS: dict[str, Callable[[Ints], tuple[Ints, int]]] = {
    "dense": _dense,
    "unaligned": _unaligned,
    "padded": _padded,
    "pitched": _pitched_16,
    "step2": _step2,
    "flipped": _flipped,
    "transposed": _transposed,
    "per_column": _per_column,
    "per_row": _per_row,
    "scalar": _scalar,
}


def operand(dtype: str, shape: Ints, layout: str) -> Operand:
    """Return a tensor of this shape in a named layout."""
    strides, offset = LAYOUTS[layout](shape)
    high = sum(max(n - 1, 0) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    size = 1
    for extent in shape:
        size *= extent
    nbytes = offset * DTYPES[dtype].itemsize
    align = min(16, nbytes & -nbytes) if nbytes else 16
    return Operand(TensorSpec(dtype, shape, strides, align), offset,
                   offset + high + 1 if size else 0)
