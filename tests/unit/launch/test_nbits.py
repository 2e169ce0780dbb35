"""Which kernel takes a product with packed weights, and what a bad one is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ge2.compiler.kernels import selector
from ge2.errors import DtypeMismatch, Invalid, ShapeMismatch, StrideMismatch
from ge2.evidence.device import PROFILES
from ge2.launch.check import check_problem
from ge2.launch.nbits import nbits_problem
from ge2.problem import Problem, TensorSpec


def chosen(problem: Problem, arch: str = "sm_90a") -> str:
    return selector.select(problem, PROFILES[arch]).variant.kernel.name


@pytest.mark.parametrize(("m", "arch", "kernel"), [
    (1, "sm_90a", "matmul_nbits_skinny"), (16, "sm_80", "matmul_nbits_skinny"),
    (17, "sm_80", "matmul_nbits_mma"), (2048, "sm_90a", "matmul_nbits_mma"),
    (1, "sm_75", "matmul_nbits"),
])
def test_rows_decide(m: int, arch: str, kernel: str) -> None:
    assert chosen(nbits_problem("f16", (m, 4096, 4096), 128), arch) == kernel


@pytest.mark.parametrize("problem", [
    nbits_problem("f32", (4, 64, 64), 32), nbits_problem("f16", (4, 64, 64), 16),
    nbits_problem("f16", (4, 64, 96), 96)])
def test_the_plain_kernel_takes_the_rest(problem: Problem) -> None:
    assert chosen(problem) == "matmul_nbits"


def test_codes_between_two_words_are_left_to_the_plain_kernel() -> None:
    problem = nbits_problem("f16", (4, 64, 64), 32)
    a, b, *rest = problem.inputs
    assert b is not None
    assert chosen(replace(problem, inputs=(a, replace(b, align=1), *rest))) == "matmul_nbits"


def _changed(slot: int, spec: TensorSpec) -> Problem:
    problem = nbits_problem("f16", (4, 64, 96), 32, zeros=True, bias=True)
    inputs = list(problem.inputs)
    inputs[slot] = spec
    return replace(problem, inputs=tuple(inputs))


@pytest.mark.parametrize(("problem", "error"), [
    (_changed(1, TensorSpec.dense("i8", (64, 3, 16))), DtypeMismatch),
    (_changed(1, TensorSpec.dense("u8", (64, 2, 16))), ShapeMismatch),
    (_changed(1, TensorSpec("u8", (64, 3, 16), (96, 32, 1))), StrideMismatch),
    (_changed(2, TensorSpec.dense("f16", (64, 2))), ShapeMismatch),
    (_changed(3, TensorSpec.dense("u8", (64, 3))), ShapeMismatch),
    (_changed(4, TensorSpec.dense("f16", (64,))), ShapeMismatch),
    (replace(_changed(2, TensorSpec.dense("f16", (64, 3))),
             attrs=(("act", "none"), ("block_size", 31), ("leaky_slope", 0.01))), Invalid),
])
def test_bad_calls_are_told_what_is_wrong(problem: Problem, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_problem(problem)
