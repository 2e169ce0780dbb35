"""Persistent kernels in random schedules: warps overtake each other, copies complete at any time.

Every run of the tests draws another seed; a failure shows it, and SEED set to it repeats the run.
"""

from __future__ import annotations

import secrets

import pytest

from ge2.compiler.kernels import registry

from .test_mutants import (
    ATTENTION,
    GRADIENT,
    LAB,
    NORM_WGMMA,
    ONE_BUFFER,
    PINGPONG,
    RING,
    WGMMA,
    Target,
)
from .test_registry import profile_of, run_case

SEED = secrets.randbelow(2**32 - 1) + 1


def _several(kernel: str, *least: int) -> Target:
    """Return the kernel's first variant on a result of at least these extents: several tiles."""
    def fits(extents: tuple[int, ...]) -> bool:
        return len(extents) >= len(least) and all(
            e >= n for e, n in zip(extents[-len(least):], least, strict=True))

    return Target(registry.get(kernel).variants[0].id, lambda p: fits(p.outputs[0].shape))


TARGETS = [
    WGMMA, PINGPONG, NORM_WGMMA, ATTENTION, ONE_BUFFER, GRADIENT, RING, LAB,
    _several("gemm_bias_act_wgmma_8bit", 130, 136),
    _several("gemm_bias_act_wgmma_any", 129, 33),
    _several("gemm_bias_act_wgmma_f32", 264, 256),
    _several("conv2d_wgmma", 2, 130, 3, 3),
    _several("row_pipe", 5, 9000),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.variant)
def test_values_are_right_and_nothing_is_found(target: Target) -> None:
    """Against float64; no detector speaks."""
    print(f"seed={SEED}")
    variant = registry.variant(target.variant)
    run_case(variant, target.case(), profile_of(variant.kernel), SEED)
