"""Elementwise operators, casts and logic."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from ....compiler.ir.dim import Dim
from ....contract import FLOAT8_MAX
from ...node_writer import Unmapped
from ..call import Call
from ..values import Known, type_name
from .table import RuleTable

RULES = RuleTable()

for _name in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh",
              "Erf", "Exp", "Floor", "Identity", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu",
              "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan",
              "Tanh", "And", "Or", "Xor", "Equal", "Less", "Greater", "IsNaN", "PRelu"):
    RULES.direct(_name, _name.upper())
for _name in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Where"):
    RULES.direct(_name, _name.upper())
for _name, _op in (("BitwiseAnd", "BITWISE_AND"), ("BitwiseOr", "BITWISE_OR"),
                   ("BitwiseXor", "BITWISE_XOR"), ("BitwiseNot", "BITWISE_NOT"),
                   ("LessOrEqual", "LESS_OR_EQUAL"), ("GreaterOrEqual", "GREATER_OR_EQUAL"),
                   ("HardSwish", "HARD_SWISH")):
    RULES.direct(_name, _op)
for _name, _op, *_attrs in (
        ("Elu", "ELU", "alpha"), ("Selu", "SELU", "alpha", "gamma"), ("Celu", "CELU", "alpha"),
        ("LeakyRelu", "LEAKY_RELU", "alpha"), ("ThresholdedRelu", "THRESHOLDED_RELU", "alpha"),
        ("HardSigmoid", "HARD_SIGMOID", "alpha", "beta"), ("Shrink", "SHRINK", "lambd", "bias"),
        ("Gelu", "GELU", "approximate"), ("Swish", "SWISH", "alpha"),
        ("IsInf", "ISINF", "detect_negative", "detect_positive"), ("Mod", "MOD", "fmod"),
        ("BitShift", "BIT_SHIFT", "direction")):
    RULES.direct(_name, _op, *_attrs)


@RULES.rule("Cast")
def _cast(call: Call) -> str:
    call.only("to", "saturate", "round_mode")
    return _to(call, dtype_of(call.attrs["to"]))


def _to(call: Call, dtype: str) -> str:
    if dtype in FLOAT8_MAX and not call.attrs.get("saturate", 1):
        raise Unmapped("an element type of 8 bits without saturation")
    return call.make("CAST", call.value(0), to=dtype)


@RULES.rule("CastLike")
def _cast_like(call: Call) -> str:
    call.only("saturate", "round_mode")
    return _to(call, call.type(1).dtype)


@RULES.rule("Clip")
def _clip(call: Call) -> str:
    """Bounds are attributes up to opset 10 and inputs from 11; those known become numbers."""
    low, high = (_bound(call, name, i) for name, i in (("min", 1), ("max", 2)))
    result = call.value(0)
    numbers = {name: value for name, value in (("min", low), ("max", high))
               if isinstance(value, int | float)}
    if numbers or (low is None and high is None):
        result = call.make("CLIP", result, **numbers)
    for bound, op in ((low, "MAX"), (high, "MIN")):
        if isinstance(bound, str):
            result = call.make(op, result, bound)
    return result


def _bound(call: Call, name: str, index: int) -> Any:
    """Return a bound as a number where it is known, else as a value."""
    if name in call.attrs:
        # Older exporters write the largest float for "none".
        number = call.attrs[name]
        return None if abs(number) >= float(np.finfo(np.float32).max) else number
    if not call.has(index):
        return None
    return _number(call, index)


def _number(call: Call, index: int) -> Any:
    given = call.inputs[index]
    if isinstance(given, Known) and given.array.size == 1:
        found = given.array.reshape(())[()]
        if not isinstance(found, Dim):
            return found.item() if isinstance(found, np.generic) else found
    return call.value(index)


@RULES.rule("Dropout")
def _dropout(call: Call) -> Any:
    training = call.scalar(2, False) if call.n_inputs > 2 else False
    if training or call.attrs.get("is_test") == 0:
        raise Unmapped("training")
    result = call.make("IDENTITY", call.value(0))
    if len(call.wanted) < 2 or not call.wanted[1]:
        return [result, ""]
    kept = call.writer.constant(np.ones((), bool))
    return [result, call.make("EXPAND", kept, shape=call.type(0).shape)]


def dtype_of(code: int) -> str:
    """Return the IR name of an ONNX element type.

    Raises:
        Unmapped: ge2 has no such element type.
    """
    try:
        return type_name(helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        raise Unmapped(f"element type {code}") from None
