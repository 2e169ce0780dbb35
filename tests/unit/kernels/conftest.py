"""A private kernel folder and cache for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ge2 import paths
from ge2.compiler.kernels import registry

BLOCK = """\
{#--- toml
name = "scale_rows"
op_type = "SCALE_TEST"
launch = "scale_test"
numerics = "tree{BLOCK}"
dtypes = [{ in = ["f32"], out = "f32" }]
[params]
BLOCK = [128, 256]
VEC = [1, 4]
[guards]
align = "4 * VEC"
[[exclude]]
BLOCK = 128
VEC = 4
---#}
"""
BODY = """\
struct Args { const float* x; float* y; long long n; };
constexpr int BLOCK = {{ BLOCK }};
constexpr int VEC = {{ VEC }};
extern "C" __global__ void __launch_bounds__(BLOCK) scale_rows(const __grid_constant__ Args a) {
  const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i < a.n) a.y[i] = a.x[i] * VEC;
}
"""

AddTemplate = Callable[..., Path]


@pytest.fixture
def add_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AddTemplate]:
    """Return a function that writes `<name>.cu.j2` into a searched folder."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "cache"))
    paths.add_kernel_dir(folder)
    registry.reset()

    def add(text: str = BLOCK + BODY, name: str = "scale_rows") -> Path:
        path = folder / f"{name}.cu.j2"
        path.write_text(text)
        registry.reset()
        return path

    yield add
    paths.remove_kernel_dirs()
    registry.reset()
