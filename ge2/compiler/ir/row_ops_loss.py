"""Row operators of training: a loss and its gradient in one pass over the logits."""

from __future__ import annotations

import math
from dataclasses import replace

from .expr import Expr, const, coord, exp, input, log, maximum, reciprocal, where
from .row import RowOp, RowValues, State, row_op


def _safe(m: Expr) -> Expr:
    return where(m.eq(const(-math.inf, m.dtype)), const(0.0, m.dtype), m)


def cross_entropy(dtype: str, gradient: bool = True) -> RowOp:
    """Return log(sum(exp(x))) - x[label] and, beside it, softmax(x) - one_hot(label).

    Operands x and label (i64, one per row). A label outside the row has loss and gradient 0.
    """
    def hit(r: RowValues) -> Expr:
        return r.xs[1]

    def picked(r: RowValues) -> Expr:
        return where(hit(r) > 0.0, r.x, const(0.0, dtype))

    def merge(a: State, b: State) -> tuple[Expr, ...]:
        m = maximum(a.m, b.m)
        total = a.s * exp(a.m - _safe(m)) + b.s * exp(b.m - _safe(m))
        return m, total, a.x + b.x, a.hits + b.hits

    def update(s: State, r: RowValues) -> tuple[Expr, ...]:
        m = maximum(s.m, r.x)
        total = s.s * exp(s.m - _safe(m)) + exp(r.x - _safe(m))
        return m, total, s.x + picked(r), s.hits + hit(r)

    def finish(s: State, r: RowValues) -> list[Expr]:
        nothing = const(0.0, dtype)
        loss = where(s.hits > 0.0, _safe(s.m) + log(s.s) - s.x, nothing)
        slope = exp(r.x - _safe(s.m)) * reciprocal(s.s) - hit(r)
        return [loss, where(s.hits > 0.0, slope, nothing)] if gradient else [loss]

    base = row_op(
        "cross_entropy", dtype=dtype, inputs=2, state={"m": -math.inf, "s": 0.0, "x": 0.0,
                                                       "hits": 0.0},
        update=update, merge=merge, finish=finish,
        stages=[lambda v, r: [("max_number", r.x)],
                lambda v, r: [("sum", exp(r.x - _safe(v[0]))), ("sum", picked(r)),
                              ("sum", hit(r))]],
        collect=lambda v, n: v, outputs=("scalar", "row") if gradient else ("scalar",))
    one, zero = const(1.0, dtype), const(0.0, dtype)
    is_label = where(input(1, "i64").eq(coord(0)), one, zero)
    return replace(base.with_prologue([input(0, dtype), is_label]), name="cross_entropy")
