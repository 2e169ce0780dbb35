"""Operands that repeat, and what a check of them finds."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.expr import ExprBundle, cast, coord, input, maximum
from ge2.compiler.ir.row_ops import build_row_op
from ge2.launch.attention_examples import attention_problem
from ge2.launch.gemm_examples import gemm_problem, with_row_values
from ge2.launch.norm_gemm import norm_gemm_problem
from ge2.problem import Problem, TensorSpec
from ge2.runtime.device import EmulatedDevice
from ge2.runtime.problem_reference import reference
from ge2.tune.operands import Data, allocate, fill, guards_hold, period_of, read
from ge2.tune.verify import Tolerance, compare


def row(shape: tuple[int, int], name: str = "softmax") -> Problem:
    spec = TensorSpec.dense("f32", shape)
    return Problem("ROW", (spec,), (spec,), (("row", build_row_op(name)),))


def elementwise(spec: TensorSpec, *more: TensorSpec) -> Problem:
    value = maximum(input(0), 0.0)
    for i in range(len(more)):
        value = value + input(i + 1)
    out = TensorSpec.dense(spec.dtype, spec.shape)
    return Problem("ELEMENTWISE", (spec, *more), (out,), (("expr", ExprBundle((value,))),))


PROBLEMS = [
    gemm_problem(("f32", "f32", "f32"), shape=(300, 40, 33)),
    gemm_problem(("f16", "f16", "f16"), shape=(96, 40, 64), trans=(True, True), fused=True),
    with_row_values(gemm_problem(("f32", "f32", "f32"), shape=(96, 40, 33)), "sum"),
    norm_gemm_problem("f32", (96, 40, 33), fused=True),
    row((200, 17)),
    attention_problem("f32", (2, 40, 5, 8), keys=7, length="i32", lse=True),
    attention_problem("f16", (30, 4, 3, 8), groups=2, keys=9, mask="bool",
                      mask_shape=(30, 1, 1, 9)),
    elementwise(TensorSpec.dense("f32", (5000,))),
    elementwise(TensorSpec.dense("f32", (70, 12)), TensorSpec("f32", (70, 12), (0, 1)),
                TensorSpec("f32", (70, 12), (1, 70))),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.op_type}{p.outputs[0].shape}")
def test_one_period_of_reference_stands_for_the_whole(problem: Problem) -> None:
    data = Data(problem, 0)
    assert data.period is not None
    whole = [data.whole(i) for i in range(len(problem.inputs))]
    full = reference(problem, whole)[0].reshape(problem.outputs[0].shape)
    found = full.astype(np.float16 if problem.outputs[0].dtype == "f16" else np.float32)
    assert not compare(problem, 0, found, data.wanted[0], data.output_axis(0)).problem
    # Any single element that is off shows, in every part of the output.
    draw = np.random.default_rng(1)
    for _ in range(10):
        at = tuple(int(draw.integers(n)) for n in found.shape)
        broken = found.copy()
        broken[at] += 1.0
        assert "1 of" in compare(problem, 0, broken, data.wanted[0], data.output_axis(0)).problem


def test_only_blocks_like_a_right_one_are_taken_as_right() -> None:
    problem, wanted = row((9, 4)), np.arange(12.0).reshape(3, 4)
    whole = np.tile(wanted, (3, 1)).astype(np.float32)
    wrong, near = whole.copy(), whole.copy()
    wrong[::3] += 1.0  # the first row of each block
    assert "12 of 36" in compare(problem, 0, wrong, wanted, 0).problem
    near[7, 3] = np.nextafter(near[7, 3], np.float32(9))
    found = compare(problem, 0, near, wanted, 0)
    assert not found.problem and found.max_abs > 0


def test_coordinates_forbid_repeating() -> None:
    spec = TensorSpec.dense("f32", (1000,))
    bundle = ExprBundle((input(0) + cast(coord(0), "f32"),))
    assert period_of(Problem("ELEMENTWISE", (spec,), (spec,), (("expr", bundle),))) is None


@pytest.mark.parametrize(("bad", "says"), [(np.nan, "wrong"), (np.inf, "wrong"), (0.0, "wrong")])
def test_nan_infinity_and_zeros_are_wrong(bad: float, says: str) -> None:
    problem = row((4, 8))
    data = Data(problem, 0)
    found = data.wanted[0].astype(np.float32)
    found[1] = bad
    assert says in compare(problem, 0, found, data.wanted[0], None).problem


def test_nan_is_right_where_nan_is_wanted() -> None:
    problem = row((2, 4))
    wanted = np.array([[np.nan] * 4, [np.inf, -np.inf, 1, 2]])
    assert not compare(problem, 0, wanted.astype(np.float32), wanted, None).problem


def test_bounds_can_be_given() -> None:
    problem = row((2, 4))
    wanted = np.full((2, 4), 0.25)
    found = (wanted + 0.01).astype(np.float32)
    assert compare(problem, 0, found, wanted, None).problem
    assert not compare(problem, 0, found, wanted, None, Tolerance(0.02, 0.0)).problem


@pytest.mark.parametrize("spec", [
    TensorSpec.dense("f16", (5, 6)), TensorSpec("f32", (5, 6), (8, 1), 4),
    TensorSpec("f32", (5, 6), (-6, 1), 16), TensorSpec("bf16", (5, 6), (0, 1), 2),
], ids=["dense", "pitched", "flipped", "broadcast"])
def test_memory_holds_the_tensor_between_guards(spec: TensorSpec) -> None:
    device = EmulatedDevice()
    tensor = allocate(device, spec)
    assert tensor.address % 16 == (spec.align if spec.align < 16 else 0)
    values = np.arange(30).reshape(5, 6) if 0 not in spec.strides else np.tile(np.arange(6), (5, 1))
    from ge2.contract import numpy_dtype

    fill(device, tensor, values.astype(numpy_dtype(spec.dtype)))
    raw = read(device, tensor)
    np.testing.assert_array_equal(tensor.view(raw).astype(np.int64), values)
    assert guards_hold(tensor, raw)
    raw[tensor.end] = 0
    assert not guards_hold(tensor, raw)
