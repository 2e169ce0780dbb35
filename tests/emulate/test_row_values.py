"""What products say of their rows beside the output: sums, sums of squares, maxima."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.launch.gemm_examples import gemm_problem, with_row_values
from ge2.problem import Problem, TensorSpec
from ge2.runtime.emulate import run_problem
from ge2.runtime.problem_reference import random_inputs, reference

KERNELS = [
    ("f16", "gemm/gemm_bias_act_tc_f16[BM=64,BN=64,BK=32,STAGES=3]", "sum"),
    ("f16", "gemm/gemm_bias_act_tc_f16[BM=64,BN=64,BK=32,STAGES=3]", "max"),
    ("bf16", "gemm/gemm_bias_act_tc_f16[BM=64,BN=128,BK=32,STAGES=3]", "sumsquare"),
    ("f32", "gemm/gemm_bias_act_f32_tiled[BM=64,BN=64,BK=8]", "max"),
    ("f32", "gemm/gemm_bias_act_f32_tiled[BM=64,BN=128,BK=8]", "sum"),
    ("f32", "gemm/gemm_bias_act_f32_async[BM=64,BN=128,BK=8,STAGES=4,TN=8,SPLIT=1]", "max"),
    ("f32", "gemm/gemm_bias_act_f32_async[BM=128,BN=256,BK=8,STAGES=4,TN=16,SPLIT=1]", "sumsquare"),
]
ULP = {"f32": 2.0**-22, "f16": 2.0**-10, "bf16": 2.0**-7}


def batched(problem: Problem, batch: int) -> Problem:
    """Return the product for several pairs of matrices."""
    def more(spec: TensorSpec | None) -> TensorSpec | None:
        if spec is None:
            return None
        step = 0 if 0 in spec.strides[:-1] else spec.size
        return dataclasses.replace(spec, shape=(batch, *spec.shape),
                                   strides=(step, *spec.strides))

    outputs = tuple(s for s in map(more, problem.outputs) if s is not None)
    return dataclasses.replace(problem, inputs=tuple(map(more, problem.inputs)), outputs=outputs)


@pytest.mark.parametrize(("dtype", "kernel", "rows"), KERNELS)
@pytest.mark.parametrize(("shape", "batch"), [((67, 300, 20), 1), ((3, 129, 17), 2)], ids=str)
def test_values_of_ragged_rows(dtype: str, kernel: str, rows: str, shape: tuple[int, int, int],
                               batch: int) -> None:
    """Of what is stored, whatever tiles the columns lie in; semaphores are zero again."""
    problem = with_row_values(gemm_problem((dtype,) * 3, shape=shape, fused=rows == "max"), rows)
    if batch > 1:
        problem = batched(problem, batch)
    inputs = random_inputs(problem, 1)
    y, value = run_problem(kernel, problem, inputs)
    wanted, _ = reference(problem, inputs)
    np.testing.assert_allclose(y, wanted, rtol=2 * ULP[dtype], atol=3e-4)
    stored = y.astype(np.float64)
    exact = {"sum": stored.sum(-1), "sumsquare": np.square(stored).sum(-1),
             "max": stored.max(-1)}[rows][..., None]
    size = np.abs(stored).sum(-1)[..., None] if rows == "sum" else np.abs(exact)
    assert value.shape == exact.shape
    assert np.all(np.abs(value - exact) <= ULP[dtype] * (np.abs(exact) + 1e-3 * size))


def test_bits_do_not_depend_on_the_order_of_blocks() -> None:
    """The parts of a row are joined in the order of its tiles, in every run."""
    problem = with_row_values(gemm_problem(("f16",) * 3, shape=(40, 500, 24)), "sum")
    inputs = random_inputs(problem, 2)
    first, again = (run_problem(KERNELS[0][1], problem, inputs)[1] for _ in range(2))
    np.testing.assert_array_equal(first.view("u2"), again.view("u2"))


def test_nan_is_the_maximum_of_its_row() -> None:
    problem = with_row_values(gemm_problem(("f32",) * 3, shape=(5, 130, 8)), "max")
    inputs = random_inputs(problem, 3)
    a = inputs[0]
    assert a is not None
    inputs[0] = a = a.copy()
    a[2, 1] = np.nan
    _, value = run_problem(KERNELS[3][1], problem, inputs)
    assert np.isnan(value[2, 0]) and np.isfinite(value[[0, 1, 3, 4]]).all()
