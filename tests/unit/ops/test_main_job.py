"""The operators of the main job: inference on ints and symbols, references against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import TensorType, symbol
from ge2.contract import numpy_dtype
from ge2.errors import DtypeMismatch, GraphError, MissingInput, ShapeMismatch

B = symbol("B")
RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def shape_of(op: str, *shapes: object, dtype: str = "f32", **attrs: object) -> tuple[object, ...]:
    types = [None if s is None else TensorType(dtype, s) for s in shapes]
    return opdefs.infer(op, types, attrs)[0].shape


def test_symbolic_shapes_go_through_inference():
    assert shape_of("MATMUL", (B, 4, 8), (8, 3)) == (B, 4, 3)
    assert shape_of("GEMM_BIAS_ACT", (B, 8), (3, 8), (3,), trans_b=True) == (B, 3)
    assert shape_of("ADD", (B, 1, 4), (5, 1)) == (B, 5, 4)
    assert shape_of("RESHAPE", (B, 8, 4), shape=[0, -1]) == (B, 32)
    assert shape_of("RESHAPE", (B, 8, 4), shape=[-1, 4]) == (B * 8, 4)
    assert shape_of("RESHAPE", (B * 8, 4), shape=[-1, 8, 4]) == (B, 8, 4)
    assert shape_of("CONCAT", (B, 4), (2, 4), axis=0) == (B + 2, 4)
    assert shape_of("SLICE", (B, 4), starts=[1], ends=[2**31 - 1]) == (B - 1, 4)
    assert shape_of("SLICE", (B, 4), starts=[-1], ends=[-(2**31)], steps=[-1]) == (B, 4)
    assert shape_of("CONV2D", (B, 3, B, 8), (6, 3, 3, 3), pads=[1, 1, 1, 1]) == (B, 6, B, 8)
    assert shape_of("MAX_POOL", (1, 3, B * 4, 8), kernel_shape=[2, 2], strides=[2, 2])[2] == (
        (B * 4 - 2) // 2 + 1)


@pytest.mark.parametrize(("op", "shapes", "attrs", "error", "text"), [
    ("MATMUL", [(2, 3), (4, 5)], {}, ShapeMismatch, "inner extents"),
    ("ADD", [(B,), (3,)], {}, ShapeMismatch, "broadcast"),
    ("RELU", [(2,), (2,)], {}, GraphError, "takes 1 inputs"),
    ("ADD", [(2,)], {}, MissingInput, "'b'"),
    ("SOFTMAX", [(2,)], {"axs": 1}, GraphError, "Did you mean axis"),
    ("SOFTMAX", [(2,)], {"axis": 1}, GraphError, "out of range"),
    ("SOFTMAX", [(2,)], {"axis": "x"}, GraphError, "wrong kind"),
    ("RESHAPE", [(6,)], {"shape": [4, -1]}, ShapeMismatch, "divide"),
    ("GEMM_BIAS_ACT", [(2, 3), (3, 4)], {"act": "geluu"}, GraphError, "unknown value"),
])
def test_bad_calls_are_named(op, shapes, attrs, error, text):
    with pytest.raises(error, match=text):
        shape_of(op, *shapes, **attrs)


def test_unknown_operator_names_near_matches():
    with pytest.raises(GraphError, match="SOFTMAX"):
        opdefs.get("SOFTMX")


def test_dtypes_are_refused_or_must_agree():
    with pytest.raises(DtypeMismatch, match="SOFTMAX cannot take x of dtype i32"):
        shape_of("SOFTMAX", (2, 3), dtype="i32")
    with pytest.raises(DtypeMismatch, match="differs in dtype"):
        opdefs.infer("ADD", [TensorType("f32", (2,)), TensorType("f16", (2,))], {})


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_types_are_computed_in_f32_and_rounded_once(dtype):
    kind = numpy_dtype(dtype)
    a, b = f32(33, 65).astype(kind), f32(65, 9).astype(kind)
    (got,) = opdefs.reference("MATMUL", [a, b], {})
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(kind)
    assert got.dtype == kind
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))


def test_gemm_bias_act_forms():
    a, b = f32(2, 5, 7), f32(2, 4, 7)
    product = a @ b.swapaxes(1, 2)
    for bias in (f32(), f32(4), f32(1, 4), f32(5, 1), f32(5, 4)):
        c = f32(2, 5, 4)
        (got,) = opdefs.reference("GEMM_BIAS_ACT", [a, b, bias, c], {
            "trans_b": True, "alpha": 0.5, "beta": 2.0, "act": "relu"})
        np.testing.assert_allclose(
            got, np.maximum(0.5 * product + 2 * c + bias, 0), rtol=1e-5, atol=1e-5)


def test_conv2d_against_the_definition():
    x, w, bias = f32(2, 4, 7, 6), f32(6, 2, 3, 2), f32(6)
    (got,) = opdefs.reference("CONV2D", [x, w, bias], {
        "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2})
    padded = np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)])
    wanted = np.zeros_like(got)
    for o in range(6):
        first = 2 * (o // 3)
        for i in range(got.shape[2]):
            for j in range(got.shape[3]):
                patch = padded[:, first:first + 2, 2 * i:2 * i + 3, j:j + 3:2]
                wanted[:, o, i, j] = (patch * w[o]).sum(axis=(1, 2, 3)) + bias[o]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_nan_and_infinity_rules():
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    for op in ("RELU", "RELU6", "HARD_SWISH", "CLIP", "LEAKY_RELU", "THRESHOLDED_RELU", "SHRINK"):
        (got,) = opdefs.reference(op, [np.array([nan, 1], np.float32)],
                                  {"min": 0.0} if op == "CLIP" else {})
        assert np.isnan(got[0]) and not np.isnan(got[1]), op
    rows = np.array([[-inf, -inf], [-inf, 1]], np.float32)
    (soft,) = opdefs.reference("SOFTMAX", [rows], {})
    assert np.isnan(soft[0]).all()
    np.testing.assert_array_equal(soft[1], [0, 1])
    mask = np.array([[False, False], [True, False]])
    (masked,) = opdefs.reference("MASKED_SOFTMAX", [rows, mask], {})
    np.testing.assert_array_equal(masked[0], [0, 0])
    (top,) = opdefs.reference("MAX_POOL", [np.array([[[1, nan, 2, 3]]], np.float32)],
                              {"kernel_shape": [2], "strides": [2]})
    assert np.isnan(top[0, 0, 0]) and top[0, 0, 1] == 3


def test_empty_tensors():
    (total,) = opdefs.reference("REDUCE_SUM", [f32(3, 0)], {"axes": [1], "keepdims": False})
    np.testing.assert_array_equal(total, np.zeros(3))
    (top,) = opdefs.reference("REDUCE_MAX", [f32(3, 0)], {"axes": [1]})
    assert np.isneginf(top).all()
    assert opdefs.reference("SOFTMAX", [f32(3, 0)], {})[0].shape == (3, 0)
    assert opdefs.reference("SOFTMAX", [f32(0, 3)], {})[0].shape == (0, 3)
    assert opdefs.reference("MATMUL", [f32(3, 0), f32(0, 2)], {})[0].sum() == 0
    assert opdefs.reference("GATHER", [f32(0, 2), np.zeros((0,), np.int64)], {})[0].shape == (0, 2)
    assert opdefs.reference("CONV2D", [f32(0, 2, 5, 5), f32(3, 2, 3, 3)], {})[0].shape == (
        0, 3, 3, 3)
    assert opdefs.reference("LAYER_NORM", [f32(0, 3), f32(3)], {})[0].shape == (0, 3)
