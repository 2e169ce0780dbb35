"""Guards and scores of every row kernel take a problem without rows."""

from __future__ import annotations

import pytest

from ge2.compiler.ir.nodes import Node
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.lower import lower
from ge2.evidence.device import profile_for
from ge2.problem import TensorSpec


@pytest.mark.parametrize("op", ["SOFTMAX", "REDUCE_SUM"])
@pytest.mark.parametrize("shape", [(0, 4096), (0, 1048576), (4096, 0), (0, 0)])
def test_empty_row_problems_are_ranked(op: str, shape: tuple[int, int]) -> None:
    attrs = {"axes": (1,)} if op == "REDUCE_SUM" else {"axis": 1}
    problem = lower(Node(op, "n", ("x",), ("y",), attrs), {"x": TensorSpec.dense("f32", shape)})
    reports = selector.rank(problem, profile_for("sm_90a"), kernels=registry.kernels_for("ROW"))
    assert any(report.score is not None for report in reports)
