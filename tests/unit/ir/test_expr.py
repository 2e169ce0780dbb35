"""Expressions: identity, text, evaluation, derivatives."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ge2.compiler.ir import expr as E
from ge2.compiler.ir.scalar_ops import SCALAR_OPS
from ge2.errors import GraphError, Invalid

X, Y = E.input(0), E.input(1)


def test_equal_expressions_are_one_object():
    assert E.exp(X) + Y is E.exp(E.input(0)) + E.input(1)
    assert X + Y is not Y + X


def test_constants_tell_signed_zeros_and_join_nans():
    assert E.const(0.0) is not E.const(-0.0)
    assert E.const(math.nan) is E.const(float("nan"))
    assert E.const(1, "i32") is not E.const(1.0, "f32")
    assert E.const(0.1) is E.const(float(np.float32(0.1)))


@pytest.mark.parametrize("build", [
    lambda: X + E.input(1, "f64"),
    lambda: E.unary("exp", E.input(0, "i32")),
    lambda: E.unary("exq", X),
    lambda: E.select(X, X, X),
    lambda: E.const(2**31, "i32"),
    lambda: E.input(0, "f16"),
    lambda: E.ExprBundle(()),
    lambda: E.ExprBundle((E.input(0, "f32"), E.input(0, "i32"))),
])
def test_wrong_types_are_refused(build):
    with pytest.raises(Invalid):
        build()


def test_a_rounding_cast_keeps_the_compute_dtype_and_does_not_repeat():
    rounded = E.cast(X, "f16")
    assert rounded.dtype == "f32"
    assert E.cast(rounded, "f16") is rounded
    assert E.cast(E.input(0, "i32"), "u8").dtype == "i32"


def _leaves():
    numbers = st.floats(width=32, allow_nan=True, allow_infinity=True).map(E.const)
    return st.one_of(numbers, st.integers(0, 2).map(E.input), st.integers(0, 1).map(E.scalar))


def _grow(children):
    one = st.sampled_from([n for n, r in SCALAR_OPS.items()
                           if r.arity == 1 and "f" in r.domain and r.result == "same"])
    two = st.sampled_from(["add", "sub", "mul", "div", "max", "min", "pow", "mod"])
    return st.one_of(
        st.builds(E.unary, one, children),
        st.builds(E.binary, two, children, children),
        st.builds(lambda a, b, c: E.where(a < b, c, a), children, children, children),
        children.map(lambda x: E.cast(x, "f16")),
    )


expressions = st.recursive(_leaves(), _grow, max_leaves=12)


@given(st.lists(expressions, min_size=1, max_size=3))
def test_text_reads_back_to_the_same_objects(outputs):
    bundle = E.ExprBundle(tuple(outputs))
    again = E.parse(bundle.text)
    assert all(a is b for a, b in zip(again.outputs, bundle.outputs, strict=True))
    assert again == bundle and again.digest == bundle.digest and again.text == bundle.text


def test_text_covers_every_leaf_and_dtype():
    text = ("t0 = cast_f32(c1); t1 = add(x0, t0); t2 = gt(t1, 0.5); t3 = select(t2, t1, -inf); "
            "t4 = mul(x1:i64, -3:i64); t5 = logical_and(t2, true); t6 = mul(s0:f64, 1e-300:f64); "
            "t3, t4, t5, t6, nan")
    assert E.parse(text).text == text


@pytest.mark.parametrize("text", [
    "t0 = system(x0); t0", "t0 = exp(x0, x1); t0", "t9", "t0 = exp(x0) t0", "y0", "",
    "t0 = cast_f99(x0); t0", "t0 = exp(x0:i32); t0", "x0:f16",
])
def test_malformed_text_is_a_graph_error(text):
    with pytest.raises(GraphError):
        E.parse(text)


def test_interned_bundles_come_back_by_digest():
    bundle = E.ExprBundle((E.tanh(X),))
    assert E.lookup(E.intern(bundle)) == bundle
    with pytest.raises(Invalid):
        E.lookup(12345)


def test_bundle_knows_its_inputs():
    bundle = E.ExprBundle((E.input(2, "i32"), X))
    assert bundle.n_inputs == 3
    assert bundle.input_dtypes == ("f32", None, "i32")


@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_propagates_from_both_sides(op):
    nan = np.float32("nan")
    for a, b in ((nan, 1.0), (1.0, nan)):
        assert np.isnan(E.evaluate([E.binary(op, X, Y)], [a, b])[0])
    assert np.isnan(E.evaluate([E.clip(X, 0.0, 1.0)], [nan])[0])


def test_erf_agrees_with_the_standard_library():
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, -0.0, np.inf, -np.inf]])
    expected = np.array([math.erf(v) for v in x])
    found = E.evaluate([E.erf(E.input(0, "f64"))], [x])[0]
    np.testing.assert_allclose(found, expected, rtol=5e-16, atol=0)
    assert np.isnan(E.evaluate([E.erf(X)], [np.nan])[0])


def test_integer_division_truncates_and_survives_zero():
    a, b = E.input(0, "i32"), E.input(1, "i32")
    left = np.array([7, -7, 7, -7, 5], "i4")
    right = np.array([2, 2, -2, -2, 0], "i4")
    quotient, remainder = E.evaluate([a / b, E.fmod(a, b)], [left, right])
    assert quotient.tolist() == [3, -3, -3, 3, 0]
    assert remainder.tolist() == [1, -1, 1, -1, 0]


def test_casts_round_saturate_and_wrap():
    half = E.evaluate([E.cast(X, "f16")], [[1.0 + 2**-12, 70000.0]])[0]
    assert half.dtype == np.float32 and half.tolist() == [1.0, math.inf]
    whole = E.evaluate([E.cast(X, "i32")], [[-1.9, 3e9, -3e9, math.nan]])[0]
    assert whole.tolist() == [-1, 2**31 - 1, -(2**31), 0]
    byte = E.evaluate([E.cast(E.input(0, "i32"), "u8")], [[257, -1]])[0]
    assert byte.tolist() == [1, 255] and byte.dtype == np.int32


_POINTS = {"acosh": (1.5, 3.0), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8), "atanh": (-0.8, 0.8)}


@pytest.mark.parametrize("op", [n for n, r in SCALAR_OPS.items()
                                if "f" in r.domain and r.result == "same"])
def test_derivative_matches_central_differences(op):
    row = SCALAR_OPS[op]
    args = [E.input(i, "f64") for i in range(row.arity)]
    low, high = _POINTS.get(op, (0.3, 2.2))
    points = np.random.default_rng(0).uniform(low, high, (2, 20))
    function = args[0].apply(op, *args[1:])
    for wrt in range(row.arity):
        step = np.zeros((2, 1))
        step[wrt] = 1e-6
        up, down = (E.evaluate([function], list(points + s))[0] for s in (step, -step))
        found = E.evaluate([E.differentiate(function, wrt)], list(points))[0]
        np.testing.assert_allclose(found, (up - down) / 2e-6, rtol=1e-6, atol=1e-8)


def test_derivative_goes_through_select_and_sums_over_uses():
    x = E.input(0, "f64")
    function = E.where(x > 0.0, x * x, -x) + x
    found = E.evaluate([E.differentiate(function, 0)], [[3.0, -3.0]])[0]
    assert found.tolist() == [7.0, 0.0]


def test_derivatives_share_instead_of_exploding():
    value = X
    for _ in range(60):
        value = E.tanh(value) * value
    assert len(E.walk([E.differentiate(value, 0)])) < 1000


def test_long_chains_need_no_recursion():
    value = X
    for _ in range(20_000):
        value = value + Y
    start = time.perf_counter()
    bundle = E.ExprBundle((value,))
    assert E.parse(bundle.text) == bundle
    assert E.evaluate(bundle.outputs, [1.0, 2.0])[0] == 40001.0
    assert len(E.render_c(bundle.outputs, ["x", "y"]).lines) == 20_000
    assert time.perf_counter() - start < 5


def test_widen_computes_in_double_without_half_rounding():
    narrow = E.ExprBundle((E.cast(E.exp(X) * E.const(0.5), "f16"),))
    found = E.evaluate(E.widen(narrow).outputs, [np.float64(1.0)])[0]
    assert found.dtype == np.float64
    assert found == math.exp(1.0) * 0.5


def test_substitute_replaces_inputs_at_once():
    swapped = E.substitute([X - Y], {0: Y, 1: X})[0]
    assert swapped is Y - X
    assert E.inputs_of([E.input(4) * X]) == [0, 4]


@given(a=st.floats(width=32), b=st.floats(width=32), c=st.floats(width=32))
def test_claimed_laws_hold_exactly_for_order_free_primitives(a, b, c):
    for name in ("max", "min"):
        row = SCALAR_OPS[name]
        left = row.numpy(row.numpy(np.float32(a), np.float32(b)), np.float32(c))
        right = row.numpy(np.float32(a), row.numpy(np.float32(b), np.float32(c)))
        assert left == right or (np.isnan(left) and np.isnan(right))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1),
       st.integers(-(2**31), 2**31 - 1))
def test_claimed_laws_hold_for_integers(a, b, c):
    x, y, z = (np.asarray([v], "i4") for v in (a, b, c))
    for row in SCALAR_OPS.values():
        if row.arity == 2 and "i" in row.domain:
            if "commutative" in row.properties:
                assert (row.numpy(x, y) == row.numpy(y, x)).all(), row.name
            if "associative" in row.properties:
                left, right = row.numpy(row.numpy(x, y), z), row.numpy(x, row.numpy(y, z))
                assert (left == right).all(), row.name
            if "idempotent" in row.properties:
                assert (row.numpy(x, x) == x).all(), row.name
