"""Classes of sizes on the emulator: the same plan at many sizes, 1 among them."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.commands.node_profile import profile_model
from ge2.errors import ShapeMismatch
from ge2.model import GraphBuilder
from ge2.runtime.cpu import run_graph
from ge2.runtime.executor import Executable
from tests.unit.sizes.encoder import encoder


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_one_plan_is_right_at_all_sizes_of_its_class(arch: str) -> None:
    model = encoder()
    executable = Executable(model.optimized.graph, "emulate", arch=arch)
    draw = np.random.default_rng(3)
    for batch, seq in ((2, 9), (1, 1), (3, 1), (1, 5), (2, 8), (1, 33), (8, 2), (2, 24), (1, 130)):
        x = draw.standard_normal((batch, seq, 64)).astype(np.float16)
        wanted = run_graph(model.graph, {"x": x}, dtype="f64")["y"]
        np.testing.assert_allclose(executable.run({"x": x})["y"].astype("f8"), wanted, atol=4e-3,
                                   err_msg=f"batch {batch}, seq {seq}")
    assert len(executable.plans.shared) <= 3 and not executable.plans.exact


@pytest.mark.parametrize(("start", "end", "least"), [(0, 10, 10), (7, 9, 9), (-10, 2**40, 10)])
def test_a_slice_beyond_its_input_is_refused(start: int, end: int, least: int) -> None:
    """At the sizes where its bounds are inside it runs."""
    g = GraphBuilder("slice")
    x = g.input("x", "f32", ["n"])
    g.output("y", g.slice(x, starts=[start], ends=[end]) + 1.0)
    model = g.model(backend="emulate")
    for size in (17, least):
        data = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(model(data)["y"], data[start:end] + 1)
    with pytest.raises(ShapeMismatch, match="reaches beyond axis 0"):
        model(np.zeros(least - 1, np.float32))


def test_a_profile_counts_the_bytes_of_the_size_that_ran() -> None:
    g = GraphBuilder("rows")
    g.output("y", g.softmax(g.input("x", "f32", ["rows", 40]), axis=-1))
    model = g.model(backend="emulate")
    for rows in (19, 33):
        (node,) = profile_model(model, {"x": np.ones((rows, 40), np.float32)})
        assert node.nbytes == 2 * 4 * rows * 40
    assert model.executable.plans.shared
