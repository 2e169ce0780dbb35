"""Launch rule of 16-bit products that tensor maps do not reach: copies first, then the product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..problem import Problem
from .gemm_call import GemmCall, gemm_call
from .gemm_examples import K, examples_for
from .gemm_planes import PreparedMatrix, matrices
from .gemm_source import cpp
from .gemm_wgmma import (
    MAP_BYTES,
    operand_map,
    operand_refusal,
    product_launch,
    tile_of,
    wgmma_refusal,
)
from .record import LaunchRecord, TensorMapSpec

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile


@dataclass(frozen=True, slots=True)
class WgmmaAnyRule:
    """A launch for each operand that must be copied, then the product; Y is written as it lies."""

    def prepares(self, problem: Problem, slot: int) -> bool:
        """Whether tensor maps cannot reach an operand of 16 bits; see LaunchRule."""
        operand = problem.inputs[slot]
        if slot > 1 or operand is None or operand.dtype not in ("f16", "bf16"):
            return False
        call = gemm_call(problem)
        return bool(operand_refusal("", (call.a, call.b)[slot]))

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launches; see LaunchRule."""
        call = gemm_call(problem)
        if call.is_empty:
            return []
        refusal = wgmma_any_refusal(variant, call)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        copies: list[PreparedMatrix] = []
        maps: list[TensorMapSpec] = []
        turned: list[bool] = []
        for (x, extent, batches), tile in zip(matrices(call), tile_of(variant), strict=True):
            offset = len(maps) * MAP_BYTES
            if not operand_refusal("", x):
                maps.append(operand_map(offset, x, extent, call.k, tile, call.batch[2]))
                turned.append(x.column != 1)
                continue
            copy = PreparedMatrix(x, extent, call.k, x.dtype, 1, batches)
            copies.append(copy)
            maps.append(copy.map(offset, tile))
            turned.append(False)
        classes = (("K_MAJOR_A", cpp(not turned[0])), ("K_MAJOR_B", cpp(not turned[1])),
                   ("PREPARE", False))
        product = product_launch(call, variant, device, tuple(maps), classes,
                                 sources=(("y", call.y),))
        return [*(copy.launch(variant) for copy in copies), product]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return [p for p in examples_for(variant.kernel, 2 * K)
                if not wgmma_any_refusal(variant, gemm_call(p))]


def wgmma_any_refusal(variant: Variant, call: GemmCall) -> str:
    """Return why a variant cannot serve a call, or need not; empty where it does."""
    if call.batch[0] * call.batch[1] != 1:
        return "batch axes do not merge into one"
    if call.k == 0:
        return "a tensor map has no empty axis"
    if call.more:
        return "writes one output"
    if not wgmma_refusal(variant, call):
        return "tensor maps reach everything"
    return ""
