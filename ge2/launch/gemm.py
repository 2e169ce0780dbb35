"""Launch rules of the GEMM_BIAS_ACT kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compiler.ir.scalar_ops import C_TYPES
from ..compiler.ir.size import smaller
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem
from .gemm_call import (
    MAX_GRID_Z,
    GemmCall,
    gemm_call,
    skinny_call,
    skinny_refusal,
)
from .gemm_examples import examples_for, gemm_problem
from .gemm_source import ALIGNMENT_SLACK, Classes, cpp, source_of
from .gemm_wgmma import WgmmaRule
from .gemm_wgmma_f32 import WgmmaF32Rule
from .record import LaunchRecord
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile


@dataclass(frozen=True, slots=True)
class Shape:
    """What a variant's params and the device say about a launch.

    Attributes:
        tile: output rows and columns of one block.
        block: threads.
        smem: dynamic shared memory in bytes, alignment slack included.
    """

    tile: tuple[int, int]
    block: tuple[int, int, int]
    smem: int


@dataclass(frozen=True, slots=True)
class PlainRule:
    """One launch, one block per output tile and batch entry.

    Attributes:
        shape: launch shape of a variant for a call.
        classes: compile-time classes of a call beyond dtypes and epilogue.
    """

    shape: Callable[[Variant, GemmCall], Shape]
    classes: Callable[[Variant, GemmCall, DeviceProfile], Classes]

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = gemm_call(problem)
        if call.is_empty:
            return []
        shape = self.shape(variant, call)
        args, relocs = call.pack()
        tiles = -(-call.m // shape.tile[0]) * -(-call.n // shape.tile[1])
        return [
            LaunchRecord(
                kernel=source_of(variant, call, self.classes(variant, call, device)),
                grid=(tiles, 1, smaller(call.batches, MAX_GRID_Z)),
                block=shape.block,
                args=args,
                relocs=relocs,
                smem=shape.smem,
            )
        ]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return examples_for(variant.kernel)


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
                 max(2 * (bm + bn) * bk, bm // 2 * bn) * 4 + ALIGNMENT_SLACK)


def _tiled_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    return _layout_classes(call, (4,))


def _layout_classes(call: GemmCall, widths: tuple[int, ...]) -> Classes:
    """Return which way the operands lie in memory and how many elements one access may take."""
    classes: list[tuple[str, Any]] = [("VEC_Y", call.y.vector(False, widths[:1]))]
    for name, operand in (("A", call.a), ("B", call.b)):
        k_major = operand.column == 1 or operand.row != 1
        classes += [(f"K_MAJOR_{name}", cpp(k_major)),
                    (f"VEC_{name}", operand.vector(not k_major, widths))]
    return tuple(classes)


def _tensor_core_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, bk, stages = (int(variant.param(name)) for name in ("BM", "BN", "BK", "STAGES"))
    warp_n = 64 if bn >= 128 else 32
    warps = 2 * bn // warp_n
    pipeline = (bm + bn) * bk * 2 * stages
    epilogue = warps * 32 * (warp_n + 8) * 4
    return Shape((bm, bn), (warps * 32, 1, 1), max(pipeline, epilogue) + ALIGNMENT_SLACK)


def _tensor_core_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    if call.a.dtype == "bf16" and not device.caps["bf16"]:
        raise Unsupported("bf16 tensor cores need sm_80", argument="A", found=device.arch)
    asynchronous = device.caps["async_copy"]
    widths = (8, 4, 2) if asynchronous else (8,)
    return (("ASYNC", cpp(asynchronous)), *_layout_classes(call, widths))


@dataclass(frozen=True, slots=True)
class SkinnyRule:
    """One launch, one block for a few columns of the large operand; operands swapped if n < m."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = skinny_call(problem)
        if call.is_empty:
            return []
        refusal = skinny_refusal(variant, call)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        mt, parts = int(variant.param("MT")), int(variant.param("PARTS"))
        by_rows = call.b.column == 1
        warps = 8 if by_rows else parts * (4 if mt <= 2 else 2 if mt <= 8 else 1)
        columns = (warps // parts * (1 if mt == 8 else 2) if by_rows
                   else 4 * 16 // DTYPES[call.b.dtype].itemsize)
        args, relocs = call.pack()
        return [
            LaunchRecord(
                kernel=source_of(variant, call, (("BY_ROWS", cpp(by_rows)),)),
                grid=(-(-call.n // columns), 1, smaller(call.batches, MAX_GRID_Z)),
                block=(warps * 32, 1, 1),
                args=args,
                relocs=relocs,
                smem=(parts if by_rows else warps) * columns * mt * 4 + ALIGNMENT_SLACK,
            )
        ]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        mt = int(variant.param("MT"))
        found = []
        for rule in variant.kernel.dtypes:
            dtypes = (rule.inputs[0], rule.inputs[1], rule.output)
            for turned in (False, True):
                found += [gemm_problem(dtypes, shape=(mt, 256, 128), trans=(False, turned),
                                       fused=turned),
                          gemm_problem(dtypes, shape=(256, mt, 128), trans=(turned, True))]
        return [p for p in found if not skinny_refusal(variant, skinny_call(p))]


RULES: Mapping[str, LaunchRule] = {
    "gemm": PlainRule(_simple_shape, _simple_classes),
    "gemm.tiled": PlainRule(_tiled_shape, _tiled_classes),
    "gemm.tensor_core": PlainRule(_tensor_core_shape, _tensor_core_classes),
    "gemm.wgmma": WgmmaRule(),
    "gemm.wgmma_f32": WgmmaF32Rule(),
    "gemm.skinny": SkinnyRule(),
}
