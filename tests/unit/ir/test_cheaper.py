"""Cheaper formulas have the value of the exact ones, with fewer operations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ge2.compiler.ir.expr import Expr, erf, evaluate, exp, input, sigmoid, tanh, walk
from ge2.compiler.ir.expr.cheaper import cheaper
from ge2.compiler.opdefs.activations import gelu, gelu_tanh

X = np.concatenate([np.linspace(-30, 30, 20001), [0.0, -0.0, 1e-30, np.inf, -np.inf, np.nan],
                    np.geomspace(1e-8, 1e4, 500), -np.geomspace(1e-8, 1e4, 500)]).astype("f4")


@pytest.mark.parametrize("build", [
    gelu, gelu_tanh, sigmoid, lambda x: x * sigmoid(x), lambda x: 1.0 + tanh(x),
    lambda x: erf(x * 0.5) + 1.0, lambda x: x / (1.0 + exp(-x)), lambda x: exp(x * 0.25) * 3.0,
    lambda x: (x * 0.5) * (x * 4.0), lambda x: tanh(x) * 2.0 + 2.0,
])
def test_values_stay(build: Callable[[Expr], Expr]) -> None:
    exact = build(input(0))
    with np.errstate(all="ignore"):
        (wanted,) = evaluate([exact], [X])
        (found,) = evaluate(cheaper([exact]), [X])
    finite = np.isfinite(wanted)
    # -30 to 30 and beyond: the smallest results of sums with 1 are rounding of that 1.
    scale = np.maximum(np.abs(wanted[finite]), np.maximum(np.abs(X[finite]), 1.0) * 2.0**-4)
    assert (np.abs(found[finite] - wanted[finite]) / scale).max() < 2.0**-17
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))


def test_gelu_needs_no_branch_for_small_values() -> None:
    ops = [n.op for n in walk(cheaper([gelu_tanh(input(0))])) if n.args]
    assert len(ops) <= 9 and "tanh" not in ops and "exp2" in ops


def test_factors_meet_unless_they_overflow() -> None:
    (folded,) = cheaper([(input(0) * 0.5) * 2.0])
    assert folded is input(0)
    (kept,) = cheaper([(input(0) * 1e-20) * 1e30])
    assert sum(n.op == "mul" for n in walk([kept])) == 2


def test_other_types_stay() -> None:
    wide = exp(input(0, "f64")) + 1.0
    assert cheaper([wide]) == (wide,)
