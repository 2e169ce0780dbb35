"""Covering arrays: few rows in which every pair of values of two factors occurs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any


def pairwise(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Return rows (factor -> value) such that each pair of values occurs in one of them.

    Greedy: each row starts from a pair that is still missing; the other factors take the value
    that covers most missing pairs.
    """
    names = list(factors)
    indices = {name: range(len(factors[name])) for name in names}
    missing = {
        (a, i, b, j)
        for a, b in itertools.combinations(names, 2)
        for i in indices[a] for j in indices[b]
    }
    draw = random.Random(seed)
    rows: list[dict[str, int]] = []
    while missing:
        a, i, b, j = min(missing)
        row = {a: i, b: j}
        rest = [name for name in names if name not in row]
        draw.shuffle(rest)
        for name in rest:
            choices = list(indices[name])
            draw.shuffle(choices)
            row[name] = max(choices, key=lambda v, n=name: _gain(row, n, v, missing, names))
        missing -= set(_pairs(row, names))
        rows.append(row)
    return [{name: factors[name][row[name]] for name in names} for row in rows]


def at_least(count: int, factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return count rows or a few more: covering arrays from several seeds, without repeats."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    seed = 0
    while len(rows) < count and seed < count:
        rows |= {tuple(row.values()): row for row in pairwise(factors, seed)}
        seed += 1
    return list(rows.values())


def _pairs(row: Mapping[str, int], names: Sequence[str]) -> list[tuple[str, int, str, int]]:
    return [(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)]


def _gain(row: Mapping[str, int], name: str, value: int, missing: set[Any],
          names: Sequence[str]) -> int:
    order = {n: k for k, n in enumerate(names)}
    gain = 0
    for other, taken in row.items():
        first, second = (name, value), (other, taken)
        if order[other] < order[name]:
            first, second = second, first
        gain += (*first, *second) in missing
    return gain
