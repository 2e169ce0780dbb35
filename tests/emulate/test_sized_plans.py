"""Classes of sizes on the emulator: the same plan at many sizes, 1 among them."""

from __future__ import annotations

import numpy as np
import pytest

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
