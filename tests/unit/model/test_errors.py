"""Every way in which a model file can be wrong, and what the message must say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ge2
from ge2.errors import ModelError

from .folders import good_document, write_folder

Edit = Callable[[dict[str, Any]], Any]


def node(index: int, **changes: Any) -> Edit:
    return lambda d: d["nodes"][index].update(changes)


def put(*steps: Any, value: Any) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        at: Any = document
        for step in steps[:-1]:
            at = at[step]
        at[steps[-1]] = value

    return edit


EDITS: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "version": (put("ge2", value=2), ("$.ge2", "found 2", "wanted 1")),
    "version as text": (put("ge2", value="1"), ("$.ge2", 'found "1"')),
    "version missing": (lambda d: d.pop("ge2"), ("$.ge2", "missing")),
    "unknown key": (put("inptus", value=[]), ("$", "inptus", "inputs")),
    "unknown node key": (put("nodes", 1, "atrs", value={}), ("$.nodes[1]", "atrs", "attrs")),
    "missing key": (lambda d: d["nodes"][2].pop("op"), ("$.nodes[2]", "'op'")),
    "wrong type": (put("nodes", 1, "inputs", value="h"),
                   ("$.nodes[1].inputs", 'found "h"', "a list")),
    "wrong element type": (put("nodes", 1, "inputs", value=["h", 7]),
                           ("$.nodes[1].inputs[1]", "found 7", "a string")),
    "negative extent": (put("inputs", 0, "shape", value=["batch", -4]),
                        ("$.inputs[0].shape[1]", "found -4", "a whole number >= 0")),
    "dimension name": (put("inputs", 0, "shape", value=["a-b", 4]),
                       ("$.inputs[0].shape[0]", 'found "a-b"', "letters, digits and _")),
    "no outputs": (put("outputs", value=[]), ("$.outputs", "found []", "not empty")),
    "dtype": (put("inputs", 0, "dtype", value="float32"),
              ("$.inputs[0].dtype", "'float32'", "f32")),
    "too many elements": (put("inputs", 0, "shape", value=[2**40, 2**40]), ("$.inputs[0].shape",)),
    "operators": (lambda d: (node(0, op="MATMULL")(d), node(2, op="Softmx")(d)),
                  ("2 unknown operators", "'MATMULL' at $.nodes[0].op", "did you mean MATMUL,",
                   "'Softmx' at $.nodes[2].op", "did you mean SOFTMAX,")),
    "cycle": (node(0, inputs=["s", "w"]), ("$.inputs[0]", "no node reads 'x'")),
    "node that reads itself": (
        lambda d: d["nodes"].append({"op": "ADD", "name": "loop", "inputs": ["own", "y"],
                                     "outputs": ["own"]}),
        ("$.nodes[3]", "'loop' reads 'own', which it computes itself", "$.state")),
    "cycle of nodes": (
        lambda d: d["nodes"].extend([
            {"op": "ADD", "name": "there", "inputs": ["back", "y"], "outputs": ["there"]},
            {"op": "NEG", "name": "back", "inputs": ["there"], "outputs": ["back"]}]),
        ("$.nodes[3]", "cycle", "there -> back -> there")),
    "missing value": (node(1, inputs=["hh", "b"]), ("$.nodes[1].inputs[0]", "'hh'")),
    "missing weight": (node(1, inputs=["h", "bb"]),
                       ("$.nodes[1].inputs[1]", "'bb'", "weights.safetensors", "b?")),
    "missing input": (node(0, inputs=["x"]), ("$.nodes[0].inputs", "'B'", "MATMUL(")),
    "absent input": (node(0, inputs=["", "w"]), ("$.nodes[0].inputs", "missing", "MATMUL(")),
    "extra input": (node(2, inputs=["s", "b"]), ("$.nodes[2].inputs", "too many", "SOFTMAX(")),
    "unused input": (lambda d: d["inputs"].append({"name": "z", "dtype": "f32", "shape": [1]}),
                     ("$.inputs[1]", "no node reads 'z'")),
    "rank": (put("inputs", 0, "shape", value=[]), ("$.nodes[0]", "x: f32[]")),
    "shape": (put("inputs", 0, "shape", value=["batch", 5]),
              ("$.nodes[0]", "MATMUL 'fc'", "x: f32[batch, 5]",
               "w: f32[4, 3] from weights.safetensors")),
    "dtype of weights": (put("inputs", 0, "dtype", value="f16"),
                         ("$.nodes[0]", "f16", "w: f32[4, 3]")),
    "attribute": (put("nodes", 2, "attrs", value={"axes": -1}),
                  ("$.nodes[2]", "'axes'", "axis")),
    "attribute kind": (put("nodes", 2, "attrs", value={"axis": "last"}),
                       ("$.nodes[2].attrs.axis", "'last'", "int")),
    "attribute object": (put("nodes", 2, "attrs", value={"axis": {}}),
                         ("$.nodes[2].attrs.axis", "an object")),
    "attribute null": (put("nodes", 2, "attrs", value={"axis": None}),
                       ("$.nodes[2].attrs.axis", "null")),
    "attribute range": (put("nodes", 2, "attrs", value={"axis": 7}), ("$.nodes[2]", "7")),
    "input twice": (lambda d: d["inputs"].append(d["inputs"][0]), ("$.inputs[1].name", "'x'")),
    "node twice": (node(1, name="fc"), ("$.nodes[1].name", "'fc'", "$.nodes[0]")),
    "value twice": (node(1, outputs=["h"]), ("$.nodes[1].outputs[0]", "'h'", "made twice")),
    "value and weight": (node(1, outputs=["w"]), ("$.nodes[1].outputs[0]", "weights.safetensors")),
    "too many outputs": (node(2, outputs=["y", "z"]), ("$.nodes[2].outputs", "1 values")),
    "output": (put("outputs", value=["yy"]), ("$.outputs[0]", "'yy'", "Did you mean y?")),
    "output twice": (put("outputs", value=["y", "y"]), ("$.outputs[1]", "twice")),
    "output weight": (put("outputs", value=["w"]), ("$.outputs[0]", "weight")),
    "weights missing": (put("weights", value="weigths.safetensors"),
                        ("$.weights", "does not exist", "weights.safetensors?")),
    "weights outside": (put("weights", value="../weights.safetensors"),
                        ("$.weights", "outside", "'../weights.safetensors'")),
    "weights absolute": (put("weights", value="/etc/passwd"), ("$.weights", "outside")),
    "weights folder": (put("weights", value="."), ("$.weights", "folder")),
    "weights NUL": (put("weights", value="a\0b"), ("$.weights", "path")),
    "weights no safetensors": (put("weights", value="model.json"),
                               ("$.weights", "not a safetensors file")),
    "weights in another case": (node(0, inputs=["x", "W"]),
                                ("$.nodes[0].inputs[1]", "Did you mean w")),
    "absent among many": (node(1, op="MIN", inputs=["h", ""]), ("$.nodes[1]", "xs[0]", "absent")),
    "axis by name": (node(2, attrs={"axis": "batch"}), ("$.nodes[2]", "batch", "whole number")),
    "weights twice": (put("weights", value=["weights.safetensors", "weights.safetensors"]),
                      ("$.weights[1]", "'b'")),
    "control character": (put("inputs", 0, "name", value="x\n"), ("$.inputs[0].name",)),
    "sample file": (put("sample", value={"inputs": {"x": "x.npy"}}),
                    ("$.sample.inputs.x", "does not exist")),
    "sample input": (put("sample", value={"inputs": {"xx": "x.npy"}}),
                     ("$.sample.inputs.xx", "Did you mean x?")),
    "sample outside": (put("sample", value={"inputs": {"x": "../x.npy"}}),
                       ("$.sample.inputs.x", "outside")),
    "sample tolerance": (put("sample", value={"inputs": {}, "atol": -1}), ("$.sample.atol",)),
    "state": (put("state", value={"k": {"dtype": "f32", "shape": [1], "next": "kk"}}),
              ("$.state.k.next", "'kk'")),
    "state type": (put("state", value={"k": {"dtype": "f32", "shape": [1], "next": "s"}}),
                   ("$.state.k.next", "f32[batch, 3]", "f32[1]")),
}


@pytest.mark.parametrize("edit,wanted", EDITS.values(), ids=EDITS.keys())
def test_message(tmp_path: Path, edit: Edit, wanted: tuple[str, ...]) -> None:
    document = good_document()
    edit(document)
    path = write_folder(tmp_path, document)
    with pytest.raises(ModelError) as caught:
        ge2.load(path)
    message = str(caught.value)
    assert str(path) in message
    for part in wanted:
        assert part in message
    assert caught.value.exit_code == 3


TEXTS = {
    "empty": ("", "empty"),
    "blank": (" \n ", "empty"),
    "not JSON": ('{"ge2": 1,\n "inputs": [}', ":2:13: not JSON"),
    "text": ("hello", ":1:1: not JSON"),
    "array": ("[]", "found an array"),
    "number": ("7", "found a number"),
    "NaN": ('{"ge2": 1, "nodes": [{"attrs": {"epsilon": NaN}}]}',
            "$.nodes[0].attrs.epsilon: NaN"),
    "Infinity": ('{"ge2": 1, "nodes": [{"attrs": {"a": [1, -Infinity]}}]}', "attrs.a[1]: NaN"),
    "double key": ('{"ge2": 1, "nodes": [{}, {"op": "A", "op": "B"}]}',
                   "$.nodes[1]: key 'op' is given twice"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "long number": ('{"ge2": ' + "9" * 5000 + "}", "digits"),
}


@pytest.mark.parametrize("text,wanted", TEXTS.values(), ids=TEXTS.keys())
def test_text(tmp_path: Path, text: str, wanted: str) -> None:
    path = write_folder(tmp_path, text=text)
    with pytest.raises(ModelError) as caught:
        ge2.load(path)
    assert wanted in str(caught.value)
    assert str(path) in str(caught.value)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(ModelError, match="not UTF-8 text: byte 10 is 0xff"):
        ge2.load(path)


def test_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    write_folder(tmp_path)
    with pytest.raises(ModelError, match=r"does not exist\. Did you mean model\.json"):
        ge2.load(tmp_path / "modle.json")
    with pytest.raises(ModelError, match=r"folder .* does not exist either"):
        ge2.load(tmp_path / "no" / "model.json")


def test_folder_names_its_models(tmp_path: Path) -> None:
    write_folder(tmp_path)
    with pytest.raises(ModelError, match=r"is a folder.*model\.json"):
        ge2.load(tmp_path)


def test_link_out_of_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    write_folder(outside)
    path = write_folder(inside)
    (inside / "weights.safetensors").unlink()
    (inside / "weights.safetensors").symlink_to(outside / "weights.safetensors")
    with pytest.raises(ModelError, match="outside the model's folder"):
        ge2.load(path)


@pytest.mark.parametrize("keep", [0, 4, 8, 40, -1])
def test_truncated_weights(tmp_path: Path, keep: int) -> None:
    path = write_folder(tmp_path)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"\$\.weights: .*(truncated|not a safetensors)"):
        ge2.load(path)


def header_file(tmp_path: Path, header: Any) -> Path:
    path = write_folder(tmp_path)
    text = json.dumps(header).encode()
    (tmp_path / "weights.safetensors").write_bytes(len(text).to_bytes(8, "little") + text
                                                   + bytes(64))
    return path


@pytest.mark.parametrize("entry,wanted", [
    ({"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 44]}, "wrong size"),
    ({"dtype": "F32", "shape": [4, -3], "data_offsets": [0, 48]}, "broken header"),
    ({"dtype": "F32", "shape": [4, 3]}, "broken header"),
    ({"dtype": "C64", "shape": [4, 3], "data_offsets": [0, 48]}, "'C64'"),
    ([], "broken header"),
    ({"dtype": "F32", "shape": [40, 3], "data_offsets": [0, 480]}, "truncated"),
    ({"dtype": "F32", "shape": [True, 3], "data_offsets": [0, 12]}, "broken header"),
])
def test_bad_weights_entry(tmp_path: Path, entry: Any, wanted: str) -> None:
    with pytest.raises(ModelError, match=wanted):
        ge2.load(header_file(tmp_path, {"w": entry}))


def span(begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}


@pytest.mark.parametrize("header,wanted", [
    ({"a": span(0, 40), "b": span(24, 64)}, "tensors 'a' and 'b' overlap"),
    ({"a": span(0, 24), "b": span(32, 64)}, "the next tensor, or the end, at 24"),
    ({"a": span(0, 48)}, "found 64 bytes; wanted the next tensor, or the end, at 48"),
])
def test_bad_weights_layout(tmp_path: Path, header: Any, wanted: str) -> None:
    with pytest.raises(ModelError, match=wanted):
        ge2.load(header_file(tmp_path, header))


def test_tensor_twice_in_a_weights_file(tmp_path: Path) -> None:
    path = header_file(tmp_path, {"first": span(0, 32), "other": span(32, 64)})
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"other", b"first"))
    with pytest.raises(ModelError, match="'first' is in the header twice"):
        ge2.load(path)


def test_weight_of_another_shape(tmp_path: Path) -> None:
    from ge2.model.weights import save_weights

    path = write_folder(tmp_path)
    save_weights(tmp_path / "weights.safetensors",
                 {"w": np.ones((5, 3), "f4"), "b": np.ones(3, "f4")})
    with pytest.raises(ModelError, match=r"w: f32\[5, 3\] from weights\.safetensors"):
        ge2.load(path)
