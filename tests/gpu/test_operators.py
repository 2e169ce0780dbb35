"""Every operator on a GPU against its NumPy reference, in every dtype that it takes."""

from __future__ import annotations

import pytest

from ge2.compiler.opdefs import OPS
from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import make_plan
from ge2.runtime import jit

from ..cases.nodes import INTERNAL, examples, main_dtypes, run_example


@pytest.fixture(scope="module")
def compiled(device):
    """Compile the kernels of all plans at once."""
    plans = [make_plan(optimize(example.graph(dtype)).graph, device.profile)
             for op in set(OPS) - INTERNAL for example in examples(op)
             for dtype in main_dtypes(example)]
    jit.compile([record.kernel for plan in plans for record in plan.records], device.profile.arch)


@pytest.mark.parametrize("op", sorted(set(OPS) - INTERNAL))
def test_an_operator_agrees_with_numpy(op, compiled):
    for example in examples(op):
        for dtype in main_dtypes(example):
            run_example(example, dtype, "cuda")
