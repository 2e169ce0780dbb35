"""Sizes: ints that remember how they follow from the named dimensions of a class of shapes.

Code that plans and binds with ordinary ints works on sizes as well. Arithmetic keeps the
expression beside the value. A comparison is answered for the whole class: from the bounds of the
named dimensions where they decide it; two expressions that differ count as different, and a
remainder that need not be zero counts as not zero, since nothing may rely on a coincidence; any
other answer is the one at the class's example, and becomes a condition that each member of the
class is checked for.

Where an int is needed that no expression follows (a loop count, a table index), code asks
at_most(), or takes the int and so makes the planner see two examples differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from threading import local
from typing import Any

from ...errors import GraphError
from .dim import Dim, Extent, call, evaluate

_FAR = 2**62


class NotSymbolic(Exception):
    """A size was used in a way that has no expression; the class has to be planned per size."""


@dataclass(frozen=True, slots=True)
class Range:
    """What all members of a class know of one named dimension.

    Attributes:
        low, high: the least and the greatest value.
        multiple: a power of two that divides all values.
    """

    low: int
    high: int
    multiple: int = 1


@dataclass(eq=False)
class Space:
    """A class of bindings of the named dimensions, seen at one example.

    Attributes:
        ranges: what is known of each dimension. Decisions treat each as 2 or more, so that no axis
            is taken for one of extent 1.
        example: a value of each dimension.
        conditions: expression -> whether it is above zero; what the example decided.
    """

    ranges: Mapping[str, Range]
    example: Mapping[str, int]
    conditions: dict[Dim, bool] = field(default_factory=dict)
    _sizes: dict[Dim, Size] = field(default_factory=dict)
    _signs: dict[Extent, int | None] = field(default_factory=dict)

    def size(self, extent: Extent) -> int:
        """Return an extent as a Size, or as an int where it is one."""
        if isinstance(extent, int):
            return extent
        found = self._sizes.get(extent)
        if found is None:
            found = self._sizes[extent] = Size(extent, self)
        return found

    def decide(self, dim: Dim) -> bool:
        """Return whether an expression is above zero, as a condition of the class."""
        if dim not in self.conditions:
            self.conditions[dim] = evaluate(dim, self.example) > 0
        return self.conditions[dim]

    def holds(self, values: Mapping[str, int]) -> bool:
        """Return whether a binding meets all conditions."""
        return all((evaluate(dim, values) > 0) == wanted
                   for dim, wanted in self.conditions.items())

    def sign(self, extent: Extent) -> int | None:
        """Return 1, 0 or -1 where an expression has that sign for all members, else None."""
        if extent not in self._signs:
            low, high = self.bounds(_reduced(extent) if isinstance(extent, Dim) else extent)
            self._signs[extent] = (1 if low > 0 else -1 if high < 0 else
                                   0 if low == high == 0 else None)
        return self._signs[extent]

    def bounds(self, extent: Extent) -> tuple[int, int]:
        """Return bounds of an expression, not always the narrowest."""
        if isinstance(extent, int):
            return extent, extent
        low = high = 0
        for mono, factor in extent.terms.items():
            least, most = 1, 1
            for atom, power in mono:
                few, many = self._atom_bounds(atom)
                for _ in range(power):
                    corners = (least * few, least * many, most * few, most * many)
                    least, most = max(min(corners), -_FAR), min(max(corners), _FAR)
            low += min(factor * least, factor * most)
            high += max(factor * least, factor * most)
        return low, high

    def _atom_bounds(self, atom: Any) -> tuple[int, int]:
        if atom.kind == "symbol":
            known = self.ranges[atom.text]
            return max(known.low, 2), max(known.high, 2)
        if atom.kind == "//" and isinstance(atom.args[1], int) and atom.args[1] > 0:
            low, high = self.bounds(atom.args[0])
            return low // atom.args[1], high // atom.args[1]
        if atom.kind == "%" and isinstance(atom.args[1], int) and atom.args[1] > 0:
            return 0, atom.args[1] - 1
        if atom.function in (min, max):
            lows, highs = zip(*map(self.bounds, atom.args), strict=True)
            return atom.function(lows), atom.function(highs)
        return -_FAR, _FAR

    def divisor(self, extent: Extent, raised: Mapping[str, int] | None = None) -> int:
        """Return a number that divides an expression for all members.

        Args:
            extent: the expression.
            raised: multiples of named dimensions to take instead of the class's.
        """
        raised = raised or {}
        if isinstance(extent, int):
            return extent
        found = 0
        for mono, factor in extent.terms.items():
            for atom, power in mono:
                if atom.kind == "symbol":
                    factor *= raised.get(atom.text, self.ranges[atom.text].multiple) ** power
            found = gcd(found, factor)
        return found


class Size(int):
    """An int with the expression that it is the value of at its class's example."""

    dim: Dim
    space: Space

    def __new__(cls, dim: Dim, space: Space) -> Size:
        made = super().__new__(cls, evaluate(dim, space.example))
        made.dim, made.space = dim, space
        return made

    def __hash__(self) -> int:
        # Caches must tell spaces apart: another class decides otherwise.
        return hash((id(self.space), self.dim))

    def __repr__(self) -> str:
        return repr(self.dim)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __int__(self) -> int:
        raise NotSymbolic(f"{self} was turned into an int")

    def __float__(self) -> float:
        raise NotSymbolic(f"{self} was turned into a float")

    def __reduce__(self) -> Any:
        raise NotSymbolic(f"{self} was copied")

    # -- arithmetic ---------------------------------------------------------------------------

    def __add__(self, other: int) -> int:
        return self.space.size(_sum(self.dim, _dim(other)))

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return self.space.size(_difference(self.dim, _dim(other)))

    def __rsub__(self, other: int) -> int:
        return self.space.size(-self.dim + _dim(other))

    def __mul__(self, other: int) -> int:
        if isinstance(other, float):
            raise NotSymbolic(f"{self} was turned into a float")
        return self.space.size(_product(self.dim, _dim(other)))

    __rmul__ = __mul__

    def __neg__(self) -> int:
        return self.space.size(-self.dim)

    def __pos__(self) -> int:
        return self

    def __abs__(self) -> int:
        return -self if self < 0 else self

    def __floordiv__(self, other: int) -> int:
        try:
            return self.space.size(self.dim // _dim(other))
        except GraphError:
            return _called(floor_divide, self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _called(floor_divide, other, self)

    def __mod__(self, other: int) -> int:
        if not isinstance(other, Size) and self.space.divisor(self.dim) % other == 0:
            return 0
        try:
            return self.space.size(self.dim % _dim(other))
        except GraphError as error:
            raise NotSymbolic(f"{self} % {other}") from error

    def __and__(self, other: int) -> int:
        """Return x & -x, the lowest set bit, as far as all members share it."""
        if not isinstance(other, Size) or self.dim + other.dim != 0:
            raise NotSymbolic(f"{self} & {other}")
        known = self.space.divisor(self.dim)
        return known & -known

    def _refuse(self, *others: Any) -> Any:
        raise NotSymbolic(f"no expression follows this use of {self}")

    __rmod__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _refuse
    __truediv__ = __rtruediv__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse
    __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = __round__ = _refuse

    def bit_length(self) -> int:
        """There is none that all members share; see at_most()."""
        raise NotSymbolic(f"bits of {self} were counted")

    # -- decisions ----------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return self != 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return NotImplemented
        gap = _difference(self.dim, _dim(other))
        if isinstance(gap, int):
            return gap == 0
        is_open = other == 0 and not isinstance(other, Size) and not _is_remainder(self.dim)
        if is_open and self.space.sign(gap) is None:
            return not self.space.decide(gap) and not self.space.decide(_negated(gap))
        return False

    def __ne__(self, other: object) -> bool:
        if not isinstance(other, int):
            return NotImplemented
        return not self == other

    def __gt__(self, other: int) -> bool:
        if isinstance(other, float):
            raise NotSymbolic(f"{self} was turned into a float")
        return self._above(_difference(self.dim, _dim(other)))

    def __lt__(self, other: int) -> bool:
        if isinstance(other, float):
            raise NotSymbolic(f"{self} was turned into a float")
        return self._above(_difference(_dim(other), self.dim))

    def __ge__(self, other: int) -> bool:
        return not self < other

    def __le__(self, other: int) -> bool:
        return not self > other

    def _above(self, gap: Extent) -> bool:
        """Return whether an expression is above zero."""
        sign = self.space.sign(gap)
        if sign is not None or isinstance(gap, int):
            return sign == 1
        return self.space.bounds(gap)[1] > 0 and self.space.decide(gap)


# Layers of a model ask the same again and again.
@lru_cache(maxsize=65536)
def _sum(first: Extent, second: Extent) -> Extent:
    return first + second


@lru_cache(maxsize=65536)
def _difference(first: Extent, second: Extent) -> Extent:
    return first - second


@lru_cache(maxsize=65536)
def _product(first: Extent, second: Extent) -> Extent:
    return first * second


def _dim(value: int) -> Extent:
    return value.dim if isinstance(value, Size) else value


def _negated(dim: Dim) -> Dim:
    return Dim({mono: -factor for mono, factor in dim.terms.items()})


def _reduced(dim: Dim) -> Extent:
    """Return an expression divided by the named dimensions that all its terms share."""
    shared = dict(next(iter(dim.terms)))
    for mono in dim.terms:
        powers = dict(mono)
        shared = {atom: min(power, powers[atom]) for atom, power in shared.items()
                  if atom.kind == "symbol" and atom in powers}
    if not shared:
        return dim
    factor = tuple(sorted(shared.items(), key=lambda item: item[0].text))
    return dim // Dim({factor: 1})


def _is_remainder(dim: Dim) -> bool:
    (mono, factor), *rest = dim.terms.items()
    return not rest and factor == 1 and len(mono) == 1 and mono[0][0].kind == "%"


# -- what plain int code asks where sizes may come ------------------------------------------------


def at_most(value: int) -> int:
    """Return the largest value that a number has in its class: itself where it is no Size."""
    if not isinstance(value, Size):
        return value
    bound = value.space.bounds(value.dim)[1]
    if bound >= 2**31:
        raise NotSymbolic(f"{value} has no bound")
    return bound


def common_divisor(first: int, second: int) -> int:
    """Return the greatest common divisor, as far as it is the same for the whole class."""
    known = [v.space.divisor(v.dim) if isinstance(v, Size) else v for v in (first, second)]
    return gcd(*known)


def smaller(first: int, second: int) -> int:
    """Return the smaller number; of sizes an expression, where min() would ask for a condition."""
    if isinstance(first, Size) or isinstance(second, Size):
        return _ordered(min, first, second)
    return min(first, second)


def larger(first: int, second: int) -> int:
    """Return the larger number; of sizes an expression, where max() would ask for a condition."""
    if isinstance(first, Size) or isinstance(second, Size):
        return _ordered(max, first, second)
    return max(first, second)


def floor_divide(top: int, bottom: int) -> int:
    """Return top // bottom."""
    return top // bottom


def _ordered(function: Callable[..., int], first: int, second: int) -> int:
    space = next(arg.space for arg in (first, second) if isinstance(arg, Size))
    low, high = space.bounds(_dim(first) - _dim(second))
    if low >= 0 or high <= 0:
        return second if (function is min) == (low >= 0) else first
    return _called(function, first, second)


def _called(function: Callable[..., int], *args: int) -> int:
    spaces = [arg.space for arg in args if isinstance(arg, Size)]
    if not spaces:
        return function(*args)
    return spaces[0].size(call(function, *map(_dim, args)))


def apply(function: Callable[..., int], size: int) -> int:
    """Return a function of a number; of a size an expression that calls it."""
    return _called(function, size)


def at(value: Any, values: Mapping[str, int]) -> Any:
    """Return a number, or a tuple or list with numbers in it, at a binding of the dimensions."""
    if isinstance(value, Size):
        return evaluate(value.dim, values)
    if isinstance(value, tuple | list):
        return type(value)(at(item, values) for item in value)
    return value


def as_example(value: Any) -> Any:
    """Return a number, or the numbers in tuples, lists and mappings, as plain ints."""
    if isinstance(value, Size):
        return int.__index__(value)
    if isinstance(value, Mapping):
        return {key: as_example(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(as_example(item) for item in value)
    return value


class _Tracing(local):
    depth = 0


_tracing = _Tracing()


@contextmanager
def tracing() -> Iterator[None]:
    """Within the block, this thread's argument structs record the sizes that they hold."""
    _tracing.depth += 1
    try:
        yield
    finally:
        _tracing.depth -= 1


def is_tracing() -> bool:
    """Whether this thread is inside tracing()."""
    return _tracing.depth > 0
