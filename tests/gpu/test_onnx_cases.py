"""The onnx package's node cases on a GPU, one test per operator."""

from __future__ import annotations

import pytest

from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import make_plan
from ge2.runtime import jit
from ge2.runtime.executor import Executable

from ..cases.onnx_nodes import OPERATORS, SEVERAL, all_cases, check

LEAST_CASES = 1290


@pytest.fixture(scope="module")
def graphs(device):
    """Every case's optimised graph, with the kernels of all plans compiled at once."""
    made = {case.name: optimize(case.graph).graph for case in all_cases()[0]}
    plans = [make_plan(graph, device.profile) for graph in made.values()]
    jit.compile([record.kernel for plan in plans for record in plan.records], device.profile.arch)
    return made


@pytest.mark.parametrize("op", [*OPERATORS, SEVERAL])
def test_cases_of_one_operator(op, graphs):
    for case in all_cases()[0]:
        if case.op == op:
            check(case, Executable(graphs[case.name], backend="cuda").run(case.feeds))


def test_every_case_runs(graphs):
    assert len(graphs) >= LEAST_CASES
