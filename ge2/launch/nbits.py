"""Launch rules of the MATMUL_NBITS kernels: 4-bit weights, two codes in a byte."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ..compiler.ir.expr import ExprBundle, cast, input
from ..compiler.ir.scalar_ops import C_TYPES
from ..compiler.ir.size import smaller
from ..compiler.opdefs.activations import ACTIVATIONS
from ..contract import DTYPES, ActKind
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .gemm_args import OPERAND_DTYPE, Operand, plain_args_dtype
from .gemm_call import MAX_GRID_Z, GemmCall, gemm_call
from .gemm_source import ALIGNMENT_SLACK, Classes, cpp, source_of
from .record import LaunchRecord, args_checks

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

_BIAS_SLOT = 4
_MMA_DEPTH = 32


@dataclass(frozen=True, slots=True)
class NbitsCall:
    """A product with packed weights.

    Attributes:
        gemm: the product; its B is indexed (n, byte) and its k counts weights.
        sources: name and operand of scales (n, group) and, where there are any, zero points
            (n, byte): the last in Args.
        block: weights along k that share a scale.
    """

    gemm: GemmCall
    sources: tuple[tuple[str, Operand], ...]
    block: int

    def record(self, variant: Variant, classes: Classes, *, tile: tuple[int, int], threads: int,
               smem: int, block: tuple[int, int, int] | None = None) -> LaunchRecord:
        """Return the launch of a kernel whose blocks make tiles of rows by columns."""
        call = self.gemm
        y, scale = DTYPES[call.y.dtype], self.sources[0][1]
        names = [name for name, _ in call.extras]
        fields = [(name, OPERAND_DTYPE) for name, _ in self.sources]
        common = (("ARGS_CHECKS", args_checks(plain_args_dtype(names, *fields))),
                  ("BLOCK", self.block), ("HAS_ZEROS", len(self.sources) > 1),
                  ("TYPE_SCALE", DTYPES[scale.dtype].c_type),
                  ("TYPE_ACC", "double" if call.a.dtype == "f64" else "float"),
                  ("TYPE_COMPUTE", C_TYPES[y.compute]))
        args, relocs = call.pack([operand for _, operand in self.sources])
        tiles = -(-call.m // tile[0]) * -(-call.n // tile[1])
        return LaunchRecord(
            kernel=source_of(variant, call, (*common, *classes)),
            grid=(tiles, 1, smaller(call.batches, MAX_GRID_Z)), block=block or (threads, 1, 1),
            args=args, relocs=relocs, smem=smem + ALIGNMENT_SLACK)


@lru_cache(maxsize=1024)
def nbits_call(problem: Problem) -> NbitsCall:
    """Return the normal form of a MATMUL_NBITS problem.

    Raises:
        Unsupported: more than three batch axes are left after merging.
    """
    a, b, scales, zeros, bias = (*problem.inputs, None, None)[:5]
    y, attrs = problem.outputs[0], problem.attr_map
    assert a is not None and b is not None and scales is not None
    compute = DTYPES[y.dtype].compute
    value = input(0, compute)
    if bias is not None:
        value = value + cast(input(_BIAS_SLOT - 1, DTYPES[bias.dtype].compute), compute)
    act, slope = attrs.get("act", "none"), attrs.get("leaky_slope", 0.01)
    epilogue = ExprBundle((ACTIVATIONS[ActKind[str(act).upper()]](value, float(str(slope))),))
    # As bytes of B are indexed, it is a matrix of one column for each weight.
    weights = TensorSpec("u8", (*a.shape[:-2], b.shape[0], a.shape[-1]),
                         (*(0,) * (len(a.shape) - 2), b.strides[0], 1), b.align)
    product = Problem("GEMM_BIAS_ACT", (a, weights, scales, zeros, bias), (y,), (
        ("alpha", 1.0), ("beta", 1.0), ("epilogue", epilogue), ("trans_a", False),
        ("trans_b", True)))
    call = gemm_call(product)
    call = replace(call, b=replace(call.b, row=b.strides[0]))
    found = [("scales", _operand(2, scales))]
    if zeros is not None:
        found.append(("zeros", _operand(3, zeros)))
    return NbitsCall(call, tuple(found), int(str(attrs["block_size"])))


def _operand(slot: int, spec: TensorSpec) -> Operand:
    row, column = spec.strides
    return Operand(slot, spec.dtype, spec.align, row, column, (0, 0, 0))


def _bound(problem: Problem, variant: Variant, refusal: str) -> NbitsCall:
    if refusal:
        raise Unsupported(refusal, argument=variant.id, found=problem)
    return nbits_call(problem)


@dataclass(frozen=True, slots=True)
class AnyRule:
    """One block for 32 by 32 outputs."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = nbits_call(problem)
        if call.gemm.is_empty:
            return []
        size = 8 if call.gemm.a.dtype == "f64" else 4
        return [call.record(variant, (), tile=(32, 32), threads=256, block=(32, 8, 1),
                            smem=2 * 32 * 33 * size)]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return [nbits_problem("f32", (5, 40, 72), 16, zeros=True),
                nbits_problem("bf16", (5, 40, 72), 32, scales="f32", bias=True)]


