"""Specialization classes: which bindings of the named dimensions share plans and kernels.

A class says of each dimension which of a few ranges it lies in and whether it is a multiple of 8,
so that 16-byte accesses stay aligned. Nothing depends on the order in which sizes arrive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from .ir.size import Range

EDGES = (1024, 4096, 65536, 2**31 - 1)
MULTIPLE = 8
_COARSE = 4096
_SMALL, _LARGE = (128, 512), (8192, 16384)
_UNITS, _UNIT = (1, 4, 16, 64, 256, 1024, 4096), (16,)
_PRIMES = (17, 23, 19, 29, 31, 37, 41, 43, 47, 53)


@dataclass(frozen=True, slots=True, eq=False)
class SizeClass:
    """A range of each named dimension, in the order of names; classify() makes one of each."""

    names: tuple[str, ...]
    ranges: tuple[Range, ...]

    def example(self, number: int = 0) -> dict[str, int]:
        """Return a typical member: numbers count different ones.

        No two of its extents have a large factor in common, so that nothing fits by accident.
        """
        return {name: _aligned(known, max(known.low, 1) // MULTIPLE + _prime(index + 3 * number))
                for index, (name, known) in enumerate(zip(self.names, self.ranges, strict=True))}

    def others(self, member: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield members unlike a given one, those first that differ in every extent.

        Small ones and near ones are among them: they meet the conditions that small products set.
        """
        shifts = [{name: value + step * (index + 1) * MULTIPLE
                   for index, (name, value) in enumerate(member.items())}
                  for step in (1, -1, 3, -3)]
        low = [[(r.low // MULTIPLE + step) * MULTIPLE if r.multiple == MULTIPLE else r.low + step
                for step in (1, 2, 4)] for r in self.ranges]
        small = [dict(zip(self.names, values, strict=True)) for values in product(*low)]
        alone = [{**member, name: value + step} for name, value in member.items()
                 for step in (MULTIPLE, -MULTIPLE)]
        typical = [self.example(number) for number in (1, 2, 0)]
        for found in (*typical, *shifts, *small, *alone):
            if found != member and all(r.low <= found[name] <= r.high for name, r in zip(
                    self.names, self.ranges, strict=True)):
                yield found

    def aligned_but_for(self, names: frozenset[str]) -> SizeClass:
        """Return the class in which all other dimensions are multiples of 8."""
        return SizeClass(self.names, tuple(
            known if name in names else Range(known.low, known.high, MULTIPLE)
            for name, known in zip(self.names, self.ranges, strict=True)))

    def samples(self, *, narrow: bool) -> list[dict[str, int]]:
        """Return members that a choice of kernels is judged by.

        Args:
            narrow: all within the ranges; else neighbouring ranges have the same samples, so that
                they share kernels.
        """
        if narrow:
            return [{n: _aligned(r, (r.low + share * (r.high - r.low) // 8) // MULTIPLE + 1)
                     for n, r in zip(self.names, self.ranges, strict=True)} for share in (1, 4)]
        large = any(known.high > _COARSE for known in self.ranges)
        return [{n: _aligned(r, (i if r.high > _COARSE else j) // MULTIPLE)
                 for n, r in zip(self.names, self.ranges, strict=True)}
                for i, j in zip(_LARGE if large else _SMALL, _SMALL, strict=True)]

    def members(self, varied: Iterable[str]) -> list[dict[str, int]]:
        """Return members of all magnitudes in some dimensions, whatever the ranges."""
        varied = set(varied)
        extents = [[_aligned(known, units) for units in (_UNITS if name in varied else _UNIT)]
                   for name, known in zip(self.names, self.ranges, strict=True)]
        return [dict(zip(self.names, values, strict=True)) for values in product(*extents)]


def _prime(index: int) -> int:
    return _PRIMES[index % len(_PRIMES)] + 8 * (index // len(_PRIMES))


def _aligned(known: Range, units: int) -> int:
    return units * MULTIPLE + (0 if known.multiple == MULTIPLE else 1)


def classify(values: Mapping[str, int]) -> SizeClass | None:
    """Return the class of a binding; None where a dimension is 0 or has no class."""
    places = tuple((bisect_left(EDGES, value), value % MULTIPLE == 0) for value in values.values())
    if any(value < 1 or value > EDGES[-1] for value in values.values()):
        return None
    return _class_of(tuple(values), places)


@lru_cache(maxsize=4096)
def _class_of(names: tuple[str, ...], places: tuple[tuple[int, bool], ...]) -> SizeClass:
    return SizeClass(names, tuple(
        Range(EDGES[place - 1] + 1 if place else 1, EDGES[place], MULTIPLE if aligned else 1)
        for place, aligned in places))
