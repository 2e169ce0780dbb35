"""Three operators that prove the contract: one elementwise, one GEMM, one of two kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ge2.compiler.ir.expr import ExprBundle, input, maximum
from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.problem import Problem, TensorSpec

Array = np.ndarray[Any, Any]


def _dense(*shape: int) -> TensorSpec:
    return TensorSpec.dense("f32", shape)


def add_relu(rows: int = 33, columns: int = 64) -> Problem:
    """Return relu(x + y): one launch, no workspace."""
    spec = _dense(rows, columns)
    bundle = ExprBundle((maximum(input(0) + input(1), 0.0),))
    return Problem("ELEMENTWISE", (spec, spec), (spec,), (("expr", bundle),))


def gemm_relu(m: int = 70, n: int = 96, k: int = 40) -> Problem:
    """Return relu(A B): bias and C are absent."""
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0, "beta": 1.0, "act": "relu",
             "leaky_slope": 0.01,
             "epilogue": gemm_epilogue("f32", (None, None), 1.0, 1.0, "relu", 0.01)}
    return Problem("GEMM_BIAS_ACT", (_dense(m, k), _dense(k, n), None, None), (_dense(m, n),),
                   tuple(sorted(attrs.items())))


def normalize_sum(rows: int = 100, columns: int = 200) -> Problem:
    """Return x / sum(x): two launches, workspace, semaphores and a tensor map."""
    spec = _dense(rows, columns)
    return Problem("LAB_NORMALIZE_SUM", (spec,), (spec,))


OPERATORS: dict[str, tuple[str, Callable[[], Problem]]] = {
    "elementwise": ("elementwise_vec", add_relu),
    "gemm": ("gemm_bias_act_f32", gemm_relu),
    "two_kernels": ("lab_normalize_sum", normalize_sum),
}


def random_inputs(problem: Problem, seed: int) -> dict[str, Array]:
    """Return in0, in1, ... with values from 0.5 to 1.5."""
    draw = np.random.default_rng(seed)
    return {f"in{i}": draw.uniform(0.5, 1.5, spec.shape).astype("f4")
            for i, spec in enumerate(problem.inputs) if spec is not None}
