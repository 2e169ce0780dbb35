"""Every instruction header has a host twin with the same functions."""

from __future__ import annotations

import re

import pytest

from ge2 import paths
from ge2.runtime.emulate.compiler import TWINS

HEADERS = sorted(p.name for p in (paths.include_dir() / "ge2" / "ptx").glob("*.cuh"))
_FUNCTION = re.compile(r"^(?:inline|GE2_INLINE)[^(=]*?\b(\w+)\(([^)]*(?:\([^)]*\)[^)]*)*)\)\s*\{",
                       re.MULTILINE)


def functions(text: str) -> dict[str, int]:
    """Return name -> number of parameters, without the twins' call-site parameters."""
    found = {}
    for name, parameters in _FUNCTION.findall(text):
        listed = [p for p in parameters.split(",") if p.strip() and p.strip() != "GE2_SITE"]
        found[name] = len(listed)
    return found


@pytest.mark.parametrize("header", HEADERS)
def test_the_twin_declares_the_same_functions(header: str) -> None:
    """Same names, same parameter counts."""
    twin = TWINS / "ge2" / "ptx" / header
    assert twin.is_file(), f"no host twin of {header}"
    real = functions((paths.include_dir() / "ge2" / "ptx" / header).read_text("utf-8"))
    assert real
    ours = functions(twin.read_text("utf-8"))
    assert {n: ours.get(n) for n in real} == real
