"""The scalar primitives of expressions: one row each, shared by NumPy, CUDA C and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .erf import erf as _erf

if TYPE_CHECKING:
    from .expr.node import Expr

Array = npt.NDArray[Any]
Derivative = Callable[..., "tuple[Expr | float | None, ...]"]

C_TYPES = {"f32": "float", "f64": "double", "i32": "int", "i64": "long long", "bool": "bool"}
KINDS = {"f32": "f", "f64": "f", "i32": "i", "i64": "i", "bool": "b"}


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """One scalar primitive.

    Attributes:
        name: as in the text form.
        arity: 1 or 2.
        numpy: evaluates it on arrays of one compute dtype and keeps that dtype (or gives bool).
        domain: kinds of dtype it takes: letters of "f" float, "i" integer, "b" bool.
        infix: the C++ operator that floats (and, for bool results, all dtypes) render to; without
            one, and for integer arithmetic, which wraps, the function ge2::<name> is called.
        result: "same" as the operands, or "bool".
        derivative: (operands..., result) -> one partial derivative per operand; None = zero
            almost everywhere; absent = not differentiable.
        properties: algebraic facts over exact arithmetic: associative, commutative, idempotent.
    """

    name: str
    arity: int
    numpy: Callable[..., Array]
    domain: str = "f"
    infix: str = ""
    result: str = "same"
    derivative: Derivative | None = None
    properties: frozenset[str] = field(default=frozenset())


def _int_div(a: Array, b: Array) -> Array:
    """Truncating division; x / 0 is 0, as the kernels define it."""
    zero = b == 0
    safe = np.where(zero, 1, b).astype(b.dtype)
    quotient = np.floor_divide(a, safe)
    inexact = (quotient * safe != a) & ((a < 0) != (safe < 0))
    return np.where(zero, 0, quotient + inexact).astype(a.dtype)


def _div(a: Array, b: Array) -> Array:
    return np.divide(a, b) if a.dtype.kind == "f" else _int_div(a, b)


def _fmod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    return np.where(b == 0, 0, a - _int_div(a, b) * b).astype(a.dtype)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a, b)
    ones = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    powers = np.power(a, np.maximum(b, 0).astype(a.dtype))
    return np.where(b < 0, ones, powers).astype(a.dtype)


def _shift_left(a: Array, b: Array) -> Array:
    return np.asarray(np.left_shift(a, b & (a.dtype.itemsize * 8 - 1)))


def _shift_right(a: Array, b: Array) -> Array:
    return np.asarray(np.right_shift(a, b & (a.dtype.itemsize * 8 - 1)))


def _zero(*_: Any) -> tuple[None, None]:
    return (None, None)


_HALF_SQRT_PI = 0.8862269254527580
_AC = frozenset({"associative", "commutative"})
_LATTICE = frozenset({"associative", "commutative", "idempotent"})
_C = frozenset({"commutative"})

_UNARY = (
    ScalarOp("neg", 1, np.negative, "fi", derivative=lambda x, y: (-1.0,)),
    ScalarOp("abs", 1, np.abs, "fi", derivative=lambda x, y: (x.apply("sign"),),
             properties=frozenset({"idempotent"})),
    ScalarOp("sign", 1, np.sign, "fi", derivative=_zero, properties=frozenset({"idempotent"})),
    ScalarOp("exp", 1, np.exp, derivative=lambda x, y: (y,)),
    ScalarOp("exp2", 1, np.exp2, derivative=lambda x, y: (y * float(np.log(2)),)),
    ScalarOp("expm1", 1, np.expm1, derivative=lambda x, y: (y + 1.0,)),
    ScalarOp("log", 1, np.log, derivative=lambda x, y: (1.0 / x,)),
    ScalarOp("log2", 1, np.log2, derivative=lambda x, y: (1.0 / (x * float(np.log(2))),)),
    ScalarOp("log10", 1, np.log10, derivative=lambda x, y: (1.0 / (x * float(np.log(10))),)),
    ScalarOp("log1p", 1, np.log1p, derivative=lambda x, y: (1.0 / (x + 1.0),)),
    ScalarOp("sqrt", 1, np.sqrt, derivative=lambda x, y: (0.5 / y,)),
    ScalarOp("rsqrt", 1, lambda x: np.reciprocal(np.sqrt(x)),
             derivative=lambda x, y: (-0.5 * (y / x),)),
    ScalarOp("reciprocal", 1, np.reciprocal, derivative=lambda x, y: (-(y * y),)),
    ScalarOp("sin", 1, np.sin, derivative=lambda x, y: (x.apply("cos"),)),
    ScalarOp("cos", 1, np.cos, derivative=lambda x, y: (-x.apply("sin"),)),
    ScalarOp("tan", 1, np.tan, derivative=lambda x, y: (y * y + 1.0,)),
    ScalarOp("asin", 1, np.arcsin, derivative=lambda x, y: ((1.0 - x * x).apply("rsqrt"),)),
    ScalarOp("acos", 1, np.arccos, derivative=lambda x, y: (-(1.0 - x * x).apply("rsqrt"),)),
    ScalarOp("atan", 1, np.arctan, derivative=lambda x, y: (1.0 / (x * x + 1.0),)),
    ScalarOp("sinh", 1, np.sinh, derivative=lambda x, y: (x.apply("cosh"),)),
    ScalarOp("cosh", 1, np.cosh, derivative=lambda x, y: (x.apply("sinh"),)),
    ScalarOp("tanh", 1, np.tanh, derivative=lambda x, y: (1.0 - y * y,)),
    ScalarOp("asinh", 1, np.arcsinh, derivative=lambda x, y: ((x * x + 1.0).apply("rsqrt"),)),
    ScalarOp("acosh", 1, np.arccosh, derivative=lambda x, y: ((x * x - 1.0).apply("rsqrt"),)),
    ScalarOp("atanh", 1, np.arctanh, derivative=lambda x, y: (1.0 / (1.0 - x * x),)),
    ScalarOp("erf", 1, _erf,
             derivative=lambda x, y: ((-(x * x)).apply("exp") * (1.0 / _HALF_SQRT_PI),)),
    ScalarOp("floor", 1, np.floor, derivative=_zero, properties=frozenset({"idempotent"})),
    ScalarOp("ceil", 1, np.ceil, derivative=_zero, properties=frozenset({"idempotent"})),
    ScalarOp("round", 1, np.rint, derivative=_zero, properties=frozenset({"idempotent"})),
    ScalarOp("trunc", 1, np.trunc, derivative=_zero, properties=frozenset({"idempotent"})),
    ScalarOp("is_nan", 1, np.isnan, result="bool", derivative=_zero),
    ScalarOp("is_inf", 1, np.isinf, result="bool", derivative=_zero),
    ScalarOp("logical_not", 1, np.logical_not, "b", result="bool", derivative=_zero),
    ScalarOp("bit_not", 1, np.invert, "i", derivative=_zero),
)

_BINARY = (
    ScalarOp("add", 2, np.add, "fi", "+", derivative=lambda a, b, y: (1.0, 1.0), properties=_AC),
    ScalarOp("sub", 2, np.subtract, "fi", "-", derivative=lambda a, b, y: (1.0, -1.0)),
    ScalarOp("mul", 2, np.multiply, "fi", "*", derivative=lambda a, b, y: (b, a), properties=_AC),
    ScalarOp("div", 2, _div, "fi", "/", derivative=lambda a, b, y: (1.0 / b, -(y / b))),
    ScalarOp("pow", 2, _pow, "fi",
             derivative=lambda a, b, y: (b * a.apply("pow", b - 1.0), y * a.apply("log"))),
    ScalarOp("mod", 2, np.mod, "fi", derivative=lambda a, b, y: (1.0, -(a / b).apply("floor"))),
    ScalarOp("fmod", 2, _fmod, "fi", derivative=lambda a, b, y: (1.0, -(a / b).apply("trunc"))),
    ScalarOp("atan2", 2, np.arctan2,
             derivative=lambda a, b, y: (b / (a * a + b * b), -(a / (a * a + b * b)))),
    # On a tie the whole gradient goes to the second operand: relu'(0) is 0.
    ScalarOp("max", 2, np.maximum, "fi", properties=_LATTICE,
             derivative=lambda a, b, y: ((a > b).choose(1.0, 0.0), (a > b).choose(0.0, 1.0))),
    ScalarOp("min", 2, np.minimum, "fi", properties=_LATTICE,
             derivative=lambda a, b, y: ((a < b).choose(1.0, 0.0), (a < b).choose(0.0, 1.0))),
    ScalarOp("eq", 2, np.equal, "fib", "==", "bool", _zero, _C),
    ScalarOp("ne", 2, np.not_equal, "fib", "!=", "bool", _zero, _C),
    ScalarOp("lt", 2, np.less, "fi", "<", "bool", _zero),
    ScalarOp("le", 2, np.less_equal, "fi", "<=", "bool", _zero),
    ScalarOp("gt", 2, np.greater, "fi", ">", "bool", _zero),
    ScalarOp("ge", 2, np.greater_equal, "fi", ">=", "bool", _zero),
    ScalarOp("logical_and", 2, np.logical_and, "b", "&&", "bool", _zero, _LATTICE),
    ScalarOp("logical_or", 2, np.logical_or, "b", "||", "bool", _zero, _LATTICE),
    ScalarOp("logical_xor", 2, np.logical_xor, "b", "!=", "bool", _zero, _AC),
    ScalarOp("bit_and", 2, np.bitwise_and, "i", derivative=_zero, properties=_LATTICE),
    ScalarOp("bit_or", 2, np.bitwise_or, "i", derivative=_zero, properties=_LATTICE),
    ScalarOp("bit_xor", 2, np.bitwise_xor, "i", derivative=_zero, properties=_AC),
    ScalarOp("shift_left", 2, _shift_left, "i", derivative=_zero),
    ScalarOp("shift_right", 2, _shift_right, "i", derivative=_zero),
)

SCALAR_OPS: dict[str, ScalarOp] = {op.name: op for op in (*_UNARY, *_BINARY)}
