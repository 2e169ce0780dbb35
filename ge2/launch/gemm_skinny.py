"""Launch rules of the GEMM_BIAS_ACT kernels for a few rows against a large matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..compiler.ir.size import smaller
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem
from .gemm_call import MAX_GRID_Z, GemmCall, skinny_call, skinny_refusal
from .gemm_examples import gemm_problem
from .gemm_source import ALIGNMENT_SLACK, cpp, source_of
from .record import LaunchRecord

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

RING_WIDTHS = (8, 16, 32, 64)


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
                pdl=bool(variant.param("PDL")),
                early=(call.b.slot,),
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


@dataclass(frozen=True, slots=True)
class RingRule:
    """Blocks of 64 or 128 columns, in clusters that share k; operands swapped if n < m."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = skinny_call(problem)
        if call.is_empty:
            return []
        refusal = ring_refusal(variant, call)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        groups, split = int(variant.param("GROUPS")), int(variant.param("SPLIT"))
        width = ring_width(call.m)
        classes = (("MT", width), ("K_MAJOR_B", cpp(call.b.column == 1)),
                   ("VEC_Y", call.y.vector(False, (4,))))
        args, relocs = call.pack()
        return [
            LaunchRecord(
                kernel=source_of(variant, call, classes),
                grid=(-(-call.n // (64 * groups)) * split, 1, smaller(call.batches, MAX_GRID_Z)),
                block=(128 * groups, 1, 1),
                args=args,
                relocs=relocs,
                smem=ring_bytes(variant, width) + ALIGNMENT_SLACK,
                cluster=(split, 1, 1),
                pdl=bool(variant.param("PDL")),
                early=(call.b.slot,),
            )
        ]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        found = []
        for rule in variant.kernel.dtypes:
            dtypes = (rule.inputs[0], rule.inputs[1], rule.output)
            for m, turned in ((4, True), (13, False), (32, True), (64, False)):
                found += [gemm_problem(dtypes, shape=(m, 256, 128), trans=(False, turned),
                                       fused=turned),
                          gemm_problem(dtypes, shape=(256, m, 128), trans=(turned, True))]
        return [p for p in found if not ring_refusal(variant, skinny_call(p))]


def ring_width(m: int) -> int:
    """Return the least width of the product that holds m rows."""
    return next(width for width in RING_WIDTHS if m <= width)


def ring_bytes(variant: Variant, width: int) -> int:
    """Return the shared memory of a block's ring."""
    groups, stages = int(variant.param("GROUPS")), int(variant.param("STAGES"))
    return stages * (8192 * groups + 128 * width)


def ring_refusal(variant: Variant, call: GemmCall) -> str:
    """Return why a variant of the ring kernel cannot serve a call; empty where it can."""
    if call.m > RING_WIDTHS[-1]:
        return f"takes up to {RING_WIDTHS[-1]} rows, not {call.m}"
    width = 16 // DTYPES[call.a.dtype].itemsize
    if call.a.vector(False, (width,)) != width:
        return "the small operand is not aligned to 16 bytes along K"
    if call.b.vector(call.b.column != 1, (width,)) != width:
        return "the large operand is not aligned to 16 bytes"
    return ""


@dataclass(frozen=True, slots=True)
class DirectRule:
    """One block for 16 columns, its warps sharing k; operands swapped if n < m."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = skinny_call(problem)
        if call.is_empty:
            return []
        refusal = direct_refusal(call)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        warps, rows = int(variant.param("WARPS")), 8 if call.m <= 8 else 16
        args, relocs = call.pack()
        return [
            LaunchRecord(
                kernel=source_of(variant, call, (("MT", rows),)),
                grid=(-(-call.n // 16), 1, smaller(call.batches, MAX_GRID_Z)),
                block=(warps * 32, 1, 1),
                args=args,
                relocs=relocs,
                smem=warps * 16 * rows * 4 + ALIGNMENT_SLACK,
                pdl=bool(variant.param("PDL")),
                early=(call.b.slot,),
            )
        ]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        found = []
        for rule in variant.kernel.dtypes:
            dtypes = (rule.inputs[0], rule.inputs[1], rule.output)
            for m in (4, 16):
                found += [gemm_problem(dtypes, shape=(m, 256, 128), trans=(False, True),
                                       fused=m == 4),
                          gemm_problem(dtypes, shape=(256, m, 128), trans=(False, True))]
        return found


def direct_refusal(call: GemmCall) -> str:
    """Return why the kernel without shared memory cannot serve a call; empty where it can."""
    if call.m > 16:
        return f"takes up to 16 rows, not {call.m}"
    if call.b.column != 1:
        return "the large operand does not run along K"
    if call.k % 8 or call.a.vector(False, (8,)) != 8 or call.b.vector(False, (8,)) != 8:
        return "the operands are not aligned to 16 bytes along K"
    return ""
