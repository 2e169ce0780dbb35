"""Cheaper arithmetic where results are rounded to 16 bits: identities that save instructions."""

from __future__ import annotations

from collections.abc import Sequence

from .build import absolute, reciprocal, where
from .node import Expr, const, unary, walk
from .rewrite import constant, rebuild_node

# Abramowitz and Stegun 7.1.26: erfc(x) = t * (a1 + t * (a2 + ...)) * exp(-x * x) for x >= 0 with
# t = 1 / (1 + p * x); the absolute error is below 1.5e-7.
_P = 0.3275911
_ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def cheaper(outputs: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return expressions of the same value, within 2^-20 of it (of 1, for erf), in fewer steps.

    tanh(u) + 1 becomes 2 / (1 + exp(-2u)), which also does not cancel; erf(u) + 1 one polynomial;
    a / (1 + exp(u)) a product with the reciprocal; exp is taken to the base 2, and constant
    factors meet in one.
    """
    done: dict[Expr, Expr] = {}
    for node in walk(outputs):
        args = tuple(done[arg] for arg in node.args)
        done[node] = _cheaper(node, args, done)
    return tuple(done[output] for output in outputs)


def _cheaper(node: Expr, args: tuple[Expr, ...], done: dict[Expr, Expr]) -> Expr:
    if node.dtype != "f32":
        return rebuild_node(node, args)
    if node.op == "add":
        return _one_plus(node, done) or rebuild_node(node, args)
    if node.op == "div" and _is_one_plus_exp(node.args[1]):
        inverse = reciprocal(args[1])
        return inverse if constant(node.args[0]) == 1.0 else _product(args[0], inverse)
    if node.op == "mul":
        return _product(args[0], args[1])
    if node.op == "exp":
        return unary("exp2", _product(args[0], const(_LOG2E)))
    return rebuild_node(node, args)


def _one_plus(node: Expr, done: dict[Expr, Expr]) -> Expr | None:
    """Return f(u) + 1 or a * f(u) + a in few steps, f being tanh or erf; None for other sums."""
    for this, other in ((0, 1), (1, 0)):
        term, rest = node.args[this], node.args[other]
        if term.op in _ONE_PLUS and constant(rest) == 1.0:
            return _ONE_PLUS[term.op](done[term.args[0]])
        for f, factor in ((0, 1), (1, 0)) if term.op == "mul" else ():
            inner = term.args[f]
            if inner.op in _ONE_PLUS and term.args[factor] is rest:
                return _product(done[rest], _ONE_PLUS[inner.op](done[inner.args[0]]))
    return None


def _product(a: Expr, b: Expr) -> Expr:
    """Return a * b with the constant factors of both in one."""
    (rest_a, factor_a), (rest_b, factor_b) = _split(a), _split(b)
    factor = factor_a * factor_b
    rests = [r for r in (rest_a, rest_b) if r is not None]
    if not rests or not _SMALL < abs(factor) < 1 / _SMALL:
        return a * b
    result = rests[0] if len(rests) == 1 else rests[0] * rests[1]
    return result if factor == 1.0 else result * factor


def _split(x: Expr) -> tuple[Expr | None, float]:
    """Return x as (rest, constant factor)."""
    value = constant(x)
    if value is not None:
        return None, float(value)
    if x.dtype == "f32" and x.op == "neg":
        return x.args[0], -1.0
    if x.dtype == "f32" and x.op == "mul":
        for this, other in ((0, 1), (1, 0)):
            value = constant(x.args[this])
            if value is not None:
                return x.args[other], float(value)
    return x, 1.0


# Products of factors beyond these could overflow or vanish where the separate ones did not.
_SMALL = 2.0 ** -20
_LOG2E = 1.4426950408889634


def _is_one_plus_exp(x: Expr) -> bool:
    parts = x.args if x.op == "add" else ()
    return any(constant(p) == 1.0 for p in parts) and any(p.op == "exp" for p in parts)


def _one_plus_tanh(u: Expr) -> Expr:
    return _product(reciprocal(unary("exp2", _product(u, const(-2.0 * _LOG2E))) + 1.0),
                    const(2.0))


def _one_plus_erf(u: Expr) -> Expr:
    t = reciprocal(absolute(u) * _P + 1.0)
    poly = t * _ERFC[0] + _ERFC[1]
    for coefficient in _ERFC[2:]:
        poly = t * poly + coefficient
    tail = t * poly * unary("exp2", _product(u * u, const(-_LOG2E)))
    return where(u < 0.0, tail, 2.0 - tail)


_ONE_PLUS = {"tanh": _one_plus_tanh, "erf": _one_plus_erf}
