"""Operands that are copied before a product, as its loads want them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..contract import DTYPES
from .gemm_args import OPERAND_DTYPE, Operand
from .gemm_call import GemmCall
from .gemm_source import ALIGNMENT_SLACK, cpp
from .prepare import aligned
from .record import (
    ArgsBuilder,
    KernelSource,
    LaunchRecord,
    Reloc,
    TensorMapSpec,
    args_checks,
    args_dtype,
    prepared,
)

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant

SIDE = 64  # rows and depth of the tiles that operands are prepared in
_PREPARE = args_dtype(("source", OPERAND_DTYPE), ("planes", "u8"), ("flags", "u8"),
                      ("extent", "i8"), ("k", "i8"), ("pitch", "i8"))
_PREPARE_SMEM = SIDE * (SIDE + 1) * 4 + 256 + ALIGNMENT_SLACK


@dataclass(frozen=True, slots=True)
class PreparedMatrix:
    """An operand as planes, behind flags where there are several: one for each tile.

    Attributes:
        operand, extent, k: as in the call, indexed (extent, k).
        dtype: of the planes, as tensor maps name it.
        planes, batches: how many of them.
    """

    operand: Operand
    extent: int
    k: int
    dtype: str
    planes: int
    batches: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element of a plane."""
        return 4 if self.dtype == "tf32" else 2

    @property
    def pitch(self) -> int:
        """Elements from row to row."""
        return -(-self.k // 8) * 8

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of SIDE by SIDE along k and along the rows."""
        return -(-self.k // SIDE), -(-self.extent // SIDE)

    @property
    def begin(self) -> int:
        """Byte offset of the first plane."""
        depth, down = self.tiles
        return aligned(4 * depth * down * self.batches) if self.planes > 1 else 0

    @property
    def nbytes(self) -> int:
        """Bytes of flags and planes."""
        return self.begin + (self.extent * self.pitch * self.planes * self.batches
                             * self.itemsize)

    @property
    def flags(self) -> Operand:
        """The flags, as the product is told of them."""
        depth, down = self.tiles
        return Operand(prepared(self.operand.slot), "i32", 16, depth, 1, (0, 0, depth * down))

    def launch(self, variant: Variant) -> LaunchRecord:
        """Return the launch that fills the planes."""
        x = self.operand
        k_major = x.column == 1 or x.row != 1
        args, relocs = ArgsBuilder(
            _PREPARE, {"source": (0, x.row, x.column, x.batch), "extent": self.extent,
                       "k": self.k, "pitch": self.pitch},
            {"planes": (prepared(x.slot), self.begin), "flags": (prepared(x.slot), 0)}).pack()
        context = {"ARGS_CHECKS": args_checks(_PREPARE), "K_MAJOR": cpp(k_major),
                   "MODE": variant.param_map.get("MODE", ""), "PREPARE": True,
                   "TYPE": DTYPES[x.dtype].c_type,
                   "VEC": x.vector(False, (4,)) if x.column == 1 else 1}
        kernel = variant.kernel
        return LaunchRecord(
            kernel=KernelSource(kernel.template, tuple(sorted(context.items())), kernel.entries[1]),
            grid=(*self.tiles, self.batches), block=(256, 1, 1), args=args,
            relocs=(Reloc(0, x.slot), *relocs), smem=_PREPARE_SMEM,
            prepares=x.slot, prepared=self.nbytes)

    def map(self, offset: int, tile: int) -> TensorMapSpec:
        """Return the map that the product reads the planes through."""
        strides = (self.pitch * self.itemsize, self.extent * self.pitch * self.itemsize)
        return TensorMapSpec(offset, prepared(self.operand.slot), self.begin, self.dtype,
                             (self.k, self.extent, self.planes * self.batches), strides,
                             (128 // self.itemsize, tile, 1), 128)


def matrices(call: GemmCall) -> tuple[tuple[Operand, int, int], ...]:
    """Return (operand, rows, matrices) of A and B."""
    return tuple((x, extent, call.batch[2] if x.batch[2] else 1)
                 for x, extent in ((call.a, call.m), (call.b, call.n)))
