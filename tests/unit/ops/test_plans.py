"""No operator is without kernels: each one plans, for every dtype that it takes."""

from __future__ import annotations

import pytest

from ge2.compiler.opdefs import OPS
from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import make_plan
from ge2.evidence.device import profile_for

from ...cases.nodes import INTERNAL, examples, main_dtypes

DEVICES = [profile_for(arch) for arch in ("sm_75", "sm_90a")]


def test_every_operator_has_examples():
    assert [op for op in OPS if not list(examples(op)) and op not in INTERNAL] == []


@pytest.mark.parametrize("op", sorted(set(OPS) - INTERNAL))
def test_an_operator_plans_for_every_dtype(op):
    for example in examples(op):
        for dtype in main_dtypes(example):
            graph = optimize(example.graph(dtype)).graph
            for device in DEVICES:
                make_plan(graph, device)
