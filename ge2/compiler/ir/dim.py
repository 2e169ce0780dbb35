"""Symbolic extents: integer polynomials over named dimensions.

An extent is a plain int or a Dim. Shape inference is written with ordinary arithmetic and works on
both. Equality is structural on a normal form: B + 1 == 1 + B, and two different symbols are never
taken as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn, Union

from ...errors import GraphError

Extent = Union[int, "Dim"]
_Monomial = tuple[tuple["Atom", int], ...]


class Atom:
    """A symbol, or an operation that does not simplify; interned by text.

    Attributes:
        kind: "symbol", "//", "%" or "call".
        text: unique; how the atom is shown.
        args: operands; none for a symbol.
        function: what a call evaluates.
    """

    _pool: ClassVar[dict[str, Atom]] = {}
    kind: str
    text: str
    args: tuple[Extent, ...]
    function: Callable[..., int] | None
    __slots__ = ("args", "function", "kind", "text")

    def __new__(cls, kind: str, text: str, args: tuple[Extent, ...] = (),
                function: Callable[..., int] | None = None) -> Atom:
        found = cls._pool.get(text)
        if found is None:
            found = super().__new__(cls)
            found.kind, found.text, found.args, found.function = kind, text, args, function
            cls._pool[text] = found
        return found

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the value under a binding of all symbols."""
        if self.kind == "symbol":
            if self.text not in values:
                raise GraphError(f"symbolic dimension {self.text!r} has no value",
                                 hint=f"Give one, for example --sym {self.text}=32")
            return values[self.text]
        operands = [evaluate(operand, values) for operand in self.args]
        if self.function is not None:
            return self.function(*operands)
        return operands[0] // operands[1] if self.kind == "//" else operands[0] % operands[1]


class Dim:
    """An integer polynomial that is not a constant."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[_Monomial, int]) -> None:
        self.terms = dict(sorted(terms.items(), key=lambda kv: [(a.text, p) for a, p in kv[0]]))
        self._hash = hash(tuple(self.terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __add__(self, other: Extent) -> Extent:
        terms = dict(self.terms)
        for mono, factor in _terms(other).items():
            terms[mono] = terms.get(mono, 0) + factor
        return _make(terms)

    __radd__ = __add__

    def __neg__(self) -> Extent:
        return self * -1

    def __sub__(self, other: Extent) -> Extent:
        return self + (-other)

    def __rsub__(self, other: Extent) -> Extent:
        return (-self) + other

    def __mul__(self, other: Extent) -> Extent:
        terms: dict[_Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in _terms(other).items():
                powers: dict[Atom, int] = dict(left)
                for atom, power in right:
                    powers[atom] = powers.get(atom, 0) + power
                mono = tuple(sorted(powers.items(), key=lambda p: p[0].text))
                terms[mono] = terms.get(mono, 0) + a * b
        return _make(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Extent) -> Extent:
        quotient = _divide(self, other)
        if quotient is not None:
            return quotient
        if not isinstance(other, int):
            raise GraphError(f"cannot divide {self} by {other}")
        return _make({((Atom("//", f"(({self}) // {other})", (self, other)), 1),): 1})

    def __mod__(self, other: Extent) -> Extent:
        if _divide(self, other) is not None:
            return 0
        if not isinstance(other, int):
            raise GraphError(f"cannot take {self} modulo {other}")
        return _make({((Atom("%", f"(({self}) % {other})", (self, other)), 1),): 1})

    def _unknown(self, _other: object = None) -> NoReturn:
        """Refuse what only a number can answer.

        Raises:
            GraphError: always.
        """
        raise GraphError("a named dimension is not known before a run", found=str(self),
                         wanted="a whole number")

    if not TYPE_CHECKING:  # mypy finds comparisons that forget named dimensions
        __lt__ = __le__ = __gt__ = __ge__ = __int__ = _unknown

    def __repr__(self) -> str:
        words = []
        for mono, factor in self.terms.items():
            names = [a.text if p == 1 else f"{a.text}**{p}" for a, p in mono]
            if factor != 1 or not names:
                names.insert(0, str(factor))
            words.append("*".join(names))
        return " + ".join(words)


def symbol(name: str) -> Dim:
    """Return the extent named name."""
    return Dim({((Atom("symbol", name), 1),): 1})


def call(function: Callable[..., int], *args: Extent) -> Extent:
    """Return a function's value as an extent; functions are told apart by their names."""
    if all(isinstance(arg, int) for arg in args):
        return function(*args)
    text = f"{function.__name__}({', '.join(map(repr, args))})"
    return _make({((Atom("call", text, args, function), 1),): 1})


def evaluate(extent: Extent, values: Mapping[str, int]) -> int:
    """Return the extent as an int.

    Raises:
        GraphError: a symbol has no value.
    """
    if isinstance(extent, int):
        return extent
    total = 0
    for mono, factor in extent.terms.items():
        for atom, power in mono:
            factor *= atom.evaluate(values) ** power
        total += factor
    return total


def symbols(extent: Extent) -> set[str]:
    """Return the names of the symbols in an extent."""
    if isinstance(extent, int):
        return set()
    names: set[str] = set()
    for mono in extent.terms:
        for atom, _ in mono:
            names |= {atom.text} if atom.kind == "symbol" else set()
            names |= {name for operand in atom.args for name in symbols(operand)}
    return names


def _terms(extent: Extent) -> Mapping[_Monomial, int]:
    return extent.terms if isinstance(extent, Dim) else {(): extent}


def _make(terms: Mapping[_Monomial, int]) -> Extent:
    kept = {mono: factor for mono, factor in terms.items() if factor}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    return Dim(kept)


def _divide(top: Dim, bottom: Extent) -> Extent | None:
    """Return top / bottom where it is exact by a constant or a monomial, else None."""
    if isinstance(bottom, int):
        if bottom and all(factor % bottom == 0 for factor in top.terms.values()):
            return _make({mono: factor // bottom for mono, factor in top.terms.items()})
        return None
    if len(bottom.terms) != 1:
        return 1 if top == bottom else None
    (mono, factor), = bottom.terms.items()
    result: dict[_Monomial, int] = {}
    for m, f in top.terms.items():
        powers = dict(m)
        for atom, power in mono:
            powers[atom] = powers.get(atom, 0) - power
        if f % factor or any(p < 0 for p in powers.values()):
            return None
        result[tuple((a, p) for a, p in sorted(powers.items(), key=lambda q: q[0].text) if p)] = (
            f // factor)
    return _make(result)
