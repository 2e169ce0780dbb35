"""Norms inside of products: rows that are hard to normalise; bits do not depend on the device."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.contract import numpy_dtype
from ge2.evidence.device import PROFILES
from ge2.launch.norm_gemm import norm_gemm_problem
from ge2.runtime.emulate import run_problem
from ge2.runtime.problem_reference import random_inputs, reference

KERNELS = {"f32": "gemm/norm_gemm_f32[BM=32,BN=64,STAGES=3]",
           "f16": "gemm/norm_gemm_mma[BM=32,BN=64,STAGES=3]",
           "bf16": "gemm/norm_gemm_mma[BM=64,BN=64,STAGES=3]"}
ULP = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
M, N, K = 5, 72, 200


def hard_rows(dtype: str) -> np.ndarray:
    """Equal values, zeros, small steps on a large value, one outlier, numbers of both signs."""
    x = np.zeros((M, K))
    x[0] = 0.3
    x[2] = 1e4 + np.arange(K) * 1e-3 if dtype == "f32" else 100.0 + np.arange(K) % 3
    x[3, 0], x[3, 1:] = 1e4, np.linspace(-1, 1, K - 1)
    x[4] = np.random.default_rng(0).normal(size=K)
    return x.astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", KERNELS)
@pytest.mark.parametrize("norm", ["LAYER_NORM", "RMS_NORM"])
def test_rows_that_are_hard_to_normalise(dtype: str, norm: str) -> None:
    """Errors stay those of the element type, whatever the mean and the spread of a row are."""
    problem = norm_gemm_problem(dtype, (M, N, K), norm)
    inputs = random_inputs(problem, 1)
    inputs[0] = hard_rows(dtype)
    y, rows = run_problem(KERNELS[dtype], problem, inputs)
    wanted, wanted_rows = reference(problem, inputs)
    # Two roundings of 2^-24 beside the outlier are sqrt(K) times larger for the others.
    spread = 2.0**-21 * np.abs(wanted_rows).max(-1, keepdims=True) + 1e-6
    assert np.all(np.abs(rows - wanted_rows) <= 1.05 * ULP[dtype] * np.abs(wanted_rows) + spread)
    share = np.abs(wanted_rows) @ np.abs(np.asarray(inputs[2], np.float64))
    assert np.all(np.abs(y - wanted) <= ULP[dtype] * (np.abs(wanted) + 2 * share) + 2e-4)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_blocks_that_share_rows_agree(dtype: str) -> None:
    """A device with room for many blocks gives the same bits as one with room for a single one."""
    problem = norm_gemm_problem(dtype, (33, 200, 40), fused=True)
    inputs = random_inputs(problem, 2)
    few, many = (run_problem(KERNELS[dtype], problem, inputs, device=dataclasses.replace(
        PROFILES["sm_90a"], sm_count=count)) for count in (1, 132))
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_nan_and_infinity_stay_in_their_rows(dtype: str) -> None:
    """A row with one of them is NaN as a whole; the others are as without it."""
    problem = norm_gemm_problem(dtype, (4, 64, 72), rows=False)
    inputs = random_inputs(problem, 3)
    clean, = run_problem(KERNELS[dtype], problem, inputs)
    x = inputs[0]
    assert x is not None
    inputs[0] = x = x.copy()
    x[1, 3], x[2, 0] = np.nan, np.inf
    y, = run_problem(KERNELS[dtype], problem, inputs)
    assert np.isnan(y[1:3]).all()
    np.testing.assert_array_equal(y[[0, 3]], clean[[0, 3]])
