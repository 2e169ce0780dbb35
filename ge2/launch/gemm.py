"""Launch rules of the GEMM_BIAS_ACT kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compiler.ir.scalar_ops import C_TYPES
from ..compiler.ir.size import smaller
from ..contract import DTYPES, FLOAT8_MAX
from ..errors import Unsupported
from ..problem import Problem
from .gemm_args import OPERAND_DTYPE, Operand, plain_args_dtype
from .gemm_call import MAX_GRID_Z, GemmCall, gemm_call
from .gemm_examples import examples_for
from .gemm_skinny import DirectRule, RingRule, SkinnyRule
from .gemm_source import ALIGNMENT_SLACK, Classes, cpp, source_of
from .gemm_wgmma import WgmmaBytesRule, WgmmaRule
from .gemm_wgmma_any import WgmmaAnyRule
from .gemm_wgmma_f32 import WgmmaF32Rule
from .record import SEMAPHORES, WORKSPACE, LaunchRecord, Reloc, args_checks
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile


INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What a variant's params and the device say about a launch.

    Attributes:
        tile: output rows and columns of one block.
        block: threads.
        smem: dynamic shared memory in bytes, alignment slack included.
        split: blocks of a cluster that share a tile's k.
    """

    tile: tuple[int, int]
    block: tuple[int, int, int]
    smem: int
    split: int = 1


