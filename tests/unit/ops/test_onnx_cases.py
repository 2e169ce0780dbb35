"""Every operator and dtype that ge2 shares with ONNX, on the onnx package's own node cases."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import onnx
import pytest

from ge2.compiler.passes.decompose import NATIVE, DecomposePass
from ge2.compiler.passes.pipeline import optimize
from ge2.runtime.cpu import run_graph

from ...cases.onnx_nodes import OPERATORS, SEVERAL, all_cases, check, outcomes

ROOT = Path(__file__).resolve().parents[3]
# Operators of the importer's table that the onnx package has no case for.
WITHOUT_CASES = {"Not"}


@pytest.mark.parametrize("op", [*OPERATORS, SEVERAL])
def test_cases_of_one_operator(op):
    found = [case for case in all_cases()[0] if case.op == op]
    assert found or op in WITHOUT_CASES, "no case left of an operator that the importer maps"
    for case in found:
        check(case, run_graph(case.graph, case.feeds))


@pytest.mark.parametrize("op", [*OPERATORS, SEVERAL])
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
    assert seen == NATIVE - {"NORM_GEMM"}  # which only a fusion makes


def test_the_number_of_cases_does_not_shrink():
    cases, _ = all_cases()
    assert len(cases) >= 1310


def test_left_out_cases_name_what_ge2_lacks():
    """An operator, an element type, an attribute or a form of it: never a failure in passing."""
    for name, reason in all_cases()[1].items():
        if reason.startswith("model:"):
            assert "operator set" in reason, f"{name}: {reason}"
        else:
            assert re.search(r"no such operator|element type|not a tensor|as an output|training|"
                             r"must be known|indices of|without a value", reason), (
                                 f"{name}: {reason}")


def test_the_page_lists_what_runs():
    page = (ROOT / "docs/onnx.md").read_text()
    if f"onnx {onnx.__version__}" not in page:
        pytest.skip("docs/onnx.md was made with another version of the onnx package")
    spec = importlib.util.spec_from_file_location("onnx_page", ROOT / "docs/onnx_page.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert page == made.onnx_page(*outcomes()), "run python docs/generate.py"
