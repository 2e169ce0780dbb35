"""Loading, calling, state, symbolic sizes, load time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ge2
from ge2.errors import GraphError, Invalid, ModelError
from ge2.model import GraphBuilder

from .folders import good_document, write_folder


def expected(x: np.ndarray, folder: Path) -> np.ndarray:
    from safetensors.numpy import load_file

    weights = load_file(folder / "weights.safetensors")
    logits = x @ weights["w"] + weights["b"]
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("batch", [1, 5, 0])
def test_call(tmp_path: Path, batch: int) -> None:
    model = ge2.load(write_folder(tmp_path), backend="cpu")
    x = np.random.default_rng(1).standard_normal((batch, 4)).astype("f4")
    got = model(x)["y"]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected(x, tmp_path), rtol=1e-5)
    np.testing.assert_array_equal(model(x=x)["y"], got)


@pytest.mark.parametrize("feeds,wanted", [
    ({}, "no value for input 'x'; wanted x: f32[batch, 4]"),
    ({"x": np.ones((2, 4), "f4"), "z": 1}, "no input 'z'"),
    ({"xx": np.ones((2, 4), "f4")}, "no input 'xx'; wanted x: f32[batch, 4]. Did you mean x?"),
    ({"x": np.ones((2, 4), "f8")}, "another element type; found f64; wanted f32"),
    ({"x": np.ones((2, 4), "c8")}, "another element type; found complex64"),
    ({"x": np.ones((2, 5), "f4")}, "another shape; found (2, 5); wanted f32[batch, 4]"),
    ({"x": np.ones(4, "f4")}, "another rank; found (4,)"),
])
def test_bad_feeds(tmp_path: Path, feeds: dict[str, Any], wanted: str) -> None:
    model = ge2.load(write_folder(tmp_path), backend="cpu")
    with pytest.raises(ModelError) as caught:
        model(**feeds)
    assert wanted in str(caught.value)


def test_sizes_that_disagree() -> None:
    g = GraphBuilder()
    a = g.input("a", "f32", ["n", 2])
    b = g.input("b", "f32", ["n", 2])
    g.output("y", a + b)
    model = g.model(backend="cpu")
    with pytest.raises(ModelError, match=r"axis 0 disagrees about n; found 4; wanted 3 \(from "
                       r"input 'a'\)"):
        model(np.ones((3, 2), "f4"), np.ones((4, 2), "f4"))


def test_nodes_in_any_order(tmp_path: Path) -> None:
    document = good_document()
    document["nodes"].reverse()
    model = ge2.load(write_folder(tmp_path, document), backend="cpu")
    assert [node.name for node in model.graph.nodes] == ["fc", "bias", "soft"]


def test_weights_are_mapped_and_read_only(tmp_path: Path) -> None:
    weight = ge2.load(write_folder(tmp_path)).graph.constants["w"]
    base: Any = weight
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError):
        weight[0, 0] = 1


def test_state_carries_over(tmp_path: Path) -> None:
    g = GraphBuilder("counter")
    x = g.input("x", "f32", [3])
    total = g.state("total", "f32", [3])
    after = g.add(total, x)
    g.set_state(total, after)
    g.output("twice", after * 2.0)
    for model in (g.model(backend="cpu"),
                  ge2.load(g.save(tmp_path / "counter"), backend="cpu")):
        one = np.array([1, 2, 3], "f4")
        assert list(model.inputs) == ["x"]
        assert list(model(one)) == ["twice"]
        np.testing.assert_array_equal(model(one)["twice"], 4 * one)
        model.reset_state()
        np.testing.assert_array_equal(model(one)["twice"], 2 * one)


def test_state_of_another_type() -> None:
    g = GraphBuilder()
    total = g.state("total", "f32", [3])
    with pytest.raises(GraphError, match=r"found f32\[3, 1\]; wanted f32\[3\]"):
        g.set_state(total, g.reshape(total, shape=[3, 1]))


def test_prepare_names_the_dimensions(tmp_path: Path) -> None:
    model = ge2.load(write_folder(tmp_path), backend="cpu")
    assert model.prepare(batch=3) is model
    with pytest.raises(Invalid, match="found none; wanted batch"):
        model.prepare()
    with pytest.raises(Invalid, match="found batsch; wanted batch"):
        model.prepare(batsch=1)


def test_float_words(tmp_path: Path) -> None:
    document = good_document()
    document["nodes"][2] = {"op": "CLIP", "inputs": ["s"], "outputs": ["y"],
                            "attrs": {"min": "-inf", "max": 0.5}}
    model = ge2.load(write_folder(tmp_path, document), backend="cpu")
    x = np.random.default_rng(1).standard_normal((6, 4)).astype("f4")
    assert model(x)["y"].max() == 0.5


def test_chain_of_10000_nodes_loads_within_a_second(tmp_path: Path) -> None:
    nodes = [{"op": "RELU" if i % 2 else "TANH", "name": f"n{i}", "inputs": [f"v{i}"],
              "outputs": [f"v{i + 1}"]} for i in range(10_000)]
    path = tmp_path / "long.json"
    path.write_text(json.dumps({
        "ge2": 1, "inputs": [{"name": "v0", "dtype": "f32", "shape": ["batch", 64]}],
        "outputs": ["v10000"], "nodes": nodes}))
    ge2.load(write_folder(tmp_path))  # imports are not what is measured
    start = time.process_time()
    model = ge2.load(path)
    assert time.process_time() - start < 1.0
    assert len(model.graph.nodes) == 10_000
