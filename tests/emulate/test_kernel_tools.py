"""ge2 kernels emulate and new: a fresh kernel works, a broken one is caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ge2 import paths
from ge2.cli import run
from ge2.compiler.kernels import registry


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    paths.add_kernel_dir(tmp_path)
    yield tmp_path
    paths.remove_kernel_dirs()
    registry.reset()


@pytest.mark.parametrize("op", ["ELEMENTWISE", "ROW", "CONCAT"])
def test_a_new_kernel_is_right_until_it_is_broken(
        folder: Path, op: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not registry.kernels_for(op):
        pytest.skip(f"there are no {op} kernels")
    assert run(["kernels", "new", "mine", "--op", op, "--dir", str(folder)]) == 0
    registry.reset()
    assert run(["kernels", "emulate", "mine"]) == 0
    assert "all right" in capsys.readouterr().out
    template = folder / "mine.cu.j2"
    text = template.read_text()
    if "blockIdx.x" not in text:
        return  # its body is in a header
    template.write_text(text.replace("blockIdx.x", "(blockIdx.x + 1)"))
    registry.reset()
    assert run(["kernels", "emulate", "mine"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_new_writes_a_test_of_it(folder: Path) -> None:
    run(["kernels", "new", "mine", "--op", "ELEMENTWISE", "--dir", str(folder)])
    compile((folder / "test_mine.py").read_text(), "test_mine.py", "exec")
    assert run(["kernels", "new", "mine2", "--op", "ELEMENTWISE", "--dir", str(folder)]) == 0


@pytest.mark.parametrize("args", [
    ("mine", "--op", "ELEMENTWIS"), ("a-b", "--op", "ROW"),
    ("elementwise_vec", "--op", "ELEMENTWISE"),
])
def test_new_refuses(folder: Path, args: tuple[str, ...]) -> None:
    assert run(["kernels", "new", *args, "--dir", str(folder)]) == 2
    assert not list(folder.iterdir())
