"""The onnx package's node cases on a GPU, one test per operator."""

from __future__ import annotations

import pytest

from ge2.compiler.passes.pipeline import optimize
from ge2.runtime.executor import Executable

from ..cases.onnx_nodes import TRANSLATE, all_cases, check

# The only operator here that has neither a kernel nor a composition in this form.
VOLUMES = "test_convtranspose_3d"


@pytest.mark.parametrize("op", sorted(TRANSLATE))
def test_cases_of_one_operator(op):
    for case in all_cases()[0]:
        if case.op == op and case.name != VOLUMES:
            check(case, Executable(optimize(case.graph).graph, backend="cuda").run(case.feeds))
