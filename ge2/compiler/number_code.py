"""One generated function that computes all numbers of a plan from the named dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from .ir.dim import Atom, Dim, Extent
from .ir.size import Size

Ints = tuple[int, ...]


class Numbers:
    """A table of distinct numbers; each is an expression of named dimensions, or a constant.

    Args:
        names: the dimensions, in the order of the generated functions' arguments.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._arguments = {name: f"s{index}" for index, name in enumerate(names)}
        self._indices: dict[Extent, int] = {}

    def get(self, values: Sequence[int]) -> Callable[[Ints], Ints]:
        """Return a function that picks these values from what the generated function returns."""
        extents = [value.dim if isinstance(value, Size) else value for value in values]
        if not extents:
            return lambda _numbers: ()
        picked = [self._indices.setdefault(extent, len(self._indices)) for extent in extents]
        if len(picked) == 1:
            (only,) = picked
            return lambda numbers: (numbers[only],)
        return itemgetter(*picked)

    def function(self) -> Callable[..., Ints]:
        """Return the function of the dimensions that computes the whole table."""
        code = _Code(self._arguments)
        results = [code.of(extent) for extent in self._indices]
        function: Callable[..., Ints] = code.build(f"({''.join(f'{r}, ' for r in results)})")
        return function

    def check(self, conditions: Mapping[Dim, bool]) -> Callable[..., bool]:
        """Return the function of the dimensions that says whether conditions hold."""
        code = _Code(self._arguments)
        tests = [f"{code.of(dim)} {'>' if wanted else '<='} 0"
                 for dim, wanted in conditions.items()]
        function: Callable[..., bool] = code.build(" and ".join(tests) or "True")
        return function


class _Code:
    """Lines of Python in which each expression is computed once."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._lines: list[str] = []
        self._known: dict[object, str] = {}
        self._functions: dict[str, Callable[..., int]] = {}

    def of(self, extent: Extent) -> str:
        """Return the Python expression of an extent."""
        if isinstance(extent, int):
            return repr(int(extent))
        words = [self._product(mono, factor) for mono, factor in extent.terms.items()]
        return words[0] if len(words) == 1 else self._named(extent, " + ".join(words))

    def build(self, result: str) -> Any:
        """Return the function that computes all lines and returns a result."""
        body = "\n    ".join([*self._lines, f"return {result}"])
        text = f"def numbers({', '.join(self._arguments.values())}):\n    {body}\n"
        scope: dict[str, Any] = dict(self._functions)
        exec(compile(text, "<numbers of a plan>", "exec"), scope)
        return scope["numbers"]

    def _named(self, key: object, text: str) -> str:
        if key not in self._known:
            self._known[key] = f"t{len(self._lines)}"
            self._lines.append(f"{self._known[key]} = {text}")
        return self._known[key]

    def _product(self, mono: tuple[tuple[Atom, int], ...], factor: int) -> str:
        words = [self._atom(atom) for atom, power in mono for _ in range(power)]
        if len(words) > 1:
            words = [self._named(("product", mono), " * ".join(words))]
        if factor != 1 or not words:
            words.append(str(factor))
        return words[0] if len(words) == 1 else self._named((mono, factor), " * ".join(words))

    def _atom(self, atom: Atom) -> str:
        if atom.kind == "symbol":
            return self._arguments[atom.text]
        operands = [self.of(operand) for operand in atom.args]
        if atom.function is not None:
            name = f"f_{atom.function.__name__.lstrip('_')}"
            self._functions[name] = atom.function
            return self._named(atom, f"{name}({', '.join(operands)})")
        return self._named(atom, f"{operands[0]} {atom.kind} {operands[1]}")
