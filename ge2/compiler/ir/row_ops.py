"""The built-in row operators: one declaration each, made for a compute dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ...errors import Invalid, near_matches
from .expr import (
    Expr,
    absolute,
    cast,
    const,
    exp,
    is_nan,
    log,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    reciprocal,
    round_even,
    rsqrt,
    sqrt,
    where,
)
from .row import RowOp, RowValues, State, row_op
from .row_ops_loss import cross_entropy

LOWEST: dict[str, float] = {"f32": -math.inf, "f64": -math.inf, "i32": -(2**31), "i64": -(2**63)}
HIGHEST: dict[str, float] = {"f32": math.inf, "f64": math.inf, "i32": 2**31 - 1, "i64": 2**63 - 1}


def _safe(m: Expr) -> Expr:
    """Return m, or 0 where m is -inf: exp(-inf - 0) is 0, exp(-inf - -inf) would be NaN."""
    return where(m.eq(const(-math.inf, m.dtype)), const(0.0, m.dtype), m)


def _max_and_sum(name: str, dtype: str, finish: Callable[[State, RowValues], Expr],
                 output: str = "row") -> RowOp:
    """Return an operator over (maximum, sum of exp(x - maximum)), rescaled as the maximum grows."""
    def merge(a: State, b: State) -> tuple[Expr, Expr]:
        m = maximum(a.m, b.m)
        return m, a.s * exp(a.m - _safe(m)) + b.s * exp(b.m - _safe(m))

    def update(s: State, r: RowValues) -> tuple[Expr, Expr]:
        m = maximum(s.m, r.x)
        return m, s.s * exp(s.m - _safe(m)) + exp(r.x - _safe(m))

    return row_op(
        name, dtype=dtype, state={"m": -math.inf, "s": 0.0}, update=update, merge=merge,
        stages=[lambda v, r: [("max_number", r.x)],
                lambda v, r: [("sum", exp(r.x - _safe(v[0])))]],
        collect=lambda v, n: v, finish=finish, outputs=(output,))


def softmax(dtype: str) -> RowOp:
    """exp(x - max) / sum; an all -inf row is NaN, as in NumPy and torch."""
    # The same exp(x - m) as in the sum, so that a kernel that holds the row can keep it; a sum of 0
    # makes the all -inf row NaN.
    return _max_and_sum("softmax", dtype, lambda s, r: exp(r.x - _safe(s.m)) * reciprocal(s.s))


def log_softmax(dtype: str) -> RowOp:
    """x - max - log(sum)."""
    return _max_and_sum("log_softmax", dtype, lambda s, r: (r.x - s.m) - log(s.s))


def logsumexp(dtype: str) -> RowOp:
    """max + log(sum); -inf for an all -inf row."""
    return _max_and_sum("logsumexp", dtype, lambda s, r: _safe(s.m) + log(s.s), "scalar")


def _from_first(r: RowValues) -> Expr:
    """Return x relative to the row's first element, where the operator pivots."""
    return r.x - r.first if r.firsts else r.x


def _moments(name: str, dtype: str, finish: Callable[[State, RowValues], Any], *,
             outputs: tuple[str, ...], extras: int = 0, pivot: bool = True) -> RowOp:
    """Return an operator over (count, mean, sum of squared deviations) of x - first.

    Relative to the row's first element neither large offsets nor outliers cancel: the error is
    that of the spread, not of the values. Elements of 16 bits need no pivot: values that differ at
    all differ by 2^-11 of their size or more, and equal ones add up without rounding.
    """
    def merge(a: State, b: State) -> tuple[Expr, Expr, Expr]:
        count = a.count + b.count
        share = b.count * reciprocal(maximum(count, 1.0))
        delta = b.mean - a.mean
        return count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * (a.count * share)

    return row_op(
        name, dtype=dtype, state={"count": 0.0, "mean": 0.0, "m2": 0.0}, merge=merge,
        single=lambda r: (const(1.0, dtype), _from_first(r), const(0.0, dtype)),
        stages=[lambda v, r: [("sum", _from_first(r), lambda total, n: total * reciprocal(n))],
                lambda v, r: [("sum", _square(_from_first(r) - v[0]))]],
        collect=lambda v, n: (n, v[0], v[1]), finish=finish, outputs=outputs, extras=extras,
        pivot=pivot)


