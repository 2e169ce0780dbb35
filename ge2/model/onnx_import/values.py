"""What an importer knows about ONNX values before anything runs.

Shape arithmetic of exporters (Shape, Gather, Concat, ...) is carried out while importing, on arrays
whose elements are numbers or symbolic extents; what is left for run time is the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compiler.ir.dim import Dim, Extent
from ...contract import DTYPES, numpy_dtype
from ..node_writer import Unmapped

Array = npt.NDArray[Any]
NAMES = {numpy_dtype(name): name for name in DTYPES}


@dataclass(slots=True, eq=False)
class Known:
    """A value known while importing.

    Attributes:
        array: its elements; of dtype object where one is a Dim.
        dtype: element type of the ONNX value.
        name: the ONNX name; of the graph's constant, once there is one.
        stored: whether the graph has it as a constant.
    """

    array: Array
    dtype: np.dtype[Any]
    name: str = ""
    stored: bool = False

    @property
    def is_symbolic(self) -> bool:
        """Whether an element is a symbolic extent."""
        return self.array.dtype == object


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value computed at run time: its name in the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A value that a node made which could not be imported."""


Value = Known | Tensor | Broken


def known(array: Any, dtype: np.dtype[Any] | None = None, name: str = "") -> Known:
    """Return elements as a Known; an object array without a Dim becomes a plain one."""
    array = np.asarray(array)
    kind = array.dtype if dtype is None else dtype
    if array.dtype == object and not any(isinstance(e, Dim) for e in array.reshape(-1)):
        array = array.astype(kind)
    return Known(array, kind, name)


def extents(shape: Sequence[Extent]) -> Array:
    """Return a shape as a vector, of dtype object where an extent is symbolic."""
    if all(isinstance(extent, int) for extent in shape):
        return np.asarray(shape, np.int64)
    vector = np.empty(len(shape), object)
    vector[:] = shape
    return vector


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the IR's name of an element type.

    Raises:
        Unmapped: ge2 has no such element type.
    """
    found = NAMES.get(dtype)
    if found is None:
        raise Unmapped(f"element type {dtype}")
    return found


class Undecided(Exception):
    """The answer depends on the value of a named dimension."""


def same(a: Extent, b: Extent) -> bool:
    """Return whether two extents are equal, where that is known.

    A symbolic extent is never negative. Two different ones may still be equal.

    Raises:
        Undecided: it depends.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a == b:
        return True
    number = a if isinstance(a, int) else b
    if isinstance(number, int) and number < 0:
        return False
    raise Undecided


def larger(a: Extent, b: Extent) -> Extent:
    """Return the larger of two extents; symbolic ones count as at least 1.

    Raises:
        Undecided: it depends.
    """
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if a == b:
        return a
    for extent, other in ((a, b), (b, a)):
        if isinstance(other, int) and other <= 1:
            return extent
    raise Undecided


def quotient(a: Extent, b: Extent) -> Extent:
    """Return a / b rounded towards zero, as ONNX divides integers.

    Raises:
        Undecided: the divisor is symbolic, or 0.
    """
    if isinstance(a, int) and isinstance(b, int) and b:
        return math.trunc(a / b) if abs(a) < 2**50 else a // b
    if isinstance(b, int) and b > 0:
        return a // b
    if a == b:
        return 1
    raise Undecided
