"""The elementwise table: one row per operator; its formula is the kernel, the reference and the
source of its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...contract import DTYPES, REQUIRED, AttrSpec
from ...errors import GraphError
from ..ir import expr as ex
from ..ir.expr import Expr, ExprBundle
from ..ir.nodes import TensorType
from . import activations as act
from .formula import evaluate
from .opdef import (
    ALL,
    BOOL,
    F8,
    FLOATS,
    INTS,
    NUMERIC,
    SIGNED,
    Array,
    Arrays,
    OpDef,
    Types,
)
from .shapes import broadcast

Build = Callable[..., Expr]
_X = ("x",)
_AB = ("a", "b")


def _named(op: str) -> Build:
    """Return the build function of a scalar primitive."""
    return lambda *xs: xs[0].apply(op, *xs[1:])


def _integer_bound(value: float, dtype: str) -> int:
    low, high = (-(2**31), 2**31 - 1) if dtype == "i32" else (-(2**63), 2**63 - 1)
    return low if value <= low else high if value >= high else int(value)


def _clip(x: Expr, *, min: float | None, max: float | None) -> Expr:
    for bound, limit in ((min, ex.maximum), (max, ex.minimum)):
        if bound is not None:
            if bound != bound and x.dtype not in ("f32", "f64"):
                raise GraphError("CLIP of whole numbers has no bound NaN", found=bound)
            exact = bound if x.dtype in ("f32", "f64") else _integer_bound(bound, x.dtype)
            x = limit(x, exact)
    return x


def _pow(x: Expr, y: Expr) -> Expr:
    if x.dtype == y.dtype:
        return ex.power(x, y)
    if x.dtype in ("f32", "f64"):
        return ex.power(x, ex.cast(y, x.dtype))
    if y.dtype in ("i32", "i64"):
        return ex.cast(ex.power(ex.cast(x, "i64"), ex.cast(y, "i64")), x.dtype)
    return ex.cast(ex.power(ex.cast(x, "f64"), ex.cast(y, "f64")), x.dtype)


def _mod(a: Expr, b: Expr, *, fmod: bool) -> Expr:
    return ex.fmod(a, b) if fmod else ex.mod(a, b)


def _isinf(x: Expr, *, detect_negative: bool, detect_positive: bool) -> Expr:
    infinite = ex.is_inf(x)
    if detect_negative and detect_positive:
        return infinite
    if not detect_negative and not detect_positive:
        return ex.logical_and(infinite, ex.const(False, "bool"))
    return ex.logical_and(infinite, x > 0 if detect_positive else x < 0)


def _cast(x: Expr, *, to: str) -> Expr:
    if to != "bool":
        return ex.cast(x, to)
    return x if x.dtype == "bool" else x.ne(0)


def _shift(a: Expr, b: Expr, *, direction: str) -> Expr:
    """A shift by the width or more (a negative one counts as such) moves every bit out."""
    width = 32 if a.dtype == "i32" else 64
    inside = ex.logical_and(b >= 0, b < width)
    if direction == "LEFT":
        return ex.where(inside, a.apply("shift_left", b), 0)
    return a.apply("shift_right", ex.where(inside, b, width - 1))


def _shrink(x: Expr, *, lambd: float, bias: float) -> Expr:
    inner = ex.where(x > lambd, x - bias, x * 0.0)
    return ex.where(x < -lambd, x + bias, inner)


def _celu(x: Expr, *, alpha: float) -> Expr:
    return ex.maximum(x, 0.0) + ex.minimum(ex.expm1(x / alpha) * alpha, 0.0)


def _fold(op: str) -> Build:
    def build(*xs: Expr) -> Expr:
        total = xs[0]
        for x in xs[1:]:
            total = total.apply(op, x)
        return total

    return build


def _mean(*xs: Expr) -> Expr:
    return _fold("add")(*xs) / len(xs)


def out_dtype(op: OpDef, attrs: dict[str, Any], dtypes: Sequence[str]) -> str:
    """Return the element type of an elementwise operator's result."""
    if "to" in attrs:
        return str(attrs["to"])
    if "bool_result" in op.properties:
        return "bool"
    return dtypes[1] if op.name == "WHERE" else dtypes[0]


@lru_cache(maxsize=4096)
def _expression(op: OpDef, attrs: tuple[tuple[str, Any], ...], dtypes: tuple[str, ...]) -> Expr:
    assert op.expr is not None
    leaves = [ex.input(i, DTYPES[dtype].compute) for i, dtype in enumerate(dtypes)]
    result: Expr = op.expr(*leaves, **dict(attrs))
    target = out_dtype(op, dict(attrs), dtypes)
    # u8 and i8 wrap after every operator; f16 and bf16 round where the result is stored.
    return ex.cast(result, target) if target in ("u8", "i8") else result


