"""Model folders that the tests break on purpose."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np

from ge2.model.weights import save_weights

GOOD: dict[str, Any] = {
    "ge2": 1,
    "name": "small",
    "inputs": [{"name": "x", "dtype": "f32", "shape": ["batch", 4]}],
    "outputs": ["y"],
    "weights": "weights.safetensors",
    "nodes": [
        {"op": "MATMUL", "name": "fc", "inputs": ["x", "w"], "outputs": ["h"]},
        {"op": "ADD", "name": "bias", "inputs": ["h", "b"], "outputs": ["s"]},
        {"op": "SOFTMAX", "name": "soft", "inputs": ["s"], "outputs": ["y"], "attrs": {"axis": -1}},
    ],
}


def good_document() -> dict[str, Any]:
    """Return a valid model document that the caller may change."""
    return copy.deepcopy(GOOD)


def write_folder(folder: Path, document: Any | None = None, text: str | None = None) -> Path:
    """Write a model folder and return the model file."""
    rng = np.random.default_rng(0)
    save_weights(folder / "weights.safetensors",
                 {"w": rng.standard_normal((4, 3)).astype("f4"), "b": np.ones(3, "f4")})
    path = folder / "model.json"
    body = text if text is not None else json.dumps(document or good_document())
    path.write_text(body, encoding="utf-8")
    return path