def words_of(block: int) -> int:
    """Return how many words of eight codes a lane of the skinny kernel takes at once."""
    return min(4, block // 32)


def skinny_refusal(call: NbitsCall) -> str:
    """Return why the skinny kernel cannot serve a call; empty where it can."""
    gemm = call.gemm
    if gemm.m > 16:
        return f"takes up to 16 rows, not {gemm.m}"
    if gemm.k % 8 or gemm.a.vector(False, (8,)) != 8:
        return "A is not aligned to 16 bytes along K"
    return _codes_refusal(call, 4 * words_of(call.block))


def mma_refusal(call: NbitsCall) -> str:
    """Return why the mma.sync kernel cannot serve a call; empty where it can."""
    if call.gemm.a.column != 1 and call.gemm.k > 1:
        return "A does not run along K"
    return _codes_refusal(call, 16)


def _codes_refusal(call: NbitsCall, nbytes: int) -> str:
    block = call.block
    if block < 32 or block & block - 1:
        return f"takes groups of 32, 64, 128 and so on, not {block}"
    if call.gemm.b.align % nbytes or call.gemm.b.row % nbytes:
        return f"rows of B are not aligned to {nbytes} bytes"
    return ""


@dataclass(frozen=True, slots=True)
class SkinnyRule:
    """One block for 16 columns, its warps sharing k."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = _bound(problem, variant, skinny_refusal(nbits_call(problem)))
        if call.gemm.is_empty:
            return []
        warps, rows = int(variant.param("WARPS")), 8 if call.gemm.m <= 8 else 16
        return [call.record(variant, (("MT", rows), ("WORDS", words_of(call.block))),
                            tile=(16, 16), threads=warps * 32, smem=warps * 16 * rows * 4)]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return [nbits_problem("f16", (4, 64, 256), 128, zeros=True),
                nbits_problem("bf16", (16, 64, 256), 32, scales="f32", bias=True),
                nbits_problem("bf16", (7, 64, 256), 64, zeros=True, act="gelu")]


@dataclass(frozen=True, slots=True)
class MmaRule:
    """One block for each output tile and batch entry."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = _bound(problem, variant, mma_refusal(nbits_call(problem)))
        gemm = call.gemm
        if gemm.is_empty:
            return []
        bm, bn, stages = (int(variant.param(name)) for name in ("BM", "BN", "STAGES"))
        threads = bn * 2
        staged = (bm * 2 + bn // 2) * _MMA_DEPTH * stages
        classes = (("VEC_A", gemm.a.vector(False, (8, 4, 2))),
                   ("WHOLE_Y", cpp(gemm.y.vector(False, (8,)) == 8)))
        return [call.record(variant, classes, tile=(bm, bn), threads=threads,
                            smem=max(staged, threads * 40 * 4))]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return [nbits_problem("f16", (80, 144, 256), 32, zeros=True),
                nbits_problem("bf16", (80, 144, 256), 128, bias=True, act="gelu"),
                nbits_problem("f16", (80, 144, 252), 64, zeros=True)]


def nbits_problem(dtype: str, shape: tuple[int, int, int], block: int, *, scales: str = "",
                  zeros: bool = False, bias: bool = False, act: str = "none") -> Problem:
    """Return a MATMUL_NBITS problem on dense tensors.

    Args:
        dtype: of A, bias and the result.
        shape: m, n, k.
        block: weights along k that share a scale.
        scales: their dtype; empty for that of A.
        zeros: with zero points.
        bias: one per column.
        act: activation.
    """
    m, n, k = shape
    blocks = -(-k // block)
    inputs = (TensorSpec.dense(dtype, (m, k)), TensorSpec.dense("u8", (n, blocks, block // 2)),
              TensorSpec.dense(scales or dtype, (n, blocks)),
              TensorSpec.dense("u8", (n, (blocks + 1) // 2)) if zeros else None,
              TensorSpec(dtype, (m, n), (0, 1)) if bias else None)
    return Problem("MATMUL_NBITS", inputs, (TensorSpec.dense(dtype, (m, n)),),
                   (("act", act), ("block_size", block), ("leaky_slope", 0.01)))


RULES = {
    "nbits.any": AnyRule(),
    "nbits.skinny": SkinnyRule(),
    "nbits.mma": MmaRule(),
}
