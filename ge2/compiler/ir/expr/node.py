"""Expression nodes: immutable, one object per distinct expression, built by checked functions."""

from __future__ import annotations

import math
import struct
import threading
import weakref
from collections.abc import Iterable
from typing import Union

from ....errors import Invalid, near_matches
from ..scalar_ops import KINDS, SCALAR_OPS

Number = int | float | bool
Operand = Union["Expr", int, float, bool]

# Targets of a cast that round and then continue in a wider compute dtype.
ROUNDING = {"f16": "f32", "bf16": "f32", "f8e4m3": "f32", "f8e5m2": "f32", "u8": "i32",
            "i8": "i32"}


class Expr:
    """One node of an expression DAG. Equal expressions are the same object.

    Attributes:
        kind: input, coord, scalar, const, unary, binary, select or cast.
        op: the scalar primitive (unary, binary), the target dtype (cast), else "".
        args: operands.
        dtype: compute dtype of the value: f32, f64, i32, i64 or bool.
        value: the constant, or the index of an input, coordinate axis or scalar; 0 elsewhere.
    """

    __slots__ = ("__weakref__", "args", "dtype", "kind", "op", "value")
    kind: str
    op: str
    args: tuple[Expr, ...]
    dtype: str
    value: Number

    def apply(self, op: str, *others: Operand) -> Expr:
        """Return the unary or binary primitive op applied to this expression (and another)."""
        return binary(op, self, others[0]) if others else unary(op, self)

    def choose(self, yes: Operand, no: Operand, dtype: str = "f32") -> Expr:
        """Return where(self, yes, no); two plain numbers become constants of dtype."""
        return select(self, _lift_or(yes, dtype), _lift_or(no, dtype))

    def __reduce__(self) -> tuple[object, ...]:
        # Equal expressions stay the same object also when they come from another process.
        return _make, (self.kind, self.op, self.args, self.dtype, self.value)

    def __repr__(self) -> str:
        from .bundle import ExprBundle

        return f"Expr({ExprBundle((self,)).text!r})"

    def __add__(self, other: Operand) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("div", other, self)

    def __pow__(self, other: Operand) -> Expr:
        return binary("pow", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __lt__(self, other: Operand) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return binary("ge", self, other)

    def eq(self, other: Operand) -> Expr:
        """Return the comparison self == other (== itself compares identity)."""
        return binary("eq", self, other)

    def ne(self, other: Operand) -> Expr:
        """Return the comparison self != other."""
        return binary("ne", self, other)


_pool: weakref.WeakValueDictionary[tuple[object, ...], Expr] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _make(kind: str, op: str, args: tuple[Expr, ...], dtype: str, value: Number = 0) -> Expr:
    # The bits of a float tell 0.0 from -0.0 and make NaN equal to itself.
    bits = struct.pack("<d", value) if isinstance(value, float) else value
    key = (kind, op, args, dtype, bits)
    with _lock:
        found = _pool.get(key)
        if found is None:
            found = Expr()
            found.kind, found.op, found.args = kind, op, args
            found.dtype, found.value = dtype, value
            _pool[key] = found
        return found


def _check_dtype(dtype: str) -> str:
    if dtype not in KINDS:
        raise Invalid("not a compute dtype", found=dtype, wanted=", ".join(KINDS))
    return dtype


def input(index: int, dtype: str = "f32") -> Expr:
    """Return the element of operand number index, already converted to its compute dtype."""
    return _make("input", "", (), _check_dtype(dtype), int(index))


def coord(axis: int) -> Expr:
    """Return the element's index along an axis of the output, as i64."""
    return _make("coord", "", (), "i64", int(axis))


def scalar(index: int, dtype: str = "f32") -> Expr:
    """Return run-time scalar number index."""
    return _make("scalar", "", (), _check_dtype(dtype), int(index))


def const(value: Number, dtype: str = "f32") -> Expr:
    """Return a constant, rounded to dtype."""
    kind = KINDS[_check_dtype(dtype)]
    if kind == "b":
        return _make("const", "", (), dtype, bool(value))
    if kind == "i":
        bits = 32 if dtype == "i32" else 64
        if not -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1):
            raise Invalid(f"constant does not fit {dtype}", found=value)
        return _make("const", "", (), dtype, int(value))
    number = float(value)
    if math.isnan(number):
        number = math.nan  # one NaN: its sign and payload mean nothing here
    if dtype == "f32":
        number = _round_f32(number)
    return _make("const", "", (), dtype, number)


