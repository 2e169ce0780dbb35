"""The matrices of a product, and the Args of its kernels: what lies where."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..contract import DTYPES
from .record import Reloc, args_dtype

MAX_BATCH_AXES = 3

OPERAND_DTYPE = args_dtype(("pointer", "u8"), ("row", "i8"), ("column", "i8"), ("batch", "i8", 3))
OPERAND_WORDS = OPERAND_DTYPE.itemsize // 8
MAP_WORDS = 16

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix of the product.

    Attributes:
        slot: buffer number.
        dtype: IR name.
        align: of its address, in bytes.
        row, column: strides in elements; A is indexed (m, k), B (n, k), all others (m, n).
        batch: strides of the collapsed batch axes.
    """

    slot: int
    dtype: str
    align: int
    row: int
    column: int
    batch: Values

    @property
    def spread(self) -> str:
        """The class of ge2::Spread that the strides say."""
        if self.column == 0:
            return "PER_ROW" if self.row else "SCALAR"
        return ("FULL" if self.row else "PER_COLUMN") + ("_UNIT" if self.column == 1 else "")

    def turned(self) -> Operand:
        """Return the transpose of the matrix."""
        return replace(self, row=self.column, column=self.row)

    def vector(self, along_row: bool, choices: Sequence[int]) -> int:
        """Return the first of choices that fits the alignment, else 1.

        Args:
            along_row: vectors run along the first index (stride row), else along the second.
            choices: elements per vector, descending.
        """
        inner, outer = (self.row, self.column) if along_row else (self.column, self.row)
        if inner != 1:
            return 1
        itemsize = DTYPES[self.dtype].itemsize
        for width in choices:
            fits = self.align % min(width * itemsize, 16) == 0 and outer % width == 0
            if fits and all(stride % width == 0 for stride in self.batch):
                return width
        return 1


def plain_args_dtype(extras: Sequence[str] = (), *tail: tuple[Any, ...],
                     maps: Sequence[tuple[Any, ...]] = ()) -> np.dtype[Any]:
    """Return the Args struct of a plain GEMM kernel with these epilogue inputs.

    Args:
        extras: names of the epilogue's operands.
        tail, maps: more fields behind them, and before everything.
    """
    return args_dtype(*maps, ("m", "i8"), ("n", "i8"), ("k", "i8"), ("batches", "i8"),
                      ("extents", "i8", MAX_BATCH_AXES), ("alpha", "f8"), ("beta", "f8"),
                      *((name, OPERAND_DTYPE) for name in ("a", "b", "y", *extras)), *tail)


def tensor_map_args_dtype(extras: Sequence[str] = (), outputs: int = 1) -> np.dtype[Any]:
    """Return the Args struct of a GEMM kernel with tensor maps; its size is a multiple of 64.

    Args:
        extras: operands, those before the epilogue inputs first.
        outputs: how many there are.
    """
    words = MAP_WORDS * (2 + outputs) + 15 + OPERAND_WORDS * len(extras)
    tail = (("unused", "i8", -words % 8),) if words % 8 else ()
    return args_dtype(("map_a", "u8", 16), ("map_b", "u8", 16), ("map_y", "u8", 16 * outputs),
                      ("m", "i8"), ("n", "i8"), ("k", "i8"), ("batches", "i8"),
                      ("extents", "i8", MAX_BATCH_AXES), ("alpha", "f8"), ("beta", "f8"),
                      ("a_varies", "i8"), ("b_varies", "i8"),
                      ("whole", "i8"), ("splits", "i8"), ("parts", "u8"), ("arrived", "u8"),
                      *((name, OPERAND_DTYPE) for name in extras), *tail)


def double_words(*values: float) -> tuple[int, ...]:
    """Return the bits of f64 values."""
    return struct.unpack(f"<{len(values)}q", struct.pack(f"<{len(values)}d", *values))


def append_operands(words: list[int], operands: Sequence[Operand]) -> tuple[Reloc, ...]:
    """Append the words of operands; return the holes that their addresses go into."""
    relocs = []
    for operand in operands:
        relocs.append(Reloc(8 * len(words), operand.slot))
        words += (0, operand.row, operand.column, *operand.batch)
    return tuple(relocs)
