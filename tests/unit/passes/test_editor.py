"""The editor: edits keep order, names of outputs, and the tables of makers and readers."""

from __future__ import annotations

from ge2.compiler import opdefs
from ge2.compiler.ir.verify import verify
from ge2.compiler.passes.editor import Editor

from .graphs import ops, parse

TEXT = """
input x: f32[2]
a = RELU(x)
b = EXP(a)
c = TANH(b)
d = ADD(a, c)
output d, b
"""


def test_readers_and_makers():
    editor = Editor(parse(TEXT))
    assert [n.name for n in editor.readers("a")] == ["b", "d"]
    assert editor.only_reader("c").name == "d"
    assert editor.only_reader("b") is None  # an output is read by the caller
    assert editor.only_reader("a") is None
    assert editor.made_by("b", "EXP", "LOG").name == "b" and editor.made_by("b", "LOG") is None


def test_an_unedited_graph_is_returned_as_it_is():
    graph = parse(TEXT)
    result = Editor(graph).finish()
    assert result.graph is graph and not result.modified


def test_redirect_moves_readers():
    editor = Editor(parse(TEXT))
    assert editor.redirect("a", "x")
    graph = editor.finish().graph
    verify(graph, opdefs.infer)
    assert [n.inputs for n in graph.nodes] == [("x",), ("b",), ("x", "c")]
    assert "a" not in graph.types


def test_redirect_of_an_output_keeps_its_name():
    editor = Editor(parse(TEXT))
    assert editor.redirect("b", "a")
    graph = editor.finish().graph
    verify(graph, opdefs.infer)
    assert graph.outputs == ["d", "b"]
    assert [(n.op, n.outputs) for n in graph.nodes] == [
        ("RELU", ("b",)), ("TANH", ("c",)), ("ADD", ("d",))]


def test_redirect_refuses_what_it_cannot_name():
    editor = Editor(parse(TEXT))
    assert not editor.redirect("b", "x")  # an output cannot become an input
    assert not editor.redirect("d", "b")  # nor two outputs one value
    assert not editor.modified


def test_replace_puts_new_nodes_where_the_last_old_one_was():
    editor = Editor(parse(TEXT))
    old = [editor.producer("c"), editor.producer("d")]
    made = editor.node("SUB", ["b", "a"], ["d"], name="d")
    editor.replace(old, [made])
    editor.insert_before(made, [editor.node("NEG", ["a"], ["e"])])
    graph = editor.finish().graph
    verify(graph, opdefs.infer)
    assert ops(graph) == ["RELU", "EXP", "NEG", "SUB"]


def test_sweeps_see_edits_ahead_of_them():
    editor = Editor(parse(TEXT))
    seen = []
    for node in editor.sweep():
        seen.append((node.name, node.inputs))
        if node.name == "a":
            editor.redirect("a", "x")
    assert seen[1] == ("b", ("x",)) and seen[-1] == ("d", ("x", "c"))
    assert [n.name for n in editor.backward()] == ["d", "c", "b"]
