"""Named functions over expressions, so that declarations read like formulas."""

from __future__ import annotations

from functools import partial

from .node import Expr, Operand, binary, select, unary

absolute = partial(unary, "abs")
sign = partial(unary, "sign")
exp = partial(unary, "exp")
exp2 = partial(unary, "exp2")
expm1 = partial(unary, "expm1")
log = partial(unary, "log")
log2 = partial(unary, "log2")
log1p = partial(unary, "log1p")
sqrt = partial(unary, "sqrt")
rsqrt = partial(unary, "rsqrt")
reciprocal = partial(unary, "reciprocal")
sin = partial(unary, "sin")
cos = partial(unary, "cos")
tan = partial(unary, "tan")
tanh = partial(unary, "tanh")
erf = partial(unary, "erf")
floor = partial(unary, "floor")
ceil = partial(unary, "ceil")
round_even = partial(unary, "round")
trunc = partial(unary, "trunc")
is_nan = partial(unary, "is_nan")
is_inf = partial(unary, "is_inf")
logical_not = partial(unary, "logical_not")
bit_not = partial(unary, "bit_not")

maximum = partial(binary, "max")
minimum = partial(binary, "min")
power = partial(binary, "pow")
mod = partial(binary, "mod")
fmod = partial(binary, "fmod")
atan2 = partial(binary, "atan2")
logical_and = partial(binary, "logical_and")
logical_or = partial(binary, "logical_or")
logical_xor = partial(binary, "logical_xor")


def where(condition: Expr, yes: Operand, no: Operand) -> Expr:
    """Return yes where condition holds, else no."""
    return select(condition, yes, no)


def clip(x: Expr, low: Operand, high: Operand) -> Expr:
    """Return x limited to [low, high]; NaN stays NaN."""
    return minimum(maximum(x, low), high)


def sigmoid(x: Expr) -> Expr:
    """Return 1 / (1 + exp(-x)); exact at both ends because exp overflows to infinity."""
    return reciprocal(exp(-x) + 1.0)


def softplus(x: Expr) -> Expr:
    """Return log(1 + exp(x)) without overflow."""
    return maximum(x, 0.0) + log1p(exp(-absolute(x)))
