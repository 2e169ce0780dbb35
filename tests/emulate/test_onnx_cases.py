"""The onnx package's node cases on the emulator: the smallest one of each operator."""

from __future__ import annotations

import pytest

from ge2.compiler.passes.pipeline import optimize
from ge2.runtime.executor import Executable

from ..cases.onnx_nodes import OPERATORS, Case, all_cases, check


def elements(case: Case) -> int:
    """Return the number of elements of inputs and outputs; cases without any come last."""
    sizes = [array.size for array in (*case.feeds.values(), *case.expected.values())]
    return sum(sizes) if all(sizes) else 1 << 60


@pytest.mark.parametrize("op", OPERATORS)
def test_the_smallest_case_of_one_operator(op):
    cases = [case for case in all_cases()[0] if case.op == op]
    for case in sorted(cases, key=elements)[:1]:  # the package has none of some operators
        check(case, Executable(optimize(case.graph).graph, backend="emulate").run(case.feeds))
