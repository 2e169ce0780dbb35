"""ATen operators as ge2 operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.ir.dim import Dim
from ..node_writer import Unmapped
from .call import Call, Tensor
from .layer_rules import RULES as LAYERS
from .shape_rules import RULES as SHAPES

Rule = Callable[[Call], Any]

# Checks of torch.export without a result.
IGNORED = frozenset({"_assert_scalar", "_assert_async", "_assert_tensor_metadata",
                     "sym_constrain_range", "sym_constrain_range_for_size"})

RULES: dict[str, Rule] = {**LAYERS, **SHAPES}

_UNARY = {
    "relu": "RELU", "silu": "SILU", "sigmoid": "SIGMOID", "tanh": "TANH", "exp": "EXP",
    "log": "LOG", "sqrt": "SQRT", "rsqrt": "RSQRT", "abs": "ABS", "neg": "NEG", "sin": "SIN",
    "cos": "COS", "tan": "TAN", "erf": "ERF", "floor": "FLOOR", "ceil": "CEIL", "round": "ROUND",
    "trunc": "TRUNC", "sign": "SIGN", "reciprocal": "RECIPROCAL", "logical_not": "NOT",
    "isnan": "ISNAN", "isinf": "ISINF", "hardswish": "HARD_SWISH", "mish": "MISH",
    "expm1": "EXPM1", "log1p": "LOG1P", "relu6": "RELU6", "asin": "ASIN", "acos": "ACOS",
    "atan": "ATAN", "sinh": "SINH", "cosh": "COSH", "selu": "SELU",
}
_BINARY = {"add": "ADD", "sub": "SUB", "mul": "MUL", "maximum": "MAX", "minimum": "MIN",
           "pow": "POW", "atan2": "ATAN2"}
_COMPARE = {"eq": "EQUAL", "ne": "NOT_EQUAL", "lt": "LESS", "le": "LESS_OR_EQUAL",
            "gt": "GREATER", "ge": "GREATER_OR_EQUAL"}
_LOGIC = {"logical_and": "AND", "logical_or": "OR", "logical_xor": "XOR", "bitwise_and": "AND",
          "bitwise_or": "OR", "bitwise_xor": "XOR"}
_ORDER = ("bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f32", "f64")


def _unary(op: str) -> Rule:
    def rule(call: Call) -> str:
        dtype = "bool" if op == "NOT" else call.dtype if call.dtype != "bool" else ""
        return call.make(op, call.value("self", dtype))

    return rule


def _binary(op: str) -> Rule:
    def rule(call: Call) -> str:
        other = call.value("other" if "other" in call.args else "exponent", call.dtype)
        if (call["alpha"] or 1) != 1:
            other = call.make("MUL", other, call.as_value(call["alpha"], call.dtype))
        return call.make(op, call.value("self", call.dtype), other)

    return rule


def _compare(op: str) -> Rule:
    def rule(call: Call) -> str:
        dtype = _common(call, "self", "other")
        return call.make(op, call.value("self", dtype), call.value("other", dtype))

    return rule


def _common(call: Call, *names: str) -> str:
    """Return the element type that operands are compared in: a tensor's beats a number's."""
    tensors = [call.type(n).dtype for n in names if isinstance(call[n], Tensor)]
    dtype = max(tensors, key=_ORDER.index)
    fractional = any(isinstance(call[n], float) for n in names)
    return "f32" if fractional and dtype in _ORDER[:5] else dtype


def _logic(op: str) -> Rule:
    def rule(call: Call) -> str:
        if call.op.startswith("bitwise") and call.dtype != "bool":
            dtype = call.dtype
            return call.make(f"BITWISE_{op}", call.value("self", dtype), call.value("other", dtype))
        return call.make(op, call.value("self", "bool"), call.value("other", "bool"))

    return rule


for _name, _op in _UNARY.items():
    RULES[_name] = _unary(_op)
for _name, _op in _BINARY.items():
    RULES[_name] = _binary(_op)
for _name, _op in _COMPARE.items():
    RULES[_name] = _compare(_op)
for _name, _op in _LOGIC.items():
    RULES[_name] = _logic(_op)


def _maps(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
        return rule

    return register


@_maps("bitwise_not")
def _bitwise_not(call: Call) -> str:
    return call.make("NOT" if call.dtype == "bool" else "BITWISE_NOT", call.value("self"))


@_maps("rsub")
def _rsub(call: Call) -> str:
    return call.make("SUB", call.value("other", call.dtype), call.value("self", call.dtype))


@_maps("div")
def _div(call: Call) -> str:
    x, y = call.value("self", call.dtype), call.value("other", call.dtype)
    mode = call["rounding_mode"]
    if mode is None:
        return call.make("DIV", x, y)
    quotient = call.make("DIV", x, y)
    if call.dtype.startswith(("f", "bf")):
        return call.make("FLOOR" if mode == "floor" else "TRUNC", quotient)
    if mode == "floor":
        raise Unmapped("floor division of integers")
    return quotient


@_maps("remainder", "fmod")
def _mod(call: Call) -> str:
    return call.make("MOD", call.value("self", call.dtype), call.value("other", call.dtype),
                     fmod=call.op == "fmod")


@_maps("gelu")
def _gelu(call: Call) -> str:
    return call.make("GELU", call.value("self"), approximate=call["approximate"])


@_maps("elu", "celu", "leaky_relu")
def _sloped(call: Call) -> str:
    if call.op == "elu" and (call["scale"], call["input_scale"]) != (1, 1):
        raise Unmapped("elu with scales")
    name = "negative_slope" if call.op == "leaky_relu" else "alpha"
    return call.make(call.op.upper(), call.value("self"), alpha=float(call[name]))


@_maps("softplus")
def _softplus(call: Call) -> str:
    if call["beta"] != 1:
        raise Unmapped("softplus with beta")
    return call.make("SOFTPLUS", call.value("self"))


@_maps("hardsigmoid")
def _hardsigmoid(call: Call) -> str:
    return call.make("HARD_SIGMOID", call.value("self"), alpha=1 / 6, beta=0.5)


@_maps("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamp(call: Call) -> str:
    low, high = ((call["min_val"], call["max_val"]) if call.op == "hardtanh"
                 else (call["min"], call["max"]))
    x = call.value("self", call.dtype)
    for bound, op in ((low, "MAX"), (high, "MIN")):
        if isinstance(bound, Tensor | Dim):
            x = call.make(op, x, call.as_value(bound, call.dtype))
    numbers = {n: float(b) for n, b in (("min", low), ("max", high)) if isinstance(b, int | float)}
    return call.make("CLIP", x, **numbers) if numbers else x


@_maps("where")
def _where(call: Call) -> str:
    return call.make("WHERE", call.value("condition", "bool"), call.value("self", call.dtype),
                     call.value("other", call.dtype))


@_maps("masked_fill")
def _masked_fill(call: Call) -> str:
    return call.make("WHERE", call.value("mask", "bool"), call.value("value", call.dtype),
                     call.value("self"))


@_maps("_to_copy", "to", "type_as")
def _to(call: Call) -> str:
    value = call.value("self")
    return call.make("IDENTITY", value) if call.type("self").dtype == call.dtype else (
        call.cast(value, call.dtype))


@_maps("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "dropout", "native_dropout",
       "feature_dropout", "detach_")
def _same(call: Call) -> str:
    if call["train"] and call["p"]:
        raise Unmapped("training: call eval() on the module first")
    return call.make("IDENTITY", call.value("input" if "input" in call.args else "self"))