@dataclass(frozen=True, slots=True)
class PlainRule:
    """One launch, one block per output tile and batch entry.

    Attributes:
        shape: launch shape of a variant for a call.
        classes: compile-time classes of a call beyond dtypes and epilogue.
        refusal: why a variant cannot serve a call, or empty; None where guards say all.
    """

    shape: Callable[[Variant, GemmCall], Shape]
    classes: Callable[[Variant, GemmCall, DeviceProfile], Classes]
    refusal: Callable[[Variant, GemmCall], str] | None = None

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = gemm_call(problem)
        if call.is_empty:
            return []
        refusal = self.refusal(variant, call) if self.refusal else ""
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        shape = self.shape(variant, call)
        tiles = -(-call.m // shape.tile[0]) * -(-call.n // shape.tile[1])
        classes = self.classes(variant, call, device)
        if call.row_value is not None:
            return [_with_row_values(call, call.row_value, shape, variant, classes)]
        args, relocs = call.pack()
        return [
            LaunchRecord(
                kernel=source_of(variant, call, classes),
                grid=(tiles * shape.split, 1, smaller(call.batches, MAX_GRID_Z)),
                block=shape.block,
                args=args,
                relocs=relocs,
                smem=shape.smem,
                cluster=(shape.split, 1, 1),
            )
        ]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return [p for p in examples_for(variant.kernel)
                if not self.refusal or not self.refusal(variant, gemm_call(p))]


def _with_row_values(call: GemmCall, row_value: Operand, shape: Shape, variant: Variant,
                     classes: Classes) -> LaunchRecord:
    """Return the launch of a product that says something of each row, by row_values.cuh."""
    args, relocs = call.pack([row_value], (0, 0))
    rows, columns = -(-call.m // shape.tile[0]), -(-call.n // shape.tile[1])
    dtype = plain_args_dtype([name for name, _ in call.extras], ("row_value", OPERAND_DTYPE),
                             ("row_parts", "u8"), ("arrived", "u8"))
    return LaunchRecord(
        kernel=source_of(variant, call, (*classes, ("ARGS_CHECKS", args_checks(dtype)))),
        grid=(rows * columns, 1, smaller(call.batches, MAX_GRID_Z)), block=shape.block, args=args,
        relocs=(*relocs, Reloc(dtype.itemsize - 16, WORKSPACE),
                Reloc(dtype.itemsize - 8, SEMAPHORES)),
        smem=shape.smem, workspace=call.batches * rows * columns * shape.tile[0] * 4,
        semaphores=call.batches * rows)


def _row_bytes(call: GemmCall, rows: int, parts: int) -> int:
    """Return the shared memory that the values of a tile's rows take."""
    return rows * parts * 4 + 16 if call.rows != "none" else 0


def _simple_shape(variant: Variant, call: GemmCall) -> Shape:
    itemsize = DTYPES[accumulator(call)].itemsize
    return Shape((32, 32), (32, 8, 1), 2 * 32 * 33 * itemsize + ALIGNMENT_SLACK)


def accumulator(call: GemmCall) -> str:
    """Return the dtype that products are summed in: the wider of both operands' compute types."""
    computes = {DTYPES[call.a.dtype].compute, DTYPES[call.b.dtype].compute}
    return next((t for t in ("f64", "f32", "i64") if t in computes), "i32")


def _simple_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    return (("TYPE_ACC", DTYPES[accumulator(call)].c_type),
            ("TYPE_COMPUTE", C_TYPES[DTYPES[call.y.dtype].compute]))


def _tiled_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, bk = (int(variant.param(name)) for name in ("BM", "BN", "BK"))
    return Shape((bm, bn), (bm // 32 * (bn // 64) * 32, 1, 1),
                 max(2 * (bm + bn) * bk, bm // 2 * bn) * 4 + _row_bytes(call, bm, 1)
                 + ALIGNMENT_SLACK)


def _tiled_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    return (("ROWS", call.rows), *layout_classes(call, (4,)))


def _async_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, bk, stages, tn = (int(variant.param(name))
                              for name in ("BM", "BN", "BK", "STAGES", "TN"))
    pitches = sum(extent + (4 if reads_k_major(x) else 0)
                  for extent, x in ((bm, call.a), (bn, call.b)))
    staged = bm // 2 * (bn + 4)
    rows = _row_bytes(call, bm, max(bn // 128, 1))
    return Shape((bm, bn), (bm // 64 * (bn // (4 * tn)) * 32, 1, 1),
                 max(stages * pitches * bk, staged) * 4 + rows + ALIGNMENT_SLACK,
                 int(variant.param("SPLIT")))


def _async_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    threads = _async_shape(variant, call).block[0]
    registers = 256 if int(variant.param("TN")) == 16 else 168
    return (("BLOCKS", max(1, 65536 // registers // threads)), ("ROWS", call.rows),
            *layout_classes(call, (4,)))


def async_refusal(variant: Variant, call: GemmCall) -> str:
    """Return why a variant of the cp.async kernel cannot serve a call; empty where it can."""
    if call.rows != "none" and int(variant.param("SPLIT")) > 1:
        return "blocks that share K share the rows, too"
    unaligned_wide = int(variant.param("TN")) == 16 and int(variant.param("BK")) == 16
    for x, extent in ((call.a, "BM"), (call.b, "BN")):
        if max(abs(x.row), abs(x.column)) * int(variant.param(extent)) > INT32_MAX:
            return "offsets inside a tile do not fit in 32 bits"
        if unaligned_wide and not reads_k_major(x) and x.vector(True, (4,)) != 4:
            return "no registers are left to copy element by element"
    return ""


def reads_k_major(operand: Operand) -> bool:
    return operand.column == 1 or operand.row != 1


def layout_classes(call: GemmCall, widths: tuple[int, ...]) -> Classes:
    """Return which way the operands lie in memory and how many elements one access may take."""
    classes: list[tuple[str, Any]] = [("VEC_Y", call.y.vector(False, widths[:1]))]
    for name, operand in (("A", call.a), ("B", call.b)):
        k_major = reads_k_major(operand)
        classes += [(f"K_MAJOR_{name}", cpp(k_major)),
                    (f"VEC_{name}", operand.vector(not k_major, widths))]
    return tuple(classes)


def _tensor_core_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, bk, stages = (int(variant.param(name)) for name in ("BM", "BN", "BK", "STAGES"))
    warp_n = 64 if bn >= 128 else 32
    warps = 2 * bn // warp_n
    pipeline = (bm + bn) * bk * 2 * stages
    epilogue = warps * 32 * (warp_n + 8) * 4
    return Shape((bm, bn), (warps * 32, 1, 1),
                 max(pipeline, epilogue) + _row_bytes(call, bm, bn // warp_n) + ALIGNMENT_SLACK)


def _bytes_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, bk, stages = (int(variant.param(name)) for name in ("BM", "BN", "BK", "STAGES"))
    warps = 2 * (bn // 32)
    epilogue = warps * 32 * (32 + 8) * 4
    return Shape((bm, bn), (warps * 32, 1, 1),
                 max((bm + bn) * bk * stages, epilogue) + ALIGNMENT_SLACK)


_MMA_NAMES = {"i8": "s8", "u8": "u8", "f8e4m3": "e4m3", "f8e5m2": "e5m2"}


def _bytes_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    y = DTYPES[call.y.dtype]
    width = min(8, 16 // y.itemsize)
    classes: list[tuple[str, Any]] = [
        ("MMA", _MMA_NAMES[call.a.dtype] + _MMA_NAMES[call.b.dtype]),
        ("TYPE_ACC", DTYPES[accumulator(call)].c_type), ("TYPE_COMPUTE", C_TYPES[y.compute]),
        ("PROMOTES", cpp(call.a.dtype in FLOAT8_MAX)),
        ("WHOLE_Y", cpp(call.y.vector(False, (width,)) == width))]
    for name, operand in (("A", call.a), ("B", call.b)):
        classes += [(f"K_MAJOR_{name}", cpp(reads_k_major(operand))),
                    (f"VEC_{name}", operand.vector(False, (16, 8, 4)))]
    return tuple(classes)


def _tensor_core_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    if call.a.dtype == "bf16" and not device.caps["bf16"]:
        raise Unsupported("bf16 tensor cores need sm_80", argument="A", found=device.arch)
    asynchronous = device.caps["async_copy"]
    widths = (8, 4, 2) if asynchronous else (8,)
    return (("ASYNC", cpp(asynchronous)), ("ROWS", call.rows), *layout_classes(call, widths))


RULES: Mapping[str, LaunchRule] = {
    "gemm": PlainRule(_simple_shape, _simple_classes),
    "gemm.tiled": PlainRule(_tiled_shape, _tiled_classes),
    "gemm.f32_async": PlainRule(_async_shape, _async_classes, async_refusal),
    "gemm.tensor_core": PlainRule(_tensor_core_shape, _tensor_core_classes),
    "gemm.tensor_core_8bit": PlainRule(_bytes_shape, _bytes_classes),
    "gemm.wgmma": WgmmaRule(),
    "gemm.wgmma_8bit": WgmmaBytesRule(),
    "gemm.wgmma_any": WgmmaAnyRule(),
    "gemm.wgmma_f32": WgmmaF32Rule(),
    "gemm.skinny": SkinnyRule(),
    "gemm.skinny_mma": DirectRule(),
    "gemm.skinny_ring": RingRule(),
}
