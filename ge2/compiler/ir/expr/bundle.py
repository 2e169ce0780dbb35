"""Tuples of expressions as values: stable text, parsing, digests, the table of digests."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ....errors import GraphError, Invalid, near_matches
from ..scalar_ops import KINDS, SCALAR_OPS
from .node import (
    ROUNDING,
    Expr,
    Number,
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


@dataclass(frozen=True)
class ExprBundle:
    """One or more result expressions over numbered inputs; hashable, equal by structure.

    Raises:
        Invalid: no outputs, or one input is read with two dtypes.
    """

    outputs: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if not self.outputs:
            raise Invalid("an expression bundle needs an output")
        if len({e.value for e in self._inputs}) != len(self._inputs):
            raise Invalid("an input is read with two dtypes", found=self.text)

    @cached_property
    def _inputs(self) -> tuple[Expr, ...]:
        return tuple(e for e in walk(self.outputs) if e.kind == "input")

    @cached_property
    def n_inputs(self) -> int:
        """Number of inputs: the largest index that is read, plus one."""
        return max((int(e.value) + 1 for e in self._inputs), default=0)

    @cached_property
    def n_scalars(self) -> int:
        """Number of run-time scalars: the largest index that is read, plus one."""
        return max((int(e.value) + 1 for e in walk(self.outputs) if e.kind == "scalar"), default=0)

    @cached_property
    def input_dtypes(self) -> tuple[str | None, ...]:
        """Compute dtype of each input; None for one that is not read."""
        table = {e.value: e.dtype for e in self._inputs}
        return tuple(table.get(i) for i in range(self.n_inputs))

    @cached_property
    def text(self) -> str:
        """The stable text form, which parse reads back."""
        return _format(self.outputs)

    @cached_property
    def digest(self) -> int:
        """64-bit digest of the text; travels in params blocks."""
        raw = hashlib.blake2b(self.text.encode(), digest_size=8).digest()
        return int.from_bytes(raw, "little")

    def __str__(self) -> str:
        return self.text


class Interned(Protocol):
    """What the digest table can hold."""

    @property
    def digest(self) -> int:
        """A 64-bit digest of the value."""


_interned: dict[int, Interned] = {}


def intern(value: Interned) -> int:
    """Remember a value under its digest and return the digest."""
    _interned[value.digest] = value
    return value.digest


def lookup(digest: int) -> Interned:
    """Return the value that intern saw.

    Raises:
        Invalid: no such value in this process.
    """
    if digest not in _interned:
        raise Invalid("unknown expression id in a params block", found=hex(digest),
                      hint="Encode the block in the process that launches.")
    return _interned[digest]


_LEAF = {"input": "x", "coord": "c", "scalar": "s"}


def _format(outputs: tuple[Expr, ...]) -> str:
    names: dict[Expr, str] = {}
    lines: list[str] = []
    for node in walk(outputs):
        if node.kind in _LEAF:
            names[node] = f"{_LEAF[node.kind]}{node.value}{_suffix(node)}"
        elif node.kind == "const":
            names[node] = _number(node) + _suffix(node)
        else:
            names[node] = f"t{len(lines)}"
            op = {"select": "select", "cast": f"cast_{node.op}"}.get(node.kind, node.op)
            lines.append(f"{names[node]} = {op}({', '.join(names[a] for a in node.args)})")
    return "; ".join([*lines, ", ".join(names[node] for node in outputs)])


def _suffix(node: Expr) -> str:
    implied = {"coord": "i64"}.get(node.kind, "f32")
    if node.kind == "const" and node.dtype == "bool":
        return ""
    return "" if node.dtype == implied else f":{node.dtype}"


def _number(node: Expr) -> str:
    if node.dtype == "bool":
        return "true" if node.value else "false"
    if node.dtype == "f32":
        return str(np.float32(node.value))  # the shortest text that reads back to the same float
    return repr(node.value)


_CALL = re.compile(r"(t\d+) = (\w+)\(([^()]*)\)")
_LEAF_TEXT = re.compile(r"([xcs])(\d+)(?::(\w+))?")
_CONST_TEXT = re.compile(r"([-+]?(?:inf|nan|[\d.]+(?:e[-+]?\d+)?))(?::(\w+))?")


def parse(text: str) -> ExprBundle:
    """Return the bundle that a text form describes.

    Raises:
        GraphError: the text is malformed or names an unknown primitive.
    """
    *calls, results = [part.strip() for part in text.split(";")]
    names: dict[str, Expr] = {}
    try:
        for call in calls:
            match = _CALL.fullmatch(call)
            if match is None:
                raise GraphError("malformed expression step", found=repr(call),
                                 wanted="tN = op(operands)")
            name, op, args = match.groups()
            names[name] = _call(op, [_operand(a.strip(), names) for a in args.split(",")])
        return ExprBundle(tuple(_operand(r.strip(), names) for r in results.split(",")))
    except Invalid as error:
        raise GraphError(f"bad expression {text!r}: {error}") from error


def _call(op: str, args: list[Expr]) -> Expr:
    if op == "select" and len(args) == 3:
        return select(*args)
    target = op.removeprefix("cast_")
    if op.startswith("cast_") and len(args) == 1 and (target in KINDS or target in ROUNDING):
        return cast(args[0], target)
    if op in SCALAR_OPS and SCALAR_OPS[op].arity == len(args):
        return unary(op, args[0]) if len(args) == 1 else binary(op, args[0], args[1])
    raise GraphError(f"unknown primitive {op!r} of {len(args)} operands",
                     hint=near_matches(op, SCALAR_OPS))


def _operand(text: str, names: dict[str, Expr]) -> Expr:
    if text in names:
        return names[text]
    if text in ("true", "false"):
        return const(text == "true", "bool")
    leaf = _LEAF_TEXT.fullmatch(text)
    if leaf is not None:
        index = int(leaf[2])
        if leaf[1] == "c":
            return coord(index)
        return (input if leaf[1] == "x" else scalar)(index, leaf[3] or "f32")
    number = _CONST_TEXT.fullmatch(text)
    if number is None:
        raise GraphError("unknown operand in an expression", found=repr(text))
    dtype = number[2] or "f32"
    value: Number = int(number[1]) if KINDS.get(dtype) == "i" else float(number[1])
    return const(value, dtype)
