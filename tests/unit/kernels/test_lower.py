"""Lowering: a problem on strided memory computes what the operator's reference does."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import Node
from ge2.compiler.ir.expr import ExprBundle, input, parse
from ge2.compiler.kernels.lower import accepts_strides, lower
from ge2.contract import DTYPES
from ge2.errors import StrideMismatch, Unsupported
from ge2.problem import TensorSpec

from .problem_values import read, solve


def _spec(array, dtype="f32"):
    return TensorSpec(dtype, array.shape, tuple(s // array.itemsize for s in array.strides))


def _check(op, arrays, attrs=None, dtype="f32", tolerance=1e-5):
    """Lower op on arrays (views keep their strides), solve the problem, compare."""
    names = tuple("" if a is None else f"v{i}" for i, a in enumerate(arrays))
    specs = {n: _spec(a, dtype) for n, a in zip(names, arrays, strict=True) if n}
    problem = lower(Node(op, "n", names, ("y",), attrs or {}), specs)
    flat = [None if a is None else np.ascontiguousarray(_base(a)).reshape(-1) for a in arrays]
    given = iter([f for f in flat if f is not None])
    operands = [None if s is None else read(next(given), 0, s) for s in problem.inputs]
    expected = opdefs.reference(op, arrays, attrs or {})[0]
    found = solve(problem, operands)[0].reshape(expected.shape)
    np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=tolerance,
                               atol=tolerance)
    assert list(problem.attrs) == sorted(problem.attrs, key=lambda pair: pair[0])
    hash(problem)
    return problem


def _base(array):
    return array if array.base is None else _base(array.base)


def _random(*shape, dtype=np.float32):
    # A fresh array: its base is itself, so that strides count from element 0.
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def test_broadcast_operands_have_stride_zero():
    problem = _check("ADD", [_random(4, 3), _random(3)])
    assert problem.op_type == "ELEMENTWISE" and problem.inputs[1].strides == (0, 1)


def test_transposed_operands_are_read_in_place():
    _check("MUL", [_random(3, 4).T, _random(4, 3)])


def test_results_are_in_the_compute_type_of_what_is_stored():
    x = TensorSpec.dense("f16", (4,))
    for target in ("f64", "i64", "u8", "bf16", "bool"):
        problem = lower(Node("CAST", "n", ("x",), ("y",), {"to": target}), {"x": x})
        assert problem.outputs[0].dtype == target
        assert problem.attr_map["expr"].outputs[0].dtype == DTYPES[target].compute


def test_fused_nodes_may_have_several_outputs_and_no_input():
    bundle = parse("t0 = exp(x0); t0, 2.0")
    node = Node("FUSED_ELEMENTWISE", "n", ("x",), ("a", "b"), {"expr": bundle, "dtypes": "f16,f32"})
    problem = lower(node, {"x": TensorSpec.dense("f16", (2, 3))})
    assert [o.dtype for o in problem.outputs] == ["f16", "f32"]


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_gemm_with_every_term(ta, tb):
    a = _random(3, 5).T if ta else _random(5, 3)
    b = _random(7, 3) if tb else _random(3, 7)
    attrs = {"trans_a": False, "trans_b": tb, "alpha": 0.5, "beta": 2.0, "act": "relu"}
    problem = _check("GEMM_BIAS_ACT", [a, b, _random(7), _random(5, 7)], attrs)
    # The view's strides became the flag: both operands are read along their contiguous axis.
    assert problem.attr_map["trans_a"] is ta and problem.inputs[0].strides[-1] == 1
    assert problem.attr_map["epilogue"] is not None


@pytest.mark.parametrize("bias", [(), (7,), (1, 7), (5, 1), (5, 7), (2, 1, 7)])
def test_bias_broadcasts_to_the_output(bias):
    problem = _check("GEMM_BIAS_ACT", [_random(2, 5, 3), _random(3, 7), _random(*bias)])
    assert problem.inputs[2].shape == (2, 5, 7)
    assert problem.inputs[1].strides == (0, 7, 1)


def test_matmul_is_a_plain_gemm():
    problem = _check("MATMUL", [_random(2, 1, 5, 3), _random(4, 3, 7)])
    assert problem.op_type == "GEMM_BIAS_ACT" and problem.inputs[2:] == (None, None)
    assert problem.attr_map["epilogue"] == ExprBundle((input(0),))


def test_half_precision_gemm_accumulates_in_single():
    bundle = _check("MATMUL", [_random(5, 3, dtype=np.float16), _random(3, 7, dtype=np.float16)],
                    dtype="f16", tolerance=2e-3).attr_map["epilogue"]
    assert bundle.input_dtypes == ("f32",)


def test_a_given_epilogue_is_kept():
    bundle = parse("t0 = mul(x0, x3); t1 = tanh(t0); t1")
    problem = _check("GEMM_BIAS_ACT", [_random(5, 3), _random(3, 7), None, None, _random(5, 7)],
                     {"epilogue": bundle})
    assert problem.attr_map["epilogue"] == bundle and problem.inputs[4].shape == (5, 7)


def test_vector_operands_are_for_the_compiler_to_reshape():
    with pytest.raises(Unsupported):
        lower(Node("MATMUL", "n", ("a", "b"), ("y",)),
              {"a": TensorSpec.dense("f32", (3,)), "b": TensorSpec.dense("f32", (3, 2))})


def test_windows_are_spelt_out():
    specs = {"x": TensorSpec.dense("f32", (1, 4, 9, 9)),
             "w": TensorSpec.dense("f32", (8, 4, 3, 3))}
    node = Node("CONV2D", "n", ("x", "w"), ("y",), {"auto_pad": "SAME_UPPER", "strides": [2, 2]})
    attrs = lower(node, specs).attr_map
    assert attrs["pads"] == (1, 1, 1, 1) and attrs["dilations"] == (1, 1)
    assert "auto_pad" not in attrs and lower(node, specs).inputs[2] is None
    pool = lower(Node("MAX_POOL", "n", ("x",), ("y",), {"kernel_shape": [2, 2]}), specs)
    assert pool.op_type == "POOL2D" and pool.attr_map["kind"] == "max"
    assert pool.attr_map["strides"] == (1, 1)


def test_negative_axes_are_resolved():
    x = TensorSpec.dense("f32", (2, 3))
    assert lower(Node("CONCAT", "n", ("x", "x"), ("y",), {"axis": -1}), {"x": x}
                 ).attr_map["axis"] == 1
    ids = TensorSpec.dense("i64", (4,))
    problem = lower(Node("GATHER", "n", ("x", "i"), ("y",), {"axis": -2}), {"x": x, "i": ids})
    assert problem.attr_map["axis"] == 0 and problem.outputs[0].shape == (4, 3)


def test_an_unviewable_reshape_asks_for_a_dense_operand():
    with pytest.raises(StrideMismatch):
        lower(Node("RESHAPE", "n", ("x",), ("y",), {"shape": [6]}),
              {"x": TensorSpec("f32", (2, 3), (1, 2))})


def test_strided_operands_are_a_property_of_the_kernel_type():
    assert accepts_strides("ELEMENTWISE") and not accepts_strides("CONV2D")
    assert not accepts_strides("NO_SUCH_TYPE")
