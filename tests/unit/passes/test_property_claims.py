"""What operators claim in the property table holds for random operands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ge2.compiler import opdefs
from ge2.compiler.ir import properties
from ge2.compiler.ir.nodes import Node
from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.kernels.lower import lower
from ge2.contract import DTYPES, numpy_dtype
from ge2.problem import TensorSpec


def claimants(name, **where):
    """Return the operators that claim a property."""
    return [op for op, d in opdefs.OPS.items() if properties.licensed(op, name)
            and all(getattr(d, key) == value for key, value in where.items())]


seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15, deadline=None)


def _dtype(op):
    """Return a dtype of an operator in which laws hold exactly or nearly so."""
    allowed = opdefs.get(op).dtypes
    return next(d for d in ("f64", "i64", "i32", "bool") if d in allowed)


def _draw(rng, dtype, shape):
    if DTYPES[dtype].kind == "float":
        return rng.normal(0, 2, shape).astype(numpy_dtype(dtype))
    return rng.integers(0 if dtype == "bool" else -50, 2 if dtype == "bool" else 50,
                        shape).astype(numpy_dtype(dtype))


def _run(op, arrays, attrs=None):
    return opdefs.reference(op, arrays, attrs or {})[0]


def _close(left, right):
    np.testing.assert_allclose(np.asarray(left, "f8"), np.asarray(right, "f8"), rtol=1e-9,
                               atol=1e-9)


ELEMENTWISE = [op for op in claimants("elementwise") if op != "FUSED_ELEMENTWISE"]
_ATTRS = {"CAST": {"to": "i32"}, "BIT_SHIFT": {"direction": "LEFT"},
          "CLIP": {"min": -1.0, "max": 1.0}}


def _operands(op, rng, shape):
    definition = opdefs.get(op)
    names = [n.rstrip("?*") for n in definition.inputs]
    dtype = _dtype(op)
    arrays = []
    for name in names:
        other = definition.other.get(name)
        kind = dtype if other is None or dtype in other else other[0]
        array = _draw(rng, kind, shape)
        arrays.append(np.abs(array) if op == "BIT_SHIFT" and arrays else array)
    return arrays


@pytest.mark.parametrize("op", ELEMENTWISE)
@few
@given(seeds)
def test_elementwise(op, seed):
    rng = np.random.default_rng(seed)
    arrays = _operands(op, rng, 12)
    order = rng.permutation(12)
    whole = _run(op, arrays, _ATTRS.get(op))
    moved = _run(op, [a[order] for a in arrays], _ATTRS.get(op))
    np.testing.assert_array_equal(whole[order], moved)
    if properties.licensed(op, "bool_result"):
        assert whole.dtype == np.bool_


BINARY = [op for op in ELEMENTWISE if len(opdefs.get(op).inputs) == 2]


@pytest.mark.parametrize("op", [o for o in BINARY if properties.licensed(o, "commutative")])
@few
@given(seeds)
def test_commutative(op, seed):
    a, b = _operands(op, np.random.default_rng(seed), 12)
    np.testing.assert_array_equal(_run(op, [a, b]), _run(op, [b, a]))


@pytest.mark.parametrize("op", [o for o in BINARY if properties.licensed(o, "associative")])
@few
@given(seeds)
def test_associative(op, seed):
    rng = np.random.default_rng(seed)
    a, b = _operands(op, rng, 12)
    c = _operands(op, rng, 12)[0]
    _close(_run(op, [_run(op, [a, b]), c]), _run(op, [a, _run(op, [b, c])]))


def test_what_is_not_claimed_need_not_hold():
    for op in ("SUB", "DIV", "POW", "MOD", "LESS"):
        assert not properties.licensed(op, "commutative")


@pytest.mark.parametrize("op", claimants("idempotent"))
@few
@given(seeds)
def test_idempotent(op, seed):
    once = _run(op, _operands(op, np.random.default_rng(seed), 12))
    np.testing.assert_array_equal(_run(op, [once]), once)


@pytest.mark.parametrize("op", claimants("involution"))
@few
@given(seeds)
def test_involution(op, seed):
    x, = _operands(op, np.random.default_rng(seed), 12)
    np.testing.assert_array_equal(_run(op, [_run(op, [x])]), x)


REDUCTIONS = claimants("commutative", family="row")


@pytest.mark.parametrize("op", REDUCTIONS)
@few
@given(seeds)
def test_reductions_do_not_depend_on_order_or_grouping(op, seed):
    rng = np.random.default_rng(seed)
    x = np.abs(rng.normal(1, 0.3, (4, 12)))
    whole = _run(op, [x], {"axes": [1], "keepdims": False})
    _close(_run(op, [x[:, rng.permutation(12)]], {"axes": [1], "keepdims": False}), whole)
    _close(_run(op, [x.reshape(4, 3, 4)], {"axes": [1, 2], "keepdims": False}), whole)


ROWS = [op for op in claimants("mergeable", family="row")
        if op.startswith("REDUCE") or op in ("SOFTMAX", "LOG_SOFTMAX", "RMS_NORM", "LAYER_NORM",
                                             "ARGMAX", "ARGMIN")]


@pytest.mark.parametrize("op", ROWS)
@few
@given(seeds, st.integers(1, 17))
def test_mergeable(op, seed, n):
    """The state of a row, merged pairwise from states of single elements, finishes right."""
    rng = np.random.default_rng(seed)
    arrays = [np.abs(rng.normal(1, 0.3, (3, n)))]
    if op.endswith("_NORM"):
        arrays += [rng.normal(size=n) for _ in range(1 + (op == "LAYER_NORM"))]
    names = tuple(f"v{i}" for i in range(len(arrays)))
    attrs = {"axes": [1]} if op.startswith("REDUCE") else {}
    attrs |= {"axis": 1} if op.startswith("ARG") else {}
    specs = {v: TensorSpec.dense("f64", a.shape) for v, a in zip(names, arrays, strict=True)}
    row = lower(Node(op, "n", names, ("y",), attrs), specs).attr_map["row"]
    found = evaluate_row(row, arrays[:1], arrays[1:])[0]
    _close(found.reshape(-1), _run(op, arrays, attrs).reshape(-1))


@pytest.mark.parametrize("op", ["SOFTMAX", "LOG_SOFTMAX"])
@few
@given(seeds, st.floats(-50, 50))
def test_shift_invariant(op, seed, shift):
    assert properties.licensed(op, "shift_invariant")
    x = np.random.default_rng(seed).normal(0, 2, (3, 7))
    _close(_run(op, [x + shift]), _run(op, [x]))


# Linear operators on [3, 4] tensors: attributes, and operands that are no data.
LINEAR = {
    "IDENTITY": {}, "NEG": {}, "ADD": {}, "SUB": {}, "SUM": {}, "MEAN": {},
    "REDUCE_SUM": {"axes": [1]}, "REDUCE_MEAN": {"axes": [0]}, "TRANSPOSE": {},
    "RESHAPE": {"shape": [2, 6]}, "FLATTEN": {}, "SQUEEZE": {}, "UNSQUEEZE": {"axes": [0]},
    "EXPAND": {"shape": [2, 3, 4]}, "CONCAT": {"axis": 1}, "FLIP": {"axes": [1]},
    "SLICE": {"starts": [1], "ends": [3]},
}


@pytest.mark.parametrize("op", LINEAR)
@few
@given(seeds, st.floats(-3, 3), st.floats(-3, 3))
def test_linear_in_all_inputs_together(op, seed, a, b):
    assert properties.licensed(op, "linear")
    rng = np.random.default_rng(seed)
    count = len(opdefs.get(op).inputs)
    xs, ys = rng.normal(size=(2, count, 3, 4))
    left = _run(op, list(a * xs + b * ys), LINEAR[op])
    _close(left, a * _run(op, list(xs), LINEAR[op]) + b * _run(op, list(ys), LINEAR[op]))


@few
@given(seeds, st.floats(-3, 3), st.floats(-3, 3))
def test_products_are_linear_in_each_operand(seed, a, b):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 3, 4))
    u, v = rng.normal(size=(2, 4, 5))
    _close(_run("MATMUL", [a * x + b * y, u]),
           a * _run("MATMUL", [x, u]) + b * _run("MATMUL", [y, u]))
    _close(_run("MATMUL", [x, a * u + b * v]),
           a * _run("MATMUL", [x, u]) + b * _run("MATMUL", [x, v]))


@few
@given(seeds, st.integers(1, 5), st.floats(-3, 3))
def test_filters_make_their_own_channel(seed, cut, factor):
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(2, 3, 5, 5)), rng.normal(size=(6, 3, 2, 2))
    parts = [_run("CONV2D", [x, w[:cut]]), _run("CONV2D", [x, w[cut:] * factor])]
    whole = _run("CONV2D", [x, w])
    _close(parts[0], whole[:, :cut])
    _close(parts[1], whole[:, cut:] * factor)


@pytest.mark.parametrize("op", claimants("columnwise", family="gemm"))
@few
@given(seeds, st.integers(1, 5))
def test_columnwise(op, seed, cut):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 6))
    parts = [_run(op, [a, b[:, :cut]]), _run(op, [a, b[:, cut:]])]
    _close(np.concatenate(parts, axis=-1), _run(op, [a, b]))


@pytest.mark.parametrize("op", claimants("transposable"))
@few
@given(seeds)
def test_transposable(op, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 6))
    flags = {"trans_a": True, "trans_b": True}
    _close(_run("GEMM_BIAS_ACT", [a.swapaxes(1, 2), b.swapaxes(1, 2)], flags), _run(op, [a, b]))


@few
@given(st.permutations(range(4)), st.permutations(range(4)))
def test_transposes_compose(first, second):
    assert properties.licensed("TRANSPOSE", "composes")
    x = np.arange(120).reshape(2, 3, 4, 5)
    twice = _run("TRANSPOSE", [_run("TRANSPOSE", [x], {"perm": first})], {"perm": second})
    np.testing.assert_array_equal(
        twice, _run("TRANSPOSE", [x], {"perm": [first[a] for a in second]}))


@few
@given(st.sampled_from([(24,), (4, 6), (2, 12)]), st.sampled_from([(3, 8), (24,), (2, 3, 4)]))
def test_reshapes_compose(first, second):
    assume(first != second)
    x = np.arange(24).reshape(6, 4)
    twice = _run("RESHAPE", [_run("RESHAPE", [x], {"shape": first})], {"shape": second})
    np.testing.assert_array_equal(twice, _run("RESHAPE", [x], {"shape": second}))
