"""Arithmetic of coordinates in 32 bits: the same values, and i64 kept where they may not fit."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.expr import cast, coord, evaluate, input, where
from ge2.compiler.ir.expr.narrow import narrow_coordinates
from ge2.compiler.ir.expr.node import walk

Q, K = coord(2), coord(3)
CASES = {
    "distance": input(0) + cast(Q - K, "f32") * 0.5,
    "band": where((K <= Q + 3).apply("logical_and", Q - K < 100), input(0), 0.0),
    "far constant": where(K + 2**40 > Q, input(0), 1.0),
    "product": cast(Q * K + 5, "f32"),
    "remainder": cast((Q + K).apply("mod", 7), "f32"),
    "index itself": Q + K,
}


@pytest.mark.parametrize("expr", CASES.values(), ids=CASES)
def test_keeps_values(expr):
    q, k = np.arange(9)[:, None], np.arange(11)
    args = [[np.linspace(-1, 1, 99).reshape(9, 11)], [0, 0, q, k]]
    wanted, = evaluate([expr], *args)
    found, = evaluate(narrow_coordinates([expr], 2**20), *args)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("name", "bound", "narrow"), [
    ("distance", 2**29, True), ("band", 2**29, True), ("distance", 2**31, False),
    ("far constant", 2**29, False), ("product", 2**15, True), ("product", 2**16, False)])
def test_narrows_what_fits(name, bound, narrow):
    made = narrow_coordinates([CASES[name]], bound)
    wide = [node for node in walk(made) if node.dtype == "i64" and node.kind == "binary"]
    assert (not wide) == narrow
