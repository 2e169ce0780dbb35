"""Input files, random inputs and comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ge2.compiler.ir.dim import symbol
from ge2.compiler.ir.nodes import TensorType
from ge2.errors import ModelError
from ge2.model.compare import compare
from ge2.model.data import random_feeds, read_array, read_arrays


def test_files(tmp_path: Path) -> None:
    a = np.arange(6, dtype="f4").reshape(2, 3)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "b.npz", x=a, y=a + 1)
    (tmp_path / "c.csv").write_text("0,1,2\n3,4,5\n")
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), a)
    assert list(read_arrays(tmp_path / "b.npz")) == ["x", "y"]
    np.testing.assert_array_equal(read_array(tmp_path / "c.csv"), a)
    images = TensorType("u8", (symbol("n"), 3, 1))
    got = read_array(tmp_path / "c.csv", images)
    assert got.shape == (2, 3, 1) and got.dtype == np.uint8


@pytest.mark.parametrize("name,content,wanted", [
    ("a.npy", b"", "cannot be read as npy"),
    ("a.npy", b"\x93NUMPY\x01\x00\xff\xff{", "cannot be read as npy"),
    ("a.npz", b"PK\x03\x04 broken", "npz"),
    ("a.csv", b"1,2\n3\n", "cannot be read as csv"),
    ("a.csv", b"", "holds no numbers"),
    ("a.csv", b"\xff\xfe", "a.csv"),
    ("a.csv", b"one,two\n", "cannot be read as csv"),
    ("a.txt", b"1", "unknown suffix"),
])
def test_bad_files(tmp_path: Path, name: str, content: bytes, wanted: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=wanted):
        read_array(tmp_path / name)


def test_python_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ModelError, match="cannot be read as npy"):
        read_array(tmp_path / "a.npy")


def test_csv_of_integers_must_be_integers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1.5,2\n")
    with pytest.raises(ModelError, match="no u8"):
        read_array(tmp_path / "a.csv", TensorType("u8", (1, 2)))


def test_random_inputs_are_seeded() -> None:
    types = {"x": TensorType("f16", (symbol("n"), 2)), "i": TensorType("i64", (8,)),
             "b": TensorType("bool", (8,))}
    first, again = random_feeds(types, {"n": 3}, 5), random_feeds(types, {"n": 3}, 5)
    other = random_feeds(types, {"n": 3}, 6)
    assert first["x"].shape == (3, 2) and first["x"].dtype == np.float16
    assert set(first["i"]) <= {0, 1}
    np.testing.assert_array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])


def test_report_names_the_worst_element() -> None:
    want = np.array([[1.0, 2.0], [np.nan, np.inf]], "f4")
    found = want.copy()
    found[0, 1] = 2.5
    result = compare("y", found, want, atol=1e-3, rtol=0)
    assert not result.ok
    assert (result.over, result.index, result.max_abs) == (1, (0, 1), 0.5)
    text = result.report()
    assert "worst at [0, 1]: found 2.5, wanted 2" in text
    assert "NaN: 1 found, 1 wanted; Inf: 1 found, 1 wanted" in text


@pytest.mark.parametrize("found,ok", [
    ([np.nan, 1], False), ([np.inf, 1], False), ([0, 1], True), ([0, 1.0005], True),
    ([0, 1.002], False),
])
def test_special_values(found: list[float], ok: bool) -> None:
    result = compare("y", np.array(found), np.array([0.0, 1.0]), atol=0, rtol=1e-3)
    assert result.ok is ok


def test_shapes_that_differ() -> None:
    assert "shape (2,), wanted (3,)" in compare("y", np.ones(2), np.ones(3), atol=0,
                                                rtol=0).report()


def test_empty_arrays_match() -> None:
    assert compare("y", np.ones((0, 3)), np.ones((0, 3)), atol=0, rtol=0).ok
