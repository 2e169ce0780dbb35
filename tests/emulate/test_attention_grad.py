"""Gradients of attention from what the attention itself has returned."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.kernels import registry
from ge2.launch.attention_grad import gradient_problem
from ge2.problem import Problem
from ge2.runtime.emulate import run_problem
from ge2.runtime.problem_reference import random_inputs, reference

from ..cases.runner import check_values

# Weights and their slopes are rounded to 16 bits before they are multiplied.
ROUNDED = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 0.0, "f64": 2.0**-53}


def inputs_of(problem: Problem, lengths: tuple[int, ...]) -> list[np.ndarray]:
    inputs = random_inputs(problem, 7)
    if lengths:
        inputs[7] = np.array(lengths, inputs[7].dtype)
    attend(problem, inputs)
    return inputs


def attend(problem: Problem, inputs: list[np.ndarray]) -> None:
    """Set the result and the log-sum-exps that the attention itself would have returned."""
    made = opdefs.reference("ATTENTION", [*inputs[:3], *inputs[6:8]],
                            {**problem.attr_map, "lse": True})
    inputs[3:5] = (x.astype(old.dtype) for x, old in zip(made, inputs[3:5], strict=True))


@pytest.mark.parametrize(("kernel", "dtype"), [
    ("attention_grad_simt", "f32"), ("attention_grad_simt", "f64"), ("attention_grad_mma", "f16"),
    ("attention_grad_mma", "bf16")])
def test_gradients_agree_with_float64_and_repeat(kernel: str, dtype: str) -> None:
    """Shared heads, a sample without keys, a mask; twice with the same bits."""
    problem = gradient_problem(dtype, (2, 2, 18, 16), groups=1, keys=33, mask=dtype, causal=True,
                               mask_shape=(1, 2, 1, 33), length="i32")
    inputs = inputs_of(problem, (33, 0))
    variant = registry.get(kernel).variants[0]
    found = run_problem(variant, problem, inputs)
    for spec, gradient, wanted in zip(problem.outputs, found, reference(problem, inputs),
                                      strict=True):
        assert not np.any(gradient[1])
        check_values(kernel, spec.dtype, gradient, wanted, 64, ROUNDED[dtype])
    again = run_problem(variant, problem, inputs)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True))