def expression_of(op: OpDef, attrs: dict[str, Any], dtypes: Sequence[str]) -> Expr:
    """Return the formula of an elementwise operator over inputs 0.. of these element types.

    The leaves have the compute dtypes (f16 -> f32); the result is in its compute dtype.
    """
    return _expression(op, tuple(attrs.items()), tuple(dtypes))


def formulas(op: OpDef, attrs: dict[str, Any], dtypes: Sequence[str]) -> tuple[Expr, ...]:
    """Return the formula of each output of any elementwise node, FUSED_ELEMENTWISE included.

    A fused formula is widened to f64 when an f32 leaf reads an f64 tensor.
    """
    if op.expr is not None:
        return (expression_of(op, attrs, dtypes),)
    return act.fitted(attrs["expr"], dtypes).outputs


def _infer(name: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        given = [t for t in types if t is not None]
        dtype = out_dtype(BY_NAME[name], attrs, [t.dtype for t in given])
        return [TensorType(dtype, broadcast(name, [t.shape for t in given]))]

    return infer


_STORED = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32", np.dtype(np.int32): "i32",
           np.dtype(np.int64): "i64", np.dtype(np.bool_): "bool", np.dtype(np.uint8): "u8",
           np.dtype(np.int8): "i8"}


def _reference(name: str) -> Callable[[Arrays, dict[str, Any]], list[Array]]:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        given = [a for a in arrays if a is not None]
        result = expression_of(BY_NAME[name], attrs, [_STORED[a.dtype] for a in given])
        return evaluate((result,), given)

    return reference


def _row(name: str, build: Build, doc: str, *, inputs: tuple[str, ...] = _X,
         dtypes: tuple[str, ...] = FLOATS, attrs: tuple[AttrSpec, ...] = (),
         properties: tuple[str, ...] = (), other: dict[str, tuple[str, ...]] | None = None,
         ) -> OpDef:
    return OpDef(name, inputs, 1, attrs, _infer(name), _reference(name),
                 properties=frozenset({"elementwise", "rematerializable", *properties}), doc=doc,
                 family="elementwise", dtypes=dtypes, other=other or {}, expr=build)


def _simple(name: str, doc: str, dtypes: tuple[str, ...] = FLOATS, op: str = "") -> OpDef:
    return _row(name, _named(op or name.lower()), doc, dtypes=dtypes)


def _compare(name: str, op: str, doc: str, dtypes: tuple[str, ...] = NUMERIC) -> OpDef:
    return _row(name, _named(op), doc, inputs=_AB, dtypes=dtypes, properties=("bool_result",))


def _number(name: str, default: float, doc: str = "") -> AttrSpec:
    return AttrSpec(name, "float", default, doc=doc)


_COMMUTES = ("associative", "commutative")

_UNARY = (
    _row("IDENTITY", lambda x: x, "x.", dtypes=ALL, properties=("linear", "view")),
    _row("CAST", _cast, "x in another element type; float to integer truncates and saturates.",
         dtypes=ALL,
         attrs=(AttrSpec("to", "dtype", REQUIRED, doc="element type; 8-bit floats saturate"),)),
    _row("NEG", lambda x: -x, "-x.", dtypes=SIGNED, properties=("linear", "involution")),
    _row("ABS", ex.absolute, "|x|.", dtypes=NUMERIC, properties=("idempotent",)),
    _row("SIGN", ex.sign, "-1, 0 or 1; NaN stays NaN.", dtypes=NUMERIC,
         properties=("idempotent",)),
    _simple("EXP", "e to the x."),
    _simple("EXPM1", "exp(x) - 1 without cancellation."),
    _simple("LOG", "Natural logarithm."),
    _simple("LOG1P", "log(1 + x) without cancellation."),
    _simple("SQRT", "Square root."),
    _simple("RSQRT", "1 / sqrt(x)."),
    _simple("RECIPROCAL", "1 / x."),
    *(_simple(name, f"{text}.") for name, text in (
        ("SIN", "Sine"), ("COS", "Cosine"), ("TAN", "Tangent"), ("ASIN", "Arc sine"),
        ("ACOS", "Arc cosine"), ("ATAN", "Arc tangent"), ("SINH", "Hyperbolic sine"),
        ("COSH", "Hyperbolic cosine"), ("TANH", "Hyperbolic tangent"),
        ("ASINH", "Inverse hyperbolic sine"), ("ACOSH", "Inverse hyperbolic cosine"),
        ("ATANH", "Inverse hyperbolic tangent"), ("ERF", "Error function"))),
    _simple("FLOOR", "Largest integer not above x."),
    _simple("CEIL", "Smallest integer not below x."),
    _simple("ROUND", "Nearest integer, halves to even."),
    _simple("TRUNC", "Integer part."),
    _row("ISNAN", ex.is_nan, "Whether x is NaN.", properties=("bool_result",)),
    _row("ISINF", _isinf, "Whether x is infinite.", properties=("bool_result",),
         attrs=(AttrSpec("detect_negative", "bool", True, doc="-inf counts"),
                AttrSpec("detect_positive", "bool", True, doc="+inf counts"))),
    _row("NOT", ex.logical_not, "Logical not.", dtypes=BOOL, properties=("involution",)),
    _row("BITWISE_NOT", ex.bit_not, "Every bit flipped.", dtypes=INTS),
    _row("CLIP", _clip, "x limited to [min, max]; NaN stays NaN.", dtypes=NUMERIC,
         attrs=(AttrSpec("min", "float", None, doc="lower bound; none when absent"),
                AttrSpec("max", "float", None, doc="upper bound; none when absent"))),
)

