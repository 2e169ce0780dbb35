"""Launch rule of f32 products on tensor cores: operands rounded, or split, beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..problem import Problem
from .gemm_args import Operand
from .gemm_call import GemmCall, gemm_call
from .gemm_examples import examples_for
from .gemm_planes import PreparedMatrix, matrices
from .gemm_wgmma import (
    MAP_BYTES,
    epilogue_refusal,
    operand_map,
    operand_refusal,
    output_maps,
    product_launch,
    tile_of,
)
from .record import LaunchRecord, TensorMapSpec

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

PLANES = 3


@dataclass(frozen=True, slots=True)
class WgmmaF32Rule:
    """A launch for each operand that must be prepared, then the product."""

    def prepares(self, problem: Problem, slot: int) -> bool:
        """Whether x3 splits an operand, or tf32 copies what maps cannot read; see LaunchRule."""
        mode = problem.attr_map.get("f32", "ieee")
        if mode == "ieee" or problem.outputs[0].dtype != "f32" or slot > 1:
            return False
        call = gemm_call(problem)
        x = (call.a, call.b)[slot]
        return x.dtype == "f32" and (mode == "x3" or _is_copied(x))

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


def _split_launches(call: GemmCall, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
    found = [PreparedMatrix(x, extent, call.k, "bf16", PLANES, batches)
             for x, extent, batches in matrices(call)]
    maps = tuple(matrix.map(i * MAP_BYTES, tile)
                 for i, (matrix, tile) in enumerate(zip(found, tile_of(variant), strict=True)))
    product = product_launch(
        call, variant, device, (*maps, *output_maps(2 * MAP_BYTES, call)), (("PREPARE", False),),
        sources=(("a", call.a), ("b", call.b),
                 ("flags_a", found[0].flags), ("flags_b", found[1].flags)))
    return [*(matrix.launch(variant) for matrix in found), product]


def _rounded_launches(call: GemmCall, variant: Variant, device: DeviceProfile
                      ) -> list[LaunchRecord]:
    """Tensor maps round while they load; only what they cannot read is copied before."""
    launches: list[PreparedMatrix] = []
    maps: list[TensorMapSpec] = []
    for (x, extent, batches), tile in zip(matrices(call), tile_of(variant), strict=True):
        offset = len(maps) * MAP_BYTES
        if not _is_copied(x):
            made = operand_map(offset, x, extent, call.k, tile, call.batch[2])
            maps.append(made._replace(dtype="tf32"))
            continue
        matrix = PreparedMatrix(x, extent, call.k, "tf32", 1, batches)
        launches.append(matrix)
        maps.append(matrix.map(offset, tile))
    product = product_launch(call, variant, device, (*maps, *output_maps(2 * MAP_BYTES, call)),
                             (("PREPARE", False),))
    return [*(matrix.launch(variant) for matrix in launches), product]


def _is_copied(x: Operand) -> bool:
    """Whether maps that round to tf32 cannot read an operand where it lies."""
    return x.column != 1 or bool(operand_refusal("", x))
