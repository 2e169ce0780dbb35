"""An operator that a user declared, by name in a model file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ge2
from ge2.compiler import opdefs
from ge2.compiler.ir.expr import absolute, maximum, where
from ge2.compiler.opdefs.user_rows import USER_ROWS


@pytest.fixture
def declared():
    @ge2.row_operator
    class TEST_PEAK_SCALE:
        """x divided by its largest magnitude, times a weight."""

        state = {"peak": 0.0}  # noqa: RUF012 - a declaration, not a default
        extras = ("weight",)

        def update(s, r):
            return [maximum(s.peak, absolute(r.x))]

        def merge(a, b):
            return [maximum(a.peak, b.peak)]

        def finish(s, r):
            return where(s.peak > 0.0, r.x / s.peak * r.extras[0], r.x * 0.0)

    yield "TEST_PEAK_SCALE"
    del opdefs.OPS["TEST_PEAK_SCALE"], USER_ROWS["TEST_PEAK_SCALE"]


def test_a_model_file_uses_it(declared: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({
        "ge2": 1, "name": "peaks",
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["rows", 300]},
                   {"name": "weight", "dtype": "f32", "shape": [300]}],
        "outputs": ["y"],
        "nodes": [{"op": declared, "name": "scale", "inputs": ["x", "weight"], "outputs": ["s"],
                   "attrs": {"axis": -1}},
                  {"op": "RELU", "name": "relu", "inputs": ["s"], "outputs": ["y"]}],
    }))
    draw = np.random.default_rng(5)
    x, weight = draw.standard_normal((6, 300)).astype("f4"), draw.standard_normal(300).astype("f4")
    x[2] = 0
    found = ge2.load(path, backend="emulate")(x=x, weight=weight)["y"]
    peak = np.abs(x).max(-1, keepdims=True)
    wanted = np.maximum(x / np.where(peak == 0, 1, peak) * weight, 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_without_the_declaration_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({
        "ge2": 1, "name": "peaks", "inputs": [{"name": "x", "dtype": "f32", "shape": [4, 30]}],
        "outputs": ["y"],
        "nodes": [{"op": "TEST_PEAK_SCALE", "name": "n", "inputs": ["x"], "outputs": ["y"]}]}))
    with pytest.raises(ge2.Ge2Error, match="TEST_PEAK_SCALE"):
        ge2.load(path)
