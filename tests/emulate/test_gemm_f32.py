"""f32 products on tensor cores: accuracy of the split, infinities and NaN as IEEE f32 has them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.compiler.kernels import registry
from ge2.launch.gemm_examples import gemm_problem
from ge2.runtime.emulate import run_problem
from ge2.runtime.problem_reference import reference

from .test_registry import profile_of

NAME = "gemm/gemm_bias_act_wgmma_f32"
X3 = [f"{NAME}[MODE=x3,SCHEDULE=cooperative,BM=128,BN=64,PROMOTE=2]",
      f"{NAME}[MODE=x3,SCHEDULE=single,BM=64,BN=128,PROMOTE=1]"]
TF32 = f"{NAME}[MODE=tf32,SCHEDULE=single,BM=64,BN=128,PROMOTE=0]"


def product(variant_id: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A B of a variant and in float64; both with a bias of zero."""
    variant = registry.variant(variant_id)
    m, k = a.shape
    n = b.shape[1]
    plain = gemm_problem(("f32",) * 3, shape=(m, n, k))
    attrs = {**plain.attr_map, "f32": variant.param("MODE")}
    problem = dataclasses.replace(plain, attrs=tuple(sorted(attrs.items())))
    inputs = [a, b, np.zeros((m, n), np.float32)]
    (found,) = run_problem(variant, problem, inputs, device=profile_of(variant.kernel))
    with np.errstate(all="ignore"):
        (wanted,) = reference(problem, inputs)
    return found, wanted


@pytest.mark.parametrize("variant", X3)
def test_three_planes_are_as_accurate_as_f32(variant: str) -> None:
    """Error against |A| |B| near f32's rounding, for a wide spread of exponents too."""
    draw = np.random.default_rng(0)
    a = np.abs(draw.standard_normal((72, 200), np.float32))
    b = np.abs(draw.standard_normal((200, 72), np.float32))
    a *= np.float32(2.0) ** draw.integers(-30, 30, a.shape).astype(np.float32)
    found, wanted = product(variant, a, b)
    assert np.max(np.abs(found - wanted) / wanted) < 2.0**-22


@pytest.mark.parametrize("variant", [*X3, TF32])
def test_infinities_and_nan_are_those_of_f32(variant: str) -> None:
    """One of them in a row or column decides that row or column, and nothing else."""
    draw = np.random.default_rng(1)
    a = np.abs(draw.standard_normal((136, 136), np.float32)) + 1
    b = np.abs(draw.standard_normal((136, 136), np.float32)) + 1
    a[3, 100], a[70, 5], b[9, 40], b[135, 130] = np.inf, np.nan, -np.inf, np.inf
    b[:, 7] = 1.0  # three planes of 1 are 1, 0, 0
    b[100, 20] = 0.0
    found, wanted = product(variant, a, b)
    relu = np.maximum(wanted.astype(np.float32), 0)
    finite = np.isfinite(relu)
    assert not finite.all() and finite.any()
    np.testing.assert_array_equal(found[~finite], relu[~finite])
    tolerance = 2e-3 if variant == TF32 else 1e-6
    np.testing.assert_allclose(found[finite], relu[finite], rtol=tolerance)


@pytest.mark.parametrize("variant", X3)
def test_the_largest_values_do_not_overflow(variant: str) -> None:
    """Rounding 3.4e38 to bf16 would give infinity."""
    a = np.full((8, 8), np.finfo(np.float32).max, np.float32)
    b = np.eye(8, dtype=np.float32)
    found, wanted = product(variant, a, b)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
