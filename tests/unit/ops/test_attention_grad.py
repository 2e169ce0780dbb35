"""The gradients of attention against differences of the attention itself, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ge2.compiler import opdefs

STEP = 1e-5


def attention(arrays: list[Any], attrs: dict[str, Any]) -> list[np.ndarray]:
    return opdefs.reference("ATTENTION", arrays, {**attrs, "lse": True})


CASES: dict[str, tuple[dict[str, Any], str, tuple[int, ...]]] = {
    # name: (attributes, kind of mask, lengths of keys)
    "plain": ({}, "", ()),
    "causal": ({"is_causal": True, "query_offset": 2}, "", ()),
    "before the keys": ({"is_causal": True, "query_offset": -2}, "", ()),
    "window": ({"left_window_size": 2, "right_window_size": 1, "query_offset": 1}, "", ()),
    "bias": ({"scale": 0.7}, "f64", ()),
    "flags": ({}, "bool", ()),
    "lengths": ({"is_causal": True}, "", (5, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_slopes_of_attention(name: str) -> None:
    """Along random directions of q, k and v, for a random weighting of the result."""
    attrs, mask, lengths = CASES[name]
    draw = np.random.default_rng(len(name))
    q, k, v = (draw.standard_normal(s) for s in ((2, 4, 3, 6), (2, 2, 7, 6), (2, 2, 7, 5)))
    flags = draw.random((1, 4, 3, 7)) < 0.5
    rest = [{"": None, "bool": flags, "f64": np.where(flags, 0.3, -np.inf)}[mask],
            np.array(lengths, np.int32) if lengths else None]
    y, lse = attention([q, k, v, *rest], attrs)
    weighting = draw.standard_normal(y.shape)
    found = opdefs.reference("ATTENTION_GRAD", [q, k, v, y, lse, weighting, *rest], attrs)
    for index, gradient in enumerate(found):
        assert gradient.shape == (q, k, v)[index].shape
        for _ in range(3):
            direction = draw.standard_normal(gradient.shape)
            sides = []
            for sign in (1, -1):
                moved = [q, k, v]
                moved[index] = moved[index] + sign * STEP * direction
                sides.append(np.sum(attention([*moved, *rest], attrs)[0] * weighting))
            slope = (sides[0] - sides[1]) / (2 * STEP)
            assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-7, abs=1e-8)


def test_a_sample_without_keys_has_no_gradient() -> None:
    shape = (1, 1, 2, 4)
    arrays = [np.ones(shape), np.ones(shape), np.ones(shape), np.zeros(shape),
              np.full(shape[:3], -np.inf), np.ones(shape), None, np.zeros(1, np.int64)]
    assert not any(np.any(g) for g in opdefs.reference("ATTENTION_GRAD", arrays, {}))
