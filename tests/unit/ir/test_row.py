"""Row operators mean what NumPy says, on both of their paths."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.expr import exp, input, maximum
from ge2.compiler.ir.row import row_op
from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_ops import ROW_OPS, build_row_op
from ge2.errors import Invalid

RNG = np.random.default_rng(5)


def _layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


REFERENCES = {
    "softmax": _softmax,
    "log_softmax": lambda x: np.log(_softmax(x)),
    "logsumexp": lambda x: np.log(np.exp(x).sum(-1)),
    "rms_norm": lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w,
    "layer_norm": _layer_norm,
    "variance": lambda x: x.var(-1),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "max": lambda x: x.max(-1),
    "min": lambda x: x.min(-1),
    "prod": lambda x: x.prod(-1),
    "l1": lambda x: np.abs(x).sum(-1),
    "l2": lambda x: np.sqrt((x * x).sum(-1)),
    "sum_square": lambda x: (x * x).sum(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "l2_normalize": lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
    "l1_normalize": lambda x: x / np.abs(x).sum(-1, keepdims=True),
}


@pytest.mark.parametrize("by_stages", [False, True])
@pytest.mark.parametrize("n", [1, 3, 64, 129])
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_matches_numpy(name: str, n: int, by_stages: bool) -> None:
    op = build_row_op(name)
    x = RNG.normal(size=(4, n))
    extras = [RNG.normal(size=n) for _ in range(op.n_extras)]
    found = evaluate_row(op.widened(), [x], extras, by_stages=by_stages)[0]
    np.testing.assert_allclose(found, REFERENCES[name](x, *extras), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("by_stages", [False, True])
def test_softmax_of_infinities(by_stages: bool) -> None:
    inf = np.inf
    x = np.array([[-inf, -inf, -inf], [-inf, 0.0, -inf], [0.0, inf, 1.0], [np.nan, 0.0, 1.0]])
    found = evaluate_row(build_row_op("softmax"), [x], by_stages=by_stages)[0]
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(found[1], [0, 1, 0])
    assert np.isnan(found[2]).all() and np.isnan(found[3]).all()


@pytest.mark.parametrize("by_stages", [False, True])
@pytest.mark.parametrize("n", [3, 100, 4096])
def test_variance_does_not_cancel(n: int, by_stages: bool) -> None:
    x = (1e4 + np.arange(n) * 1e-3).astype("f4")[None]
    found = evaluate_row(build_row_op("variance"), [x], by_stages=by_stages)[0]
    np.testing.assert_allclose(found, x.astype("f8").var(-1), rtol=1e-5)


def test_variance_of_an_outlier_in_front() -> None:
    x = RNG.normal(size=(1, 1000)).astype("f4")
    x[0, 0] = 1e4
    found = evaluate_row(build_row_op("variance"), [x], by_stages=True)[0]
    np.testing.assert_allclose(found, x.astype("f8").var(-1), rtol=1e-4)


def test_max_and_arg_with_nan() -> None:
    x = np.array([[1.0, np.nan, 3.0, np.nan], [2.0, 5.0, 5.0, 1.0]], "f4")
    assert np.isnan(evaluate_row(build_row_op("max"), [x])[0][0])
    np.testing.assert_array_equal(evaluate_row(build_row_op("argmax"), [x])[0], [1, 1])
    last = build_row_op("argmax", last=True)
    np.testing.assert_array_equal(evaluate_row(last, [x])[0], [3, 2])


def test_empty_rows() -> None:
    x = np.zeros((2, 0), "f4")
    assert evaluate_row(build_row_op("sum"), [x])[0].tolist() == [0, 0]
    assert np.isneginf(evaluate_row(build_row_op("max"), [x], by_stages=True)[0]).all()
    assert np.isnan(evaluate_row(build_row_op("mean"), [x])[0]).all()


def test_integers_stay_integers() -> None:
    x = np.array([[2**62, 5, -(2**62)]])
    assert evaluate_row(build_row_op("sum", "i64"), [x])[0].tolist() == [5]
    assert evaluate_row(build_row_op("max", "i64"), [x])[0].tolist() == [2**62]


def test_quantized_rows_come_back() -> None:
    x = RNG.normal(size=(3, 50)).astype("f4")
    x[1] = 0
    codes, scale = evaluate_row(build_row_op("quantize_rows"), [x])
    assert np.abs(codes).max() <= 127
    np.testing.assert_allclose(codes * scale[:, None], x, atol=scale.max() * 0.51)


def test_prologue_and_epilogue_are_substitutions() -> None:
    x, y, w = RNG.normal(size=(3, 33)), RNG.normal(size=(3, 33)), RNG.normal(size=33)
    op = build_row_op("rms_norm").with_prologue((input(0) + input(1),))
    op = op.with_epilogue((maximum(input(0) * input(1), 0.0),), 1)
    assert (op.n_inputs, op.n_extras) == (2, 2)
    found = evaluate_row(op.widened(), [x, y], [w, w])[0]
    np.testing.assert_allclose(found, np.maximum(REFERENCES["rms_norm"](x + y, w) * w, 0))


def test_epilogue_of_a_pivoting_operator() -> None:
    x, w = RNG.normal(size=(3, 33)), RNG.normal(size=33)
    op = build_row_op("layer_norm").with_epilogue((exp(input(0)) + input(1),), 1)
    found = evaluate_row(op.widened(), [x], [w, w, w], by_stages=True)[0]
    np.testing.assert_allclose(found, np.exp(_layer_norm(x, w, w)) + w)


def test_equal_declarations_are_equal() -> None:
    assert build_row_op.__wrapped__("softmax") == build_row_op.__wrapped__("softmax")
    assert len({build_row_op(name).digest for name in ROW_OPS}) == len(ROW_OPS)


def test_wrong_counts_are_refused() -> None:
    with pytest.raises(Invalid, match="merge returns the wrong number"):
        row_op("broken", state={"a": 0.0}, merge=lambda a, b: [a.a + b.a, a.a],
               update=lambda s, r: [s.a + r.x], finish=lambda s, r: s.a, outputs=("scalar",))
