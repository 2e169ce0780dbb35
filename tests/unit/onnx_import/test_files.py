"""ONNX files: external data, and files that are missing, truncated or something else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from ge2.cli import run
from ge2.errors import ModelError
from ge2.model import load
from ge2.model.onnx_import import read_onnx

from .models import model, node, value

W = np.arange(2048, dtype="f4").reshape(32, 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    proto = model([node("MatMul", "x w", "y")], [value("x", ["n", 32])], ["y"], weights={"w": W})
    onnx.save(proto, tmp_path / "inside.onnx")
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="w.bin",
              size_threshold=0)
    return tmp_path


def edit(path: Path, **entries: str) -> None:
    proto = onnx.load(path, load_external_data=False)
    tensor = proto.graph.initializer[0]
    kept = {e.key: e.value for e in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, text in kept.items():
        tensor.external_data.add(key=key, value=text)
    path.write_bytes(proto.SerializeToString())


def failure(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_onnx(path)
    assert caught.value.exit_code == 3
    return str(caught.value)


@pytest.mark.parametrize("name", ["inside.onnx", "model.onnx"])
def test_weights_inside_and_beside_the_file(folder, name):
    loaded = load(folder / name, backend="cpu")
    x = np.ones((2, 32), "f4")
    np.testing.assert_allclose(loaded(x=x)["y"], x @ W)


def test_weights_beside_the_file_are_mapped(folder):
    weights, = read_onnx(folder / "model.onnx").graph.constants.values()
    base = weights
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_missing_external_data(folder):
    (folder / "w.bin").unlink()
    assert "cannot be read" in failure(folder / "model.onnx")


def test_truncated_external_data(folder):
    data = (folder / "w.bin").read_bytes()
    (folder / "w.bin").write_bytes(data[:-1])
    text = failure(folder / "model.onnx")
    assert "truncated" in text and "'w'" in text


@pytest.mark.parametrize(("entries", "wanted"), [
    ({"location": "/etc/passwd"}, "outside the model's folder"),
    ({"location": "../w.bin"}, "outside the model's folder"),
    ({"location": ""}, "no location"),
    ({"offset": "-4"}, "bad offset"),
    ({"offset": "1e3"}, "bad offset"),
    ({"offset": "9" * 12}, "truncated"),
    ({"length": "12"}, "wrong length"),
])
def test_bad_places_of_external_data(folder, entries, wanted):
    edit(folder / "model.onnx", **entries)
    assert wanted in failure(folder / "model.onnx")


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "w.bin"
    (folder / "w.bin").rename(elsewhere)
    (folder / "w.bin").symlink_to(elsewhere)
    assert "outside the model's folder" in failure(folder / "model.onnx")


def test_every_truncation_is_an_error(folder):
    data = (folder / "inside.onnx").read_bytes()
    for end in [*range(0, 60), *range(60, len(data), 97), len(data) - 1]:
        (folder / "cut.onnx").write_bytes(data[:end])
        failure(folder / "cut.onnx")


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"PK\x03\x04 a zip", b"{}"])
def test_files_that_are_something_else(tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    assert "m.onnx" in failure(tmp_path / "m.onnx")


def test_missing_files_and_folders(tmp_path):
    (tmp_path / "model.onnx").mkdir()
    assert "is a folder" in failure(tmp_path / "model.onnx")
    assert "Did you mean model.onnx" in failure(tmp_path / "modl.onnx")


def test_import_writes_a_model_that_runs(folder, capsys):
    assert run(["import", str(folder / "model.onnx"), "-o", str(folder / "out")]) == 0
    printed = capsys.readouterr().out
    assert "x: f32[n, 32]" in printed
    assert run(["run", str(folder / "out/model.json"), "--backend", "cpu", "--check"]) == 0
    assert run(["run", str(folder / "model.onnx"), "--backend", "cpu", "--check"]) == 0
    assert run(["check", str(folder / "model.onnx")]) == 0


def test_import_fixes_dimensions_and_reports_what_it_cannot_take(folder, capsys):
    out = ["-o", str(folder / "out")]
    assert run(["import", str(folder / "model.onnx"), *out, "--sym", "n=3"]) == 0
    assert "x: f32[3, 32]" in capsys.readouterr().out
    assert run(["import", str(folder / "model.onnx"), *out, "--sym", "n=three"]) == 2
    proto = model([node("NonZero", "x", "y")], [value("x", [2])], ["y"])
    onnx.save(proto, folder / "bad.onnx")
    assert run(["import", str(folder / "bad.onnx"), *out]) == 3
    assert "NonZero (1)" in capsys.readouterr().err
