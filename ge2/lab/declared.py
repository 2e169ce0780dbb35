"""Operators that exist nowhere else, declared in a few lines and composed into kernels.

They show what the basis is for, and `ge2 lab bench` measures compositions on them.
"""

from __future__ import annotations

from functools import cache

from ..compiler.ir.expr import Expr, const, exp, log, maximum, sqrt
from ..compiler.ir.row import RowOp, State, row_op


@cache
def product_logsumexp() -> RowOp:
    """log(sum(exp(row))) of each row of a product: the product is not stored."""
    return row_op(
        "product_logsumexp", state={"m": -1e30, "s": 0.0}, outputs=("scalar",),
        single=lambda r: (r.x, const(1.0, "f32")),
        merge=lambda a, b: (maximum(a.m, b.m), a.s * exp(a.m - maximum(a.m, b.m))
                            + b.s * exp(b.m - maximum(a.m, b.m))),
        finish=lambda s, r: s.m + log(s.s))


@cache
def weighted_moments() -> RowOp:
    """Mean and variance of values under softmax weights of scores, in one pass over both."""
    def merge(a: State, b: State) -> tuple[Expr, ...]:
        m = maximum(a.m, b.m)
        keep_a, keep_b = exp(a.m - m), exp(b.m - m)
        left, right = a.l * keep_a, b.l * keep_b
        total = left + right
        share = right / maximum(total, 1e-30)
        apart = b.mean - a.mean
        return (m, total, a.mean + apart * share,
                a.m2 * keep_a + b.m2 * keep_b + apart * apart * left * share)

    return row_op(
        "weighted_moments", state={"m": -1e30, "l": 0.0, "mean": 0.0, "m2": 0.0}, inputs=2,
        outputs=("scalar", "scalar"), merge=merge,
        single=lambda r: (r.xs[0], const(1.0, "f32"), r.xs[1], const(0.0, "f32")),
        finish=lambda s, r: (s.mean, s.m2 / s.l))


@cache
def normalized_distance() -> RowOp:
    """|a - b| / (|a| + |b|) of two rows, by Euclidean norms."""
    def square(value: Expr) -> Expr:
        return value * value

    return row_op(
        "normalized_distance", state={"apart": 0.0, "a": 0.0, "b": 0.0}, inputs=2,
        outputs=("scalar",),
        update=lambda s, r: (s.apart + square(r.xs[0] - r.xs[1]), s.a + square(r.xs[0]),
                             s.b + square(r.xs[1])),
        merge=lambda a, b: (a.apart + b.apart, a.a + b.a, a.b + b.b),
        finish=lambda s, r: sqrt(s.apart) / (sqrt(s.a) + sqrt(s.b)))