def _round_f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def unary(op: str, x: Expr) -> Expr:
    """Return a unary primitive of x.

    Raises:
        Invalid: no such primitive, or it does not take x's dtype.
    """
    row = SCALAR_OPS.get(op)
    if row is None or row.arity != 1:
        raise Invalid(f"unknown unary primitive {op!r}", hint=near_matches(op, SCALAR_OPS))
    _check_domain(op, x.dtype)
    return _make("unary", op, (x,), "bool" if row.result == "bool" else x.dtype)


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """Return a binary primitive; a plain number takes the dtype of the other operand.

    Raises:
        Invalid: no such primitive, unequal dtypes, or dtypes that it does not take.
    """
    row = SCALAR_OPS.get(op)
    if row is None or row.arity != 2:
        raise Invalid(f"unknown binary primitive {op!r}", hint=near_matches(op, SCALAR_OPS))
    if not isinstance(a, Expr):
        a = const(a, b.dtype if isinstance(b, Expr) else "f32")
    if not isinstance(b, Expr):
        b = const(b, a.dtype)
    if a.dtype != b.dtype:
        raise Invalid(f"operands of {op} differ in dtype", found=f"{a.dtype} and {b.dtype}",
                      hint="Cast one of them.")
    _check_domain(op, a.dtype)
    return _make("binary", op, (a, b), "bool" if row.result == "bool" else a.dtype)


def _check_domain(op: str, dtype: str) -> None:
    if KINDS[dtype] not in SCALAR_OPS[op].domain:
        raise Invalid(f"{op} does not take {dtype}", wanted=SCALAR_OPS[op].domain)


def select(condition: Expr, yes: Operand, no: Operand) -> Expr:
    """Return yes where condition (bool) holds, else no; the side not taken is not looked at.

    Raises:
        Invalid: the condition is not bool or the sides differ in dtype.
    """
    if isinstance(yes, Expr):
        no = _lift_or(no, yes.dtype)
    else:
        no = _lift_or(no, "f32")
        yes = _lift_or(yes, no.dtype)
    if condition.dtype != "bool" or yes.dtype != no.dtype:
        raise Invalid("select takes (bool, T, T)",
                      found=f"({condition.dtype}, {yes.dtype}, {no.dtype})")
    return _make("select", "", (condition, yes, no), yes.dtype)


def cast(x: Expr, dtype: str) -> Expr:
    """Return x converted to dtype.

    Floats of 16 and 8 bits are rounding points: the value is rounded (to 8 bits: and saturated)
    and goes on as f32. u8 and i8 wrap and go on as i32. A float to integer conversion truncates
    and saturates; NaN becomes 0.
    """
    result = ROUNDING.get(dtype, dtype)
    if dtype not in ROUNDING:
        _check_dtype(dtype)
    if x.dtype == dtype or (x.kind == "cast" and x.op == dtype and x.dtype == result):
        return x
    return _make("cast", dtype, (x,), result)


def _lift_or(x: Operand, dtype: str) -> Expr:
    return x if isinstance(x, Expr) else const(x, dtype)


def walk(outputs: Iterable[Expr]) -> list[Expr]:
    """Return every node below outputs once, operands before users."""
    order: list[Expr] = []
    done: set[Expr] = set()
    stack = [(node, False) for node in reversed(list(outputs))]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))
    return order
