"""Rules of device code that no compiler checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ge2 import paths

KERNELS = paths.kernels_dir()
FILES = sorted(p for p in KERNELS.rglob("*") if p.suffix in (".cuh", ".j2"))
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\{#.*?#\}", re.DOTALL)
_INCLUDE = re.compile(r'#\s*include\s*([<"][^>"]*[>"])')


def code_of(path: Path) -> str:
    """Return a source without its comments."""
    return _COMMENT.sub("", path.read_text("utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(KERNELS)))
def test_device_code_keeps_the_rules_of_the_kernel_language(path: Path) -> None:
    code = code_of(path)
    place = path.relative_to(KERNELS).as_posix()
    if not place.startswith("include/ge2/ptx/"):
        assert not re.search(r"\b(__)?asm(__)?\b", code), "inline asm belongs in ge2/ptx/"
    if place != "include/ge2/shared.cuh":
        assert "__shared__" not in code, "shared memory comes from ge2::shared_memory()"
    for include in _INCLUDE.findall(code):
        assert include.startswith("<ge2/"), f"{include}: only ge2's own headers are included"


def test_the_rules_bite() -> None:
    assert len(FILES) > 40
    assert re.search(r"\b(__)?asm(__)?\b", code_of(KERNELS / "include/ge2/ptx/cvt.cuh"))
    assert "__shared__" in code_of(KERNELS / "include/ge2/shared.cuh")