_ACTIVATIONS = (
    _row("RELU", act.relu, "max(x, 0).", dtypes=SIGNED, properties=("idempotent",)),
    _row("RELU6", lambda x: ex.clip(x, 0.0, 6.0), "x limited to [0, 6]."),
    _row("GELU", lambda x, *, approximate: (act.gelu_tanh if approximate == "tanh"
                                            else act.gelu)(x), "x * Phi(x).",
         attrs=(AttrSpec("approximate", "str", "none", ("none", "tanh"), "formula"),)),
    _row("SIGMOID", ex.sigmoid, "1 / (1 + exp(-x))."),
    _row("SILU", lambda x: x * ex.sigmoid(x), "x * sigmoid(x)."),
    _row("SWISH", lambda x, *, alpha: x * ex.sigmoid(x * alpha), "x * sigmoid(alpha * x).",
         attrs=(_number("alpha", 1.0),)),
    _row("LEAKY_RELU", lambda x, *, alpha: act.leaky_relu(x, alpha), "x or alpha * x.",
         attrs=(_number("alpha", 0.01, "slope of the negative side"),)),
    _row("PRELU", lambda x, slope: ex.where(x < 0, x * slope, x), "x or slope * x.",
         inputs=("x", "slope"), dtypes=SIGNED),
    _row("ELU", lambda x, *, alpha: act.elu(x, alpha), "x or alpha * (exp(x) - 1).",
         attrs=(_number("alpha", 1.0),)),
    _row("SELU", lambda x, *, alpha, gamma: ex.where(x > 0, x, ex.expm1(x) * alpha) * gamma,
         "gamma * ELU(x, alpha).",
         attrs=(_number("alpha", 1.6732632423543772), _number("gamma", 1.0507009873554805))),
    _row("CELU", _celu, "max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0).",
         attrs=(_number("alpha", 1.0),)),
    _row("HARD_SIGMOID", lambda x, *, alpha, beta: act.hard_sigmoid(x, alpha, beta),
         "alpha * x + beta limited to [0, 1].",
         attrs=(_number("alpha", 0.2), _number("beta", 0.5))),
    _row("HARD_SWISH", lambda x: x * act.hard_sigmoid(x), "x * (x / 6 + 0.5 limited to [0, 1])."),
    _row("SOFTPLUS", ex.softplus, "log(1 + exp(x)) without overflow."),
    _row("SOFTSIGN", lambda x: x / (ex.absolute(x) + 1.0), "x / (1 + |x|)."),
    _row("MISH", act.mish, "x * tanh(softplus(x))."),
    _row("THRESHOLDED_RELU", lambda x, *, alpha: ex.where(x <= alpha, x * 0.0, x),
         "x where x > alpha, else 0.", attrs=(_number("alpha", 1.0),)),
    _row("SHRINK", _shrink, "x - bias above lambd, x + bias below -lambd, else 0.",
         attrs=(_number("lambd", 0.5), _number("bias", 0.0))),
)

