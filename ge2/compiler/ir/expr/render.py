"""Expressions as CUDA C++ statements; nothing but numbers and names that ge2 chose gets there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..scalar_ops import C_TYPES, SCALAR_OPS
from .node import Expr, walk


@dataclass(frozen=True, slots=True)
class Rendered:
    """C++ text of some expressions.

    Attributes:
        lines: single-assignment statements, in order.
        results: one C++ expression (a name or a literal) per output.
    """

    lines: tuple[str, ...]
    results: tuple[str, ...]


def render_c(outputs: Sequence[Expr], inputs: Sequence[str], coords: Sequence[str] = (),
             scalars: Sequence[str] = (), prefix: str = "t") -> Rendered:
    """Return C++ that computes outputs with the functions of <ge2/scalar.cuh>.

    Args:
        outputs: expressions.
        inputs, coords, scalars: C++ names of the leaves, of the leaf's compute type.
        prefix: names of intermediate values are prefix + number.
    """
    leaves = {"input": inputs, "coord": coords, "scalar": scalars}
    names: dict[Expr, str] = {}
    lines: list[str] = []
    for node in walk(outputs):
        if node.kind in leaves:
            names[node] = leaves[node.kind][int(node.value)]
        elif node.kind == "const":
            names[node] = literal(node)
        else:
            names[node] = f"{prefix}{len(lines)}"
            value = _operation(node, [names[arg] for arg in node.args])
            lines.append(f"const {C_TYPES[node.dtype]} {names[node]} = {value};")
    return Rendered(tuple(lines), tuple(names[node] for node in outputs))


def _operation(node: Expr, args: list[str]) -> str:
    if node.kind == "select":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if node.kind == "cast":
        return f"ge2::cast_{node.op}({args[0]})"
    row = SCALAR_OPS[node.op]
    is_float = node.args[0].dtype in ("f32", "f64")
    if row.infix and (is_float or row.result == "bool"):
        return f"{args[0]} {row.infix} {args[1]}"
    if node.op == "reciprocal" and _is_one_at_least(node.args[0]):
        return f"ge2::reciprocal_from_one({args[0]})"
    return f"ge2::{_C_NAMES.get(node.op, node.op)}({', '.join(args)})"


def _is_one_at_least(node: Expr) -> bool:
    """Whether an f32 is plainly 1 plus something that is not negative (or NaN)."""
    if node.dtype != "f32" or node.op != "add":
        return False
    return any(_constant(a) >= 1.0 and _is_not_negative(b)
               for a, b in (node.args, node.args[::-1]))


def _is_not_negative(node: Expr) -> bool:
    if node.op == "mul":
        a, b = node.args
        return a is b or (_is_not_negative(a) and _is_not_negative(b))
    return node.op in ("exp", "exp2", "abs", "sqrt") or _constant(node) >= 0.0


def _constant(node: Expr) -> float:
    return float(node.value) if node.kind == "const" else -math.inf


_C_NAMES = {"max": "max_nan", "min": "min_nan"}


def literal(node: Expr) -> str:
    """Return a constant as a C++ literal of exactly its type and value."""
    value = node.value
    if node.dtype == "bool":
        return "true" if value else "false"
    if node.dtype in ("i32", "i64"):
        suffix = "LL" if node.dtype == "i64" else ""
        least = -(2**63) if node.dtype == "i64" else -(2**31)
        if value == least:  # C++ has no negative literals: -2147483648 negates a wider type
            return f"({least + 1}{suffix} - 1{suffix})"
        return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"
    if math.isnan(value) or math.isinf(value):
        name = "nan" if math.isnan(value) else "inf"
        return f"({'-' if value < 0 else ''}ge2::{name}_{node.dtype}())"
    text = str(np.float32(value)) + "f" if node.dtype == "f32" else repr(value)
    return f"({text})" if text.startswith("-") else text
