"""The pass manager: order, trace, and errors that name the pass and its predecessors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ge2.compiler.ir import Node
from ge2.compiler.passes.editor import Editor
from ge2.compiler.passes.pass_manager import FunctionPass, PassResult, run_passes
from ge2.errors import GraphError, PassError

from .graphs import parse

TEXT = """
input x: f32[2]
h = RELU(x)
y = EXP(h)
output y
"""


def _nothing(graph):
    return PassResult(graph, False)


def _drop_relu(graph):
    editor = Editor(graph)
    editor.redirect("h", "x")
    return editor.finish()


def test_passes_run_in_order_and_leave_a_trace():
    graph = parse(TEXT)
    result = run_passes(graph, [FunctionPass("first", _nothing), FunctionPass("drop", _drop_relu)])
    assert [n.op for n in result.graph.nodes] == ["EXP"]
    assert [(t.name, t.modified, t.nodes_before, t.nodes_after) for t in result.trace] == [
        ("first", False, 2, 2), ("drop", True, 2, 1)]
    assert all(t.seconds >= 0 for t in result.trace)
    assert len(graph.nodes) == 2


def _raises(graph):
    raise GraphError("no way")


def _breaks_order(graph):
    result = graph.copy()
    result.nodes.reverse()
    return PassResult(result, True)


def _breaks_types(graph):
    result = graph.copy()
    result.nodes[1] = replace(result.nodes[1], op="ISNAN")
    return PassResult(result, True)


def _in_place(graph):
    graph.nodes.pop()
    return PassResult(graph, True)


def _misreports(graph):
    result = graph.copy()
    result.nodes[0] = Node("EXP", "h", ("x",), ("h",))
    return PassResult(result, False)


def _drops_output(graph):
    result = graph.copy()
    result.outputs = ["h"]
    return PassResult(result, True)


@pytest.mark.parametrize(("function", "message"), [
    (_raises, "failed: no way"),
    (_breaks_order, "before anything makes it"),
    (_breaks_types, "wrong type"),
    (_in_place, "in place"),
    (_misreports, "reports that it did not"),
    (_drops_output, "inputs or outputs"),
])
def test_a_bad_pass_is_named_with_those_before_it(function, message):
    steps = [FunctionPass("good", _nothing), FunctionPass("bad", function)]
    with pytest.raises(PassError, match=message) as caught:
        run_passes(parse(TEXT), steps)
    assert "pass 'bad'" in str(caught.value) and "good" in str(caught.value)


def test_an_error_keeps_its_cause():
    with pytest.raises(PassError) as caught:
        run_passes(parse(TEXT), [FunctionPass("bad", _raises)])
    assert isinstance(caught.value.__cause__, GraphError)