_BINARY = (
    _row("ADD", lambda a, b: a + b, "a + b.", inputs=_AB, dtypes=NUMERIC,
         properties=(*_COMMUTES, "linear")),
    _row("SUB", lambda a, b: a - b, "a - b.", inputs=_AB, dtypes=NUMERIC, properties=("linear",)),
    _row("MUL", lambda a, b: a * b, "a * b.", inputs=_AB, dtypes=NUMERIC, properties=_COMMUTES),
    _row("DIV", lambda a, b: a / b, "a / b; integers truncate, by 0 they give 0.", inputs=_AB,
         dtypes=NUMERIC),
    _row("POW", _pow, "a to the b, in a's element type.", inputs=_AB, dtypes=NUMERIC,
         other={"b": NUMERIC}),
    _row("MOD", _mod, "Remainder with the sign of b; of a with fmod.", inputs=_AB, dtypes=NUMERIC,
         attrs=(AttrSpec("fmod", "bool", False, doc="as C fmod"),)),
    _row("ATAN2", ex.atan2, "Angle of the point (b, a).", inputs=_AB),
    _row("MAX", _fold("max"), "Largest; NaN propagates.", inputs=("x", "xs*"), dtypes=NUMERIC,
         properties=_COMMUTES),
    _row("MIN", _fold("min"), "Smallest; NaN propagates.", inputs=("x", "xs*"), dtypes=NUMERIC,
         properties=_COMMUTES),
    _row("SUM", _fold("add"), "Sum of the inputs.", inputs=("x", "xs*"), dtypes=NUMERIC,
         properties=(*_COMMUTES, "linear")),
    _row("MEAN", _mean, "Mean of the inputs.", inputs=("x", "xs*"), properties=("linear",)),
    _row("BIT_SHIFT", _shift, "a shifted by b bits.", inputs=_AB, dtypes=INTS,
         attrs=(AttrSpec("direction", "str", REQUIRED, ("LEFT", "RIGHT"), "way"),)),
    *(_row(f"BITWISE_{name}", _named(f"bit_{name.lower()}"), f"Bitwise {name.lower()}.",
           inputs=_AB, dtypes=INTS, properties=_COMMUTES) for name in ("AND", "OR", "XOR")),
    *(_row(name, _named(f"logical_{name.lower()}"), f"Logical {name.lower()}.", inputs=_AB,
           dtypes=BOOL, properties=_COMMUTES) for name in ("AND", "OR", "XOR")),
    _compare("EQUAL", "eq", "a == b.", ALL),
    _compare("NOT_EQUAL", "ne", "a != b.", ALL),
    _compare("LESS", "lt", "a < b."),
    _compare("LESS_OR_EQUAL", "le", "a <= b."),
    _compare("GREATER", "gt", "a > b."),
    _compare("GREATER_OR_EQUAL", "ge", "a >= b."),
    _row("WHERE", ex.where, "x where condition holds, else y.", inputs=("condition", "x", "y"),
         dtypes=ALL, other={"condition": BOOL}),
)

BY_NAME: dict[str, OpDef] = {op.name: op for op in (*_UNARY, *_ACTIVATIONS, *_BINARY)}


def _fused_dtypes(bundle: ExprBundle, dtypes: Sequence[str], given: str) -> list[str]:
    """Return the output element types: as given, or the narrowest that the formula allows."""
    if given:
        names = given.split(",")
        if len(names) != len(bundle.outputs) or any(name not in DTYPES for name in names):
            raise GraphError("FUSED_ELEMENTWISE dtypes do not fit its outputs", found=given,
                             wanted=f"{len(bundle.outputs)} element types")
        return names
    stored = {d for d in dtypes if DTYPES[d].kind == "float"}
    result = []
    for output in bundle.outputs:
        if output.kind == "cast" and output.op in ("f16", "bf16", "u8", "i8", *F8):
            result.append(output.op)
        elif output.dtype == "f32" and len(stored) == 1 and not stored & {"f64"}:
            result.append(next(iter(stored)))
        else:
            result.append(output.dtype)
    return result


def _infer_fused(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    given = [t for t in types if t is not None]
    if len(given) < attrs["expr"].n_inputs:
        raise GraphError("FUSED_ELEMENTWISE reads an input that is not there", found=len(given),
                         wanted=attrs["expr"].n_inputs)
    if attrs["expr"].n_scalars:
        raise GraphError("FUSED_ELEMENTWISE has no run-time scalars", found=attrs["expr"].text)
    shape = broadcast("FUSED_ELEMENTWISE", [t.shape for t in given])
    dtypes = _fused_dtypes(attrs["expr"], [t.dtype for t in given], attrs["dtypes"])
    return [TensorType(dtype, shape) for dtype in dtypes]


def _reference_fused(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    return act.evaluate_bundle(attrs["expr"], arrays)


FUSED = OpDef(
    "FUSED_ELEMENTWISE", ("xs*",), 0,
    (AttrSpec("expr", "expr", REQUIRED, doc="formula over the inputs"),
     AttrSpec("dtypes", "str", "", doc="element types of the outputs, separated by commas")),
    _infer_fused, _reference_fused,
    properties=frozenset({"elementwise", "rematerializable"}), family="elementwise",
    other={"xs": ALL}, doc="A formula over broadcast inputs, made by fusion.")

OPDEFS = (*BY_NAME.values(), FUSED)
