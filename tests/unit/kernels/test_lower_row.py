"""Row operators: whatever axes are reduced, the problem's strides name rows and results."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import Node
from ge2.compiler.kernels.lower import lower
from ge2.contract import numpy_dtype
from ge2.errors import StrideMismatch
from ge2.problem import TensorSpec

from .problem_values import read, solve


def _solve(op, arrays, attrs, strides=None):
    """Lower op on row-major arrays, write the results through the output specs, return them."""
    names = tuple(f"v{i}" for i in range(len(arrays)))
    specs = {n: TensorSpec.dense("f32", a.shape) for n, a in zip(names, arrays, strict=True)}
    problem = lower(Node(op, "n", names, ("y",), attrs), specs)
    operands = [read(a.reshape(-1), 0, s) for a, s in zip(arrays, problem.inputs, strict=True)]
    expected = opdefs.reference(op, arrays, attrs)[0]
    memory = np.full(expected.size, -77, numpy_dtype(problem.outputs[0].dtype))
    target = read(memory, 0, problem.outputs[0])
    target[...] = solve(problem, operands)[0]
    np.testing.assert_allclose(memory.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)
    return problem


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("op", ["SOFTMAX", "LOG_SOFTMAX"])
def test_softmax_along_any_axis(op, axis):
    _solve(op, [_x(3, 4, 5)], {"axis": axis})


def test_rows_collapse_in_the_usual_case():
    problem = _solve("SOFTMAX", [_x(2, 3, 4, 5)], {"axis": -1})
    assert problem.inputs[0].shape == (24, 5) and problem.outputs[0].strides == (5, 1)


@pytest.mark.parametrize("axis", [-1, -2, 0])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_over_trailing_axes(axis, bias):
    x = _x(3, 4, 5)
    affine = [_x(*x.shape[axis:]) for _ in range(1 + bias)]
    problem = _solve("LAYER_NORM", [x, *affine], {"axis": axis, "epsilon": 1e-3})
    assert len(problem.inputs) == 2 + bias
    _solve("RMS_NORM", [x, affine[0]], {"axis": axis, "epsilon": 1e-3})


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_norm_leaves_zeros_and_keeps_nan(p, axis):
    x = np.moveaxis(_x(3, 4, 5), -1, axis).copy()
    rows = np.moveaxis(x, axis, -1)
    rows[0, 0], rows[1, 1, 2] = 0.0, np.nan
    _solve("LP_NORM", [x], {"axis": axis, "p": p})
    assert np.isnan(opdefs.reference("LP_NORM", [x], {"axis": axis, "p": p})[0]).sum() == 5


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2], None])
def test_reductions_over_adjacent_axes(axes, keepdims):
    for op in ("REDUCE_SUM", "REDUCE_MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD",
               "REDUCE_L1", "REDUCE_L2", "REDUCE_SUMSQUARE", "REDUCE_LOGSUMEXP"):
        _solve(op, [_x(3, 4, 5)], {"axes": axes, "keepdims": keepdims})


def test_axes_of_extent_one_do_not_stand_between():
    _solve("REDUCE_SUM", [_x(3, 1, 5)], {"axes": [0, 2], "keepdims": True})


def test_axes_that_are_apart_need_another_layout():
    with pytest.raises(StrideMismatch):
        _solve("REDUCE_SUM", [_x(3, 4, 5)], {"axes": [0, 2]})


def test_strided_rows_are_read_in_place():
    x = _x(4, 6)
    spec = TensorSpec("f32", (6, 4), (1, 6))
    problem = lower(Node("SOFTMAX", "n", ("x",), ("y",)), {"x": spec})
    assert problem.inputs[0].strides == (1, 6) and problem.outputs[0].strides == (4, 1)
    found = solve(problem, [read(x.reshape(-1), 0, problem.inputs[0])])[0]
    np.testing.assert_allclose(found, opdefs.reference("SOFTMAX", [x.T], {})[0], rtol=1e-5)


@pytest.mark.parametrize("axis", [-1, 0])
def test_masked_softmax_gives_zero_where_nothing_is_allowed(axis):
    x = _x(3, 4)
    mask = np.random.default_rng(1).random((3, 4)) > 0.4
    mask[1] = False
    mask[:, 2] = False
    specs = {"x": TensorSpec.dense("f32", (3, 4)), "m": TensorSpec.dense("bool", (3, 4))}
    problem = lower(Node("MASKED_SOFTMAX", "n", ("x", "m"), ("y",), {"axis": axis}), specs)
    operands = [read(a.reshape(-1), 0, s) for a, s in zip((x, mask), problem.inputs, strict=True)]
    expected = opdefs.reference("MASKED_SOFTMAX", [x, mask], {"axis": axis})[0]
    memory = np.empty(12, np.float32)
    read(memory, 0, problem.outputs[0])[...] = solve(problem, operands)[0]
    np.testing.assert_allclose(memory.reshape(3, 4), expected, rtol=1e-5)
