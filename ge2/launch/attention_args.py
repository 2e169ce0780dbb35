"""The tensors of an attention, and the Args of its kernels: what lies where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..contract import DTYPES
from .gemm_args import OPERAND_DTYPE, Operand
from .record import ArgsBuilder, Reloc, args_checks, args_dtype

HEADS_DTYPE = args_dtype(("pointer", "u8"), ("batch", "i8"), ("head", "i8"), ("row", "i8"))

Field = tuple[str, str, Any]
"""A member of Args that only one kernel has: C++ type, name, NumPy type."""


@dataclass(frozen=True, slots=True)
class Heads:
    """A tensor [batch, head, row, element] whose elements are neighbours in memory.

    Attributes:
        slot: buffer number.
        dtype: IR name.
        align: of its address, in bytes.
        batch, head, row: strides in elements.
    """

    slot: int
    dtype: str
    align: int
    batch: int
    head: int
    row: int

    def vector(self, size: int, choices: Sequence[int]) -> int:
        """Return the first of choices (elements per access, descending) that fits, else 1.

        Args:
            size: elements of a row, which accesses do not exceed.
            choices: elements per access.
        """
        itemsize = DTYPES[self.dtype].itemsize
        for width in choices:
            steps = (size, self.batch, self.head, self.row)
            if self.align % min(width * itemsize, 16) == 0 and not any(s % width for s in steps):
                return width
        return 1


@dataclass(frozen=True, slots=True)
class Fields:
    """Values of Args by member, and buffers of its addresses: (slot, byte offset)."""

    values: dict[str, Any]
    holes: dict[str, tuple[int, int]]

    def add_heads(self, name: str, x: Heads) -> None:
        """Set the member of a tensor of heads."""
        self.values[name] = {"batch": x.batch, "head": x.head, "row": x.row}
        self.holes[name] = (x.slot, 0)

    def add_operand(self, name: str, x: Operand) -> None:
        """Set the member of an operand of the scores."""
        self.values[name] = {"row": x.row, "column": x.column, "batch": x.batch}
        self.holes[name] = (x.slot, 0)

    def pack(self, dtype: np.dtype[Any]) -> tuple[bytes, tuple[Reloc, ...]]:
        """Return the bytes of Args in this layout, and its holes."""
        # A tensor begins with its pointer, so that its offset is the pointer's.
        return ArgsBuilder(dtype, self.values, self.holes).pack()


@lru_cache(maxsize=256)
def _layout(extras: tuple[str, ...], maps: tuple[str, ...],
            more: tuple[Field, ...]) -> np.dtype[Any]:
    fields: list[tuple[Any, ...]] = [(name, "u8", 16) for name in maps]
    fields += [(name, HEADS_DTYPE) for name in ("q", "k", "v", "y", "lse")]
    fields += [("mask", OPERAND_DTYPE), *((name, OPERAND_DTYPE) for name in extras)]
    fields += [(name, "u8") for name in ("kv_len", "q_starts", "k_starts")]
    fields += [("scale", "f8")]
    fields += [(name, "i4") for name in ("batch", "heads", "group", "queries", "keys", "offset",
                                         "left", "right")]
    fields += [(name, kind) for _, name, kind in more]
    size = args_dtype(*fields).itemsize
    if maps and size % 64:  # tensor maps are aligned to 64 bytes, and so is what holds them
        fields.append(("unused", "u1", 64 - size % 64))
    return args_dtype(*fields)


def args_layout(extras: Sequence[str] = (), maps: Sequence[str] = (),
                more: Sequence[Field] = ()) -> np.dtype[Any]:
    """Return the Args struct of attention/arguments.j2.

    Args:
        extras: names of the operands that the formula of the scores reads.
        maps: tensor maps at its head.
        more: members at its end.
    """
    return _layout(tuple(extras), tuple(maps), tuple(more))


@lru_cache(maxsize=1024)
def args_context(extras: tuple[str, ...], maps: tuple[str, ...],
                 more: tuple[Field, ...]) -> dict[str, Any]:
    """Return what attention/arguments.j2 says of Args; arguments as for args_layout()."""
    dtype = args_layout(extras, maps, more)
    assert dtype.fields is not None
    unused = dtype.fields.get("unused")
    return {"ARGS_CHECKS": args_checks(dtype), "EXTRAS": extras,
            "PADDING": unused[0].itemsize if unused else 0}
