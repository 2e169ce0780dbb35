"""Scalar expressions: a hash-consed DAG that renders to CUDA C, evaluates and differentiates."""

from .build import (
    absolute,
    atan2,
    bit_not,
    ceil,
    clip,
    cos,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    fmod,
    is_inf,
    is_nan,
    log,
    log1p,
    log2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    power,
    reciprocal,
    round_even,
    rsqrt,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    tan,
    tanh,
    trunc,
    where,
)
from .bundle import ExprBundle, Interned, intern, lookup, parse
from .differentiate import differentiate
from .evaluate import evaluate
from .node import (
    Expr,
    binary,
    cast,
    const,
    coord,
    input,
    scalar,
    select,
    unary,
    walk,
)
from .render import Rendered, render_c
from .rewrite import constant, inputs_of, substitute, widen

__all__ = [
    "Expr", "ExprBundle", "Interned", "Rendered", "absolute", "atan2", "binary", "bit_not",
    "cast", "ceil", "clip", "const", "constant", "coord", "cos", "differentiate", "erf",
    "evaluate", "exp", "exp2", "expm1", "floor", "fmod", "input", "inputs_of", "intern",
    "is_inf", "is_nan", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "lookup", "maximum", "minimum", "mod", "parse", "power", "reciprocal",
    "render_c", "round_even", "rsqrt", "scalar", "select", "sigmoid", "sign", "sin",
    "softplus", "sqrt", "substitute", "tan", "tanh", "trunc", "unary", "walk", "where", "widen",
]