def _square(x: Expr) -> Expr:
    return x * x


def layer_norm(dtype: str, epsilon: float = 1e-5, scale: bool = True, bias: bool = True,
               statistics: bool = False, pivot: bool = True) -> RowOp:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias; optionally mean and 1/std as well."""
    def finish(s: State, r: RowValues) -> list[Expr]:
        inverse = rsqrt(s.m2 * reciprocal(r.n) + epsilon)
        y = (_from_first(r) - s.mean) * inverse
        if scale:
            y = y * r.extras[0]
        if bias:
            y = y + r.extras[-1]
        return [y, s.mean + r.first if pivot else s.mean, inverse] if statistics else [y]

    outputs = ("row", "scalar", "scalar") if statistics else ("row",)
    return _moments("layer_norm", dtype, finish, outputs=outputs, extras=scale + bias,
                    pivot=pivot)


def variance(dtype: str, correction: float = 0.0) -> RowOp:
    """Mean squared deviation, or divided by n - correction."""
    return _moments("variance", dtype, lambda s, r: s.m2 / (r.n - correction),
                    outputs=("scalar",))


_JOINS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "sum": lambda a, b: a + b,
    "max": maximum,
    "min": minimum,
}


def _accumulate(name: str, dtype: str, combine: str, element: Callable[[Expr], Expr],
                finish: Callable[[State, RowValues], Any], *, init: float | None = None,
                outputs: tuple[str, ...] = ("scalar",), extras: int = 0, inputs: int = 1,
                ) -> RowOp:
    """Return an operator over one sum, maximum or minimum of element(x)."""
    join = _JOINS[combine]
    start = {"sum": 0, "max": LOWEST[dtype], "min": HIGHEST[dtype]}[combine]
    return row_op(
        name, dtype=dtype, state={"acc": start if init is None else init},
        update=lambda s, r: [join(s.acc, element(r.x))],
        merge=lambda a, b: [join(a.acc, b.acc)],
        stages=[lambda v, r: [(combine, element(r.x))]], collect=lambda v, n: v,
        finish=finish, outputs=outputs, extras=extras, inputs=inputs)


def _same(x: Expr) -> Expr:
    return x


def reduce_sum(dtype: str) -> RowOp:
    """Sum; 0 for an empty row."""
    return _accumulate("sum", dtype, "sum", _same, lambda s, r: s.acc)


def reduce_mean(dtype: str) -> RowOp:
    """Sum / n; NaN for an empty row of floats."""
    return _accumulate("mean", dtype, "sum", _same, lambda s, r: s.acc / r.n)


def reduce_max(dtype: str) -> RowOp:
    """Maximum; NaN if any element is."""
    return _accumulate("max", dtype, "max", _same, lambda s, r: s.acc)


def reduce_min(dtype: str) -> RowOp:
    """Minimum; NaN if any element is."""
    return _accumulate("min", dtype, "min", _same, lambda s, r: s.acc)


def reduce_l1(dtype: str) -> RowOp:
    """Sum of absolute values."""
    return _accumulate("l1", dtype, "sum", absolute, lambda s, r: s.acc)


def reduce_l2(dtype: str) -> RowOp:
    """Square root of the sum of squares."""
    return _accumulate("l2", dtype, "sum", _square, lambda s, r: sqrt(s.acc))


def sum_square(dtype: str) -> RowOp:
    """Sum of squares."""
    return _accumulate("sum_square", dtype, "sum", _square, lambda s, r: s.acc)


def log_sum(dtype: str) -> RowOp:
    """Logarithm of the sum."""
    return _accumulate("log_sum", dtype, "sum", _same, lambda s, r: log(s.acc))


def reduce_prod(dtype: str) -> RowOp:
    """Product; 1 for an empty row."""
    return row_op("prod", dtype=dtype, state={"acc": 1}, outputs=("scalar",),
                  update=lambda s, r: [s.acc * r.x], merge=lambda a, b: [a.acc * b.acc],
                  finish=lambda s, r: s.acc)


def rms_norm(dtype: str, epsilon: float = 1e-5, scale: bool = True) -> RowOp:
    """x / sqrt(mean(x * x) + epsilon) * scale."""
    def finish(s: State, r: RowValues) -> Expr:
        y = r.x * rsqrt(s.acc * reciprocal(r.n) + epsilon)
        return y * r.extras[0] if scale else y

    return _accumulate("rms_norm", dtype, "sum", _square, finish, outputs=("row",),
                       extras=int(scale))


def l2_normalize(dtype: str) -> RowOp:
    """x / sqrt(sum(x * x))."""
    return _accumulate("l2_normalize", dtype, "sum", _square, lambda s, r: r.x / sqrt(s.acc),
                       outputs=("row",))


def l1_normalize(dtype: str) -> RowOp:
    """x / sum(|x|)."""
    return _accumulate("l1_normalize", dtype, "sum", absolute, lambda s, r: r.x / s.acc,
                       outputs=("row",))


def _arg(name: str, dtype: str, largest: bool, last: bool) -> RowOp:
    start = LOWEST[dtype] if largest else HIGHEST[dtype]
    floats = dtype in ("f32", "f64")

    def beats(new: Expr, old: Expr) -> Expr:
        """Whether a later element takes the place of the best so far; NaN beats all but NaN."""
        worse = (new < old if largest else new > old) if last else (
            new <= old if largest else new >= old)
        if not floats:
            return logical_not(worse)
        if last:
            return logical_and(logical_not(worse),
                               logical_or(is_nan(new), logical_not(is_nan(old))))
        return logical_and(logical_not(worse), logical_not(is_nan(old)))

    # Where nothing beats the start value, all elements are equal to it: the first is meant (the
    # last one does beat it).
    def update(s: State, r: RowValues) -> tuple[Expr, Expr]:
        take = beats(r.x, s.v)
        return where(take, r.x, s.v), where(take, r.index, s.at)

    def merge(a: State, b: State) -> tuple[Expr, Expr]:
        better = b.v > a.v if largest else b.v < a.v
        same = b.v.eq(a.v)
        if floats:
            better = logical_or(better, logical_and(is_nan(b.v), logical_not(is_nan(a.v))))
            better = logical_and(better, logical_not(is_nan(a.v)))
            same = logical_or(same, logical_and(is_nan(a.v), is_nan(b.v)))
        earlier = b.at > a.at if last else b.at < a.at
        take = logical_or(better, logical_and(same, earlier))
        take = logical_or(take, a.at < 0)
        take = logical_and(take, b.at >= 0)
        return where(take, b.v, a.v), where(take, b.at, a.at)

    return row_op(name, dtype=dtype, state={"v": start, "at": (-1, "i64")}, update=update,
                  merge=merge, finish=lambda s, r: maximum(s.at, const(0, "i64")),
                  outputs=("scalar",))


def argmax(dtype: str, last: bool = False) -> RowOp:
    """Position of the first (or last) maximum, i64; the first NaN wins."""
    return _arg("argmax", dtype, largest=True, last=last)


def argmin(dtype: str, last: bool = False) -> RowOp:
    """Position of the first (or last) minimum, i64; the first NaN wins."""
    return _arg("argmin", dtype, largest=False, last=last)


def add_layer_norm(dtype: str, epsilon: float = 1e-5, rounding: str = "") -> RowOp:
    """Return (x + residual, layer norm of it): operands x, residual; extras scale, bias.

    rounding is the storage dtype of the sum, so that the norm sees what the next layer reads; sums
    of 16 bits need no pivot (see _moments).
    """
    narrow = rounding in ("f16", "bf16")

    def total(r: RowValues) -> Expr:
        value = r.xs[0] + r.xs[1]
        return cast(value, rounding) if narrow else value

    def moved(r: RowValues) -> Expr:
        return total(r) if narrow else total(r) - (r.firsts[0] + r.firsts[1])

    base = layer_norm(dtype, epsilon)

    def finish(s: State, r: RowValues) -> list[Expr]:
        y = (moved(r) - s.mean) * rsqrt(s.m2 * reciprocal(r.n) + epsilon)
        return [total(r), y * r.extras[0] + r.extras[1]]

    def merge(a: State, b: State) -> tuple[Expr, ...]:
        from .expr import substitute

        names = ("count", "mean", "m2")
        table = {i: getattr(a, k) for i, k in enumerate(names)}
        table |= {3 + i: getattr(b, k) for i, k in enumerate(names)}
        return substitute(base.merge, table)

    return row_op(
        "add_layer_norm", dtype=dtype, state={"count": 0.0, "mean": 0.0, "m2": 0.0}, merge=merge,
        single=lambda r: (const(1.0, dtype), moved(r), const(0.0, dtype)),
        stages=[lambda v, r: [("sum", moved(r), lambda t, n: t * reciprocal(n))],
                lambda v, r: [("sum", _square(moved(r) - v[0]))]],
        collect=lambda v, n: (n, v[0], v[1]), finish=finish, outputs=("row", "row"), inputs=2,
        extras=2, pivot=not narrow)


def add_rms_norm(dtype: str, epsilon: float = 1e-5, rounding: str = "") -> RowOp:
    """Return (x + residual, RMS norm of it): operands x, residual; extra scale."""
    def total(r: RowValues) -> Expr:
        value = r.xs[0] + r.xs[1]
        return cast(value, rounding) if rounding in ("f16", "bf16") else value

    return row_op(
        "add_rms_norm", dtype=dtype, state={"acc": 0.0}, inputs=2, extras=1,
        update=lambda s, r: [s.acc + _square(total(r))], merge=lambda a, b: [a.acc + b.acc],
        stages=[lambda v, r: [("sum", _square(total(r)))]], collect=lambda v, n: v,
        finish=lambda s, r: [
            total(r), total(r) * rsqrt(s.acc * reciprocal(r.n) + epsilon) * r.extras[0]],
        outputs=("row", "row"))


def quantize_rows(dtype: str, limit: float = 127.0) -> RowOp:
    """Return (x / scale rounded, scale) with scale = max |x| / limit; a zero row has scale 1.

    One division per row: elements are multiplied by its result.
    """
    def finish(s: State, r: RowValues) -> list[Expr]:
        empty = s.acc.eq(const(0.0, dtype))
        inverse = where(empty, const(1.0, dtype), minimum(limit / s.acc, 3e38))
        rounded = round_even(r.x * inverse)
        return [maximum(minimum(rounded, limit), -limit),
                where(empty, const(1.0, dtype), s.acc / limit)]

    return _accumulate("quantize_rows", dtype, "max", absolute, finish, init=0.0,
                       outputs=("row", "scalar"))


def softmax_grad(dtype: str) -> RowOp:
    """y * (dy - sum(y * dy)): operands y, dy."""
    return row_op(
        "softmax_grad", dtype=dtype, state={"acc": 0.0}, inputs=2,
        update=lambda s, r: [s.acc + r.xs[0] * r.xs[1]], merge=lambda a, b: [a.acc + b.acc],
        stages=[lambda v, r: [("sum", r.xs[0] * r.xs[1])]], collect=lambda v, n: v,
        finish=lambda s, r: r.xs[0] * (r.xs[1] - s.acc))


ROW_OPS: dict[str, Callable[..., RowOp]] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "l1_normalize": l1_normalize,
    "l2_normalize": l2_normalize,
    "variance": variance,
    "sum": reduce_sum,
    "mean": reduce_mean,
    "max": reduce_max,
    "min": reduce_min,
    "prod": reduce_prod,
    "l1": reduce_l1,
    "l2": reduce_l2,
    "sum_square": sum_square,
    "log_sum": log_sum,
    "argmax": argmax,
    "argmin": argmin,
    "add_layer_norm": add_layer_norm,
    "add_rms_norm": add_rms_norm,
    "quantize_rows": quantize_rows,
    "softmax_grad": softmax_grad,
    "cross_entropy": cross_entropy,
}


@lru_cache(maxsize=1024)
def build_row_op(name: str, dtype: str = "f32", **params: Any) -> RowOp:
    """Return the built-in operator computed in dtype ("f32", "f64", "i32" or "i64").

    Raises:
        Invalid: there is no such operator.
    """
    if name not in ROW_OPS:
        raise Invalid("unknown row operator", found=name, wanted=", ".join(ROW_OPS),
                      hint=near_matches(name, ROW_OPS))
    return ROW_OPS[name](dtype, **params)
