"""The example models on the GPU: the same numbers as the cpu backend, the promised accuracy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ge2

EXAMPLES = Path(__file__).parents[2] / "examples" / "digits"


@pytest.mark.parametrize(("file", "accuracy", "atol"), [
    ("model.json", 0.97, 2e-6), ("conv.json", 0.98, 2e-6), ("model-f16.json", 0.97, 2e-2)])
def test_digits(file: str, accuracy: float, atol: float) -> None:
    images = np.load(EXAMPLES / "images.npy")
    found = ge2.load(EXAMPLES / file, backend="cuda")(images)
    expected = ge2.load(EXAMPLES / file, backend="cpu")(images)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].astype("f4"), values.astype("f4"), atol=atol)
    labels = np.load(EXAMPLES / "labels.npy")
    assert (found["probabilities"].argmax(-1) == labels).mean() >= accuracy
