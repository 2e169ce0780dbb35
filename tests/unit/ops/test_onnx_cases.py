"""Every operator and dtype that ge2 shares with ONNX, on the onnx package's own node cases."""

from __future__ import annotations

from collections import Counter

import pytest

from ge2.compiler.passes.decompose import NATIVE, DecomposePass
from ge2.compiler.passes.pipeline import optimize
from ge2.runtime.cpu import run_graph

from ...cases.onnx_nodes import TRANSLATE, all_cases, check


@pytest.mark.parametrize("op", sorted(TRANSLATE))
def test_cases_of_one_operator(op):
    found = [case for case in all_cases()[0] if case.op == op]
    assert found, "no case left of an operator that the mapping names"
    for case in found:
        check(case, run_graph(case.graph, case.feeds))


@pytest.mark.parametrize("op", sorted(TRANSLATE))
def test_optimized_graphs_compute_the_same(op):
    """Each case again after all passes: compositions, constant folding, fusion."""
    for case in all_cases()[0]:
        if case.op == op:
            check(case, run_graph(optimize(case.graph).graph, case.feeds))


def test_compositions_of_operators_with_a_kernel_compute_the_same():
    everything = DecomposePass(native=frozenset())
    seen = set()
    for case in all_cases()[0]:
        native = {node.op for node in case.graph.nodes} & NATIVE
        if native:
            check(case, run_graph(everything(case.graph).graph, case.feeds))
            seen |= native
    assert seen == NATIVE


def test_the_number_of_cases_does_not_shrink():
    cases, _ = all_cases()
    assert len(cases) >= 880


def test_skipped_cases_have_no_ge2_operator_or_dtype():
    """Of the mapped operators only these are left out, each for a stated reason."""
    reasons = Counter(reason.split()[0] for reason in all_cases()[1].values())
    assert set(reasons) <= {"operator", "dtype", "training", "attribute", "indices", "scores",
                            "not"}, reasons
