"""Launch rule of f32 products on tensor cores: operands rounded, or split, into the workspace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..problem import Problem
from .gemm_call import OPERAND_DTYPE, GemmCall, Operand, gemm_call
from .gemm_examples import examples_for
from .gemm_source import ALIGNMENT_SLACK, cpp
from .gemm_wgmma import (
    MAP_BYTES,
    epilogue_refusal,
    operand_map,
    operand_refusal,
    output_maps,
    product_launch,
    tile_of,
)
from .record import (
    WORKSPACE,
    ArgsBuilder,
    KernelSource,
    LaunchRecord,
    Reloc,
    TensorMapSpec,
    args_checks,
    args_dtype,
)

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

SIDE = 64  # rows and depth of the tiles that operands are prepared in
PLANES = 3
_PREPARE = args_dtype(("source", OPERAND_DTYPE), ("planes", "u8"), ("flags", "u8"),
                      ("extent", "i8"), ("k", "i8"), ("pitch", "i8"))
_PREPARE_SMEM = SIDE * (SIDE + 1) * 4 + 256 + ALIGNMENT_SLACK


@dataclass(frozen=True, slots=True)
class WgmmaF32Rule:
    """A launch for each operand that must be prepared, then the product."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launches; see LaunchRule."""
        call = gemm_call(problem)
        if call.is_empty:
            return []
        refusal = wgmma_f32_refusal(problem, variant)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        return (_split_launches if variant.param("MODE") == "x3" else _rounded_launches)(
            call, variant, device)

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        mode = str(variant.param("MODE"))
        asked = [replace(p, attrs=tuple(sorted({**p.attr_map, "f32": mode}.items())))
                 for p in examples_for(variant.kernel)]
        return [p for p in asked if not wgmma_f32_refusal(p, variant)]


def wgmma_f32_refusal(problem: Problem, variant: Variant) -> str:
    """Return why a variant cannot serve a problem; empty where it can."""
    mode, asked = variant.param("MODE"), problem.attr_map.get("f32", "ieee")
    if mode != asked:
        return f"computes f32 as {mode}, asked for is {asked}"
    call = gemm_call(problem)
    if call.batch[0] * call.batch[1] != 1:
        return "batch axes do not merge into one"
    if mode == "x3" and call.more:
        return "no registers are left for a second output"
    return epilogue_refusal(variant, call) or next(
        (reason for y in (call.y, *call.more) if (reason := operand_refusal("Y", y))), "")


@dataclass(frozen=True, slots=True)
class _Matrix:
    """An operand and where its planes go.

    Attributes:
        operand, extent, k: as in the call, indexed (extent, k).
        planes, batches: how many of them.
        begin: byte offset of the first plane.
        flags: byte offset of the flags; one for each tile of SIDE by SIDE.
    """

    operand: Operand
    extent: int
    k: int
    planes: int
    batches: int
    begin: int
    flags: int

    @property
    def itemsize(self) -> int:
        return 4 if self.planes == 1 else 2

    @property
    def pitch(self) -> int:
        return -(-self.k // 8) * 8

    @property
    def nbytes(self) -> int:
        return self.extent * self.pitch * self.planes * self.batches * self.itemsize

    @property
    def tiles(self) -> tuple[int, int]:
        return -(-self.k // SIDE), -(-self.extent // SIDE)

    def launch(self, variant: Variant, workspace: int) -> LaunchRecord:
        """Return the launch that fills the planes."""
        x = self.operand
        k_major = x.column == 1 or x.row != 1
        args, relocs = ArgsBuilder(
            _PREPARE, {"source": (0, x.row, x.column, x.batch), "extent": self.extent,
                       "k": self.k, "pitch": self.pitch},
            {"planes": (WORKSPACE, self.begin), "flags": (WORKSPACE, self.flags)}).pack()
        context = {"ARGS_CHECKS": args_checks(_PREPARE), "K_MAJOR": cpp(k_major),
                   "MODE": variant.param("MODE"), "PREPARE": True,
                   "VEC": x.vector(False, (4,)) if x.column == 1 else 1}
        kernel = variant.kernel
        return LaunchRecord(
            kernel=KernelSource(kernel.template, tuple(sorted(context.items())), kernel.entries[1]),
            grid=(*self.tiles, self.batches), block=(256, 1, 1), args=args,
            relocs=(Reloc(0, x.slot), *relocs), smem=_PREPARE_SMEM, workspace=workspace)

    def map(self, offset: int, tile: int) -> TensorMapSpec:
        """Return the map that the product reads the planes through."""
        dtype = "tf32" if self.planes == 1 else "bf16"
        strides = (self.pitch * self.itemsize, self.extent * self.pitch * self.itemsize)
        return TensorMapSpec(offset, WORKSPACE, self.begin, dtype,
                             (self.k, self.extent, self.planes * self.batches), strides,
                             (128 // self.itemsize, tile, 1), 128)


def _matrices(call: GemmCall) -> tuple[tuple[Operand, int, int], ...]:
    """Return (operand, rows, matrices) of A and B."""
    return tuple((x, extent, call.batch[2] if x.batch[2] else 1)
                 for x, extent in ((call.a, call.m), (call.b, call.n)))


def _aligned(end: int) -> int:
    return -(-end // 256) * 256


def _split_launches(call: GemmCall, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
    depth = -(-call.k // SIDE)
    counts = [-(-extent // SIDE) * depth for _, extent, _ in _matrices(call)]
    flags, end = 0, 4 * sum(count * batches for count, (_, _, batches)
                            in zip(counts, _matrices(call), strict=True))
    found = []
    for count, (x, extent, batches) in zip(counts, _matrices(call), strict=True):
        matrix = _Matrix(x, extent, call.k, PLANES, batches, _aligned(end), flags)
        end = matrix.begin + matrix.nbytes
        flags += 4 * count * batches
        found.append(matrix)
    told = Operand(WORKSPACE, "i32", 16, depth, found[1].flags // 4, (counts[0], counts[1], 0))
    maps = tuple(matrix.map(i * MAP_BYTES, tile)
                 for i, (matrix, tile) in enumerate(zip(found, tile_of(variant), strict=True)))
    product = product_launch(
        call, variant, device, (*maps, *output_maps(2 * MAP_BYTES, call)), (("PREPARE", False),),
        sources=(("a", call.a), ("b", call.b), ("flags", told)), workspace=end)
    return [*(matrix.launch(variant, end) for matrix in found), product]


def _rounded_launches(call: GemmCall, variant: Variant, device: DeviceProfile
                      ) -> list[LaunchRecord]:
    """Tensor maps round while they load; only what they cannot read is copied before."""
    launches: list[_Matrix] = []
    maps: list[TensorMapSpec] = []
    end = 0
    for (x, extent, batches), tile in zip(_matrices(call), tile_of(variant), strict=True):
        offset = len(maps) * MAP_BYTES
        if x.column == 1 and not operand_refusal("", x):
            made = operand_map(offset, x, extent, call.k, tile, call.batch[2])
            maps.append(made._replace(dtype="tf32"))
            continue
        matrix = _Matrix(x, extent, call.k, 1, batches, end, 0)
        end = _aligned(end + matrix.nbytes)
        launches.append(matrix)
        maps.append(matrix.map(offset, tile))
    product = product_launch(call, variant, device, (*maps, *output_maps(2 * MAP_BYTES, call)),
                             (("PREPARE", False),), workspace=end)
    return [*(matrix.launch(variant, end) for matrix in launches), product]
