"""Running sums and products in graphs: any axis, both directions, one launch."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.passes.pipeline import optimize
from ge2.runtime.executor import Executable


@pytest.mark.parametrize("op", ["CUMSUM", "CUMPROD"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive, reverse", [(False, False), (True, True)])
def test_a_scan_is_one_launch(op: str, axis: int, exclusive: bool, reverse: bool) -> None:
    x = 1 + np.random.default_rng(3).standard_normal((3, 5, 70)).astype("f4") / 8
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    listed = ", ".join(f"{k}={str(v).lower()}" for k, v in attrs.items())
    text = f"input x: f32[3, 5, 70]\ny = {op}(x, {listed})\noutput y"
    graph = optimize(parse_graph(text, infer=opdefs.infer)).graph
    executable = Executable(graph, backend="emulate")
    found = executable.run({"x": x})["y"]
    (wanted,) = opdefs.reference(op, [x.astype("f8")], attrs)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)
    assert sum(len(step.records) for step in executable.plan().steps) == 1


def test_values_pass_on_what_they_are() -> None:
    x = np.ones((1, 2000), "f4")
    x[0, 700] = np.inf
    x[0, 1500] = np.nan
    graph = parse_graph("input x: f32[1, 2000]\ny = CUMSUM(x, axis=1)\noutput y",
                        infer=opdefs.infer)
    y = Executable(graph, backend="emulate").run({"x": x})["y"][0]
    np.testing.assert_array_equal(y[:700], np.arange(1, 701))
    assert np.isinf(y[700:1500]).all() and np.isnan(y[1500:]).all()
