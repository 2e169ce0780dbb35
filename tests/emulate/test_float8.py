"""8-bit floats: every code, ties and what lies beyond the range, as ml_dtypes has them."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.expr import ExprBundle, cast, input
from ge2.contract import FLOAT8_MAX, numpy_dtype
from ge2.problem import Problem, TensorSpec
from ge2.runtime import emulate

TYPES = sorted(FLOAT8_MAX)


def convert(x: np.ndarray, dtype: str, out: str, rounds: bool = False) -> np.ndarray:
    """Return x in another element type, as an elementwise kernel converts."""
    value = input(0, "f32")
    bundle = ExprBundle((cast(value, out) if rounds else value,))
    problem = Problem("ELEMENTWISE", (TensorSpec.dense(dtype, x.shape),),
                      (TensorSpec.dense("f32" if rounds else out, x.shape),), (("expr", bundle),))
    return emulate.run_problem("elementwise_vec", problem, [x])[0]


def samples(dtype: str) -> np.ndarray:
    """Return all values, the middles between neighbours and what is beside them, and extremes."""
    codes = np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype)).astype(np.float32)
    finite = np.unique(codes[np.isfinite(codes)])
    middles = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(s * np.inf)) for s in (-1, 1)]
    most = FLOAT8_MAX[dtype]
    extremes = np.array([most * 1.01, most * 1e6, np.inf, np.nan, 1e-30, 1e-45], np.float32)
    return np.concatenate([finite, middles, *beside, extremes, -extremes]).astype(np.float32)


def wanted(x: np.ndarray, dtype: str) -> np.ndarray:
    return np.clip(x, -FLOAT8_MAX[dtype], FLOAT8_MAX[dtype]).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_code_becomes_its_value(dtype: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype))
    np.testing.assert_array_equal(convert(codes, dtype, "f32"), codes.astype(np.float32))


@pytest.mark.parametrize("dtype", TYPES)
def test_floats_round_to_nearest_even_and_saturate(dtype: str) -> None:
    x = samples(dtype)
    expected = wanted(x, dtype)
    for found in (convert(x, "f32", dtype), opdefs.reference("CAST", [x], {"to": dtype})[0]):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
        np.testing.assert_array_equal(np.signbit(found.astype(np.float32))[x == x],
                                      np.signbit(expected.astype(np.float32))[x == x])
    np.testing.assert_array_equal(convert(x, "f32", dtype, rounds=True),
                                  expected.astype(np.float32))
