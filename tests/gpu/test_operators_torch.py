"""Random nodes on a GPU against torch on the same GPU: shapes, axes, broadcasting, windows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, seed

from ge2.compiler.passes.pipeline import optimize
from ge2.runtime import jit
from ge2.runtime.executor import Executable

from ..cases.drawn import fixed
from ..cases.families import FAMILIES, family_sources
from ..cases.nodes import TOLERANCE, Example

torch = pytest.importorskip("torch", reason="the other side of the comparison")


def compare(example: Example, dtype: str, device: Any, backend: str) -> None:
    """Run a node on tensors of a torch device and compare its output with torch's."""
    from ..cases.torch_nodes import expected

    graph = example.graph(dtype)
    feeds = {name: torch.from_numpy(array).to(device)
             for name, array in example.feeds(graph).items()}
    found = Executable(optimize(graph).graph, backend=backend).run(feeds)["out0"]
    wanted = expected(example, list(feeds.values()))
    assert found.shape == wanted.shape
    if found.is_floating_point():
        slack = TOLERANCE[dtype]
        torch.testing.assert_close(found.double(), wanted, rtol=slack, atol=slack)
    else:
        assert torch.equal(found, wanted)


@pytest.fixture(scope="module")
def compiled(device):
    """Compile the kernels of all examples at once."""
    jit.compile(family_sources(device.profile), device.profile.arch)


@pytest.mark.parametrize("name", FAMILIES)
def test_nodes_agree_with_torch(name, compiled):
    family = FAMILIES[name]

    @seed(0)
    @fixed(family.count)
    @given(family.examples)
    def agrees(example):
        compare(example, family.dtype, "cuda", "cuda")

    agrees()
