"""Output tiles that are split along K: sums of several blocks meet, always in the same order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.compiler.kernels import registry
from ge2.launch.gemm_call import gemm_call
from ge2.launch.gemm_examples import gemm_problem
from ge2.launch.gemm_wgmma import tail_of
from ge2.runtime.emulate import run_problem
from ge2.runtime.emulate.problems import emulated_profile
from ge2.runtime.problem_reference import reference

VARIANTS = [v for v in registry.get("gemm_bias_act_wgmma").variants if v.param("TAIL") == "split"]
MULTIPROCESSORS = 4


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.id)
@pytest.mark.parametrize("rest", [1, 2, 5])
def test_split_tiles_have_whole_sums(variant, rest):
    """One tile in four parts, two in two, and whole tiles before one that is split."""
    m, n, k = (int(variant.param("BM")) * rest - 40, int(variant.param("BN")), 1112)
    problem = gemm_problem(("f16",) * 3, shape=(m, n, k))
    device = dataclasses.replace(emulated_profile(variant.kernel), sm_count=MULTIPROCESSORS)
    tail = tail_of(gemm_call(problem), variant, device)
    assert tail.splits == {1: 4, 2: 2, 5: 4}[rest] and tail.whole == {1: 0, 2: 0, 5: 4}[rest]
    draw = np.random.default_rng(rest)
    a, b, bias = (draw.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n), (1, n)))
    inputs = [a, b, np.broadcast_to(bias, (m, n))]
    first, second = (run_problem(variant, problem, inputs, device=device)[0] for _ in range(2))
    (wanted,) = reference(problem, inputs)
    np.testing.assert_allclose(first, wanted, rtol=2e-3, atol=2e-2)
    np.testing.assert_array_equal(first, second)
