"""Sizes: values and expressions agree, and decisions hold for the whole class."""

from __future__ import annotations

import random

import pytest

from ge2.compiler.ir.dim import Dim, evaluate, symbol
from ge2.compiler.ir.size import (
    NotSymbolic,
    Range,
    Size,
    Space,
    at,
    at_most,
    common_divisor,
    larger,
    smaller,
)
from ge2.compiler.kernels.walk import divider


def _space(**example: int) -> Space:
    return Space({"b": Range(1, 100), "s": Range(1, 1024, 8)}, example or {"b": 17, "s": 136})


def _sizes(space: Space) -> tuple[int, int]:
    b, s = symbol("b"), symbol("s")
    assert isinstance(b, Dim) and isinstance(s, Dim)
    return space.size(b), space.size(s)


def test_random_arithmetic_gives_the_value_of_every_member() -> None:
    draw = random.Random(0)
    for _ in range(300):
        space = _space()
        pool: list[int] = [*_sizes(space), 1, 3, 64]
        steps = []
        for _ in range(8):
            op, i, j = draw.choice("+-*/%cmM"), draw.randrange(len(pool)), draw.randrange(5)
            steps.append((op, i, j))
            pool.append(_apply(op, pool[i], pool[j]))
        for values in ({"b": 17, "s": 136}, {"b": 5, "s": 8}, {"b": 99, "s": 1024}):
            plain = [values["b"], values["s"], 1, 3, 64]
            for op, i, j in steps:
                plain.append(_apply(op, plain[i], plain[j]))
            assert at(tuple(pool), values) == tuple(plain)


def _apply(op: str, x: int, y: int) -> int:
    if op in "/%c":
        return {"/": x // 8, "%": x % 16, "c": -(-x // 24)}[op]
    if op in "mM":
        return smaller(x, y) if op == "m" else larger(x, y)
    return {"+": x + y, "-": x - y, "*": x * y}[op]


def test_comparisons_that_bounds_decide_leave_no_condition() -> None:
    space = _space()
    b, s = _sizes(space)
    assert b > 0 and s * b >= s and not b > 100 and s * s - s > 0
    assert b != 0 and s and b * 64 != 0
    assert max(b, 1) is b and min(s * 64, 8) == 8
    assert not space.conditions


def test_other_comparisons_are_conditions_of_the_class() -> None:
    space = _space()
    b, s = _sizes(space)
    assert s > b and b < 50
    assert len(space.conditions) == 2
    assert space.holds({"b": 49, "s": 64})
    assert not space.holds({"b": 50, "s": 64}) and not space.holds({"b": 9, "s": 8})


def test_no_coincidence_counts() -> None:
    space = _space(b=64, s=64)
    b, s = _sizes(space)
    assert b != s and b != 64 and s != 1 and b != 1
    assert s % 8 == 0 and not s % 8
    assert b % 8 != 0 and bool(b % 8)
    assert (b * 8) % 8 == 0
    assert not space.conditions


def test_known_divisors_and_bounds() -> None:
    b, s = _sizes(_space())
    assert common_divisor(16, s) == 8 and common_divisor(16, b) == 1
    assert (s * 6) & -(s * 6) == 16 and b & -b == 1
    assert at_most(s + 1) == 1025 and at_most(7) == 7


def test_division_by_multiplication_follows_the_size() -> None:
    b, _ = _sizes(_space())
    for value in (1, 2, 3, 17, 64, 99):
        assert at(divider(b), {"b": value, "s": 8}) == divider(value)


def test_uses_without_an_expression_are_refused() -> None:
    b, s = _sizes(_space())
    for use in (lambda: int(b), lambda: float(b), lambda: b / 2, lambda: b << 1,
                lambda: b.bit_length(), lambda: 1 << b, lambda: s % b, lambda: b & 7):
        with pytest.raises(NotSymbolic):
            use()


def test_sizes_of_two_classes_are_two_keys() -> None:
    one, two = _sizes(_space())[0], _sizes(_space())[0]
    assert isinstance(one, Size) and isinstance(two, Size)
    assert hash(one) != hash(two)
    assert hash(one) == hash(one + 0)
    assert evaluate(one.dim, {"b": 3}) == 3
