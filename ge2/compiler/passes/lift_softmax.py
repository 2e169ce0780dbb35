"""Exponentials over their sum become SOFTMAX, their logarithm LOG_SOFTMAX.

1. exp(x - max(x)) / sum(exp(x - max(x))) along one axis, division as DIV or RECIPROCAL and MUL.
2. The same without the maximum, which SOFTMAX may subtract because it is shift invariant.
3. (x - max(x)) - log(sum(exp(x - max(x)))), and LOG of a SOFTMAX.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import properties
from ..ir.nodes import Graph, Node
from .chains import is_inverse_of, kept_axes, other_input, read_only_by
from .editor import Editor, has_any, is_float
from .pass_manager import PassResult


@dataclass(frozen=True, slots=True)
class LiftSoftmaxPass:
    """Finds softmax at the sum of exponentials that it is built on."""

    name: str = "lift_softmax"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, ("REDUCE_SUM", "LOG")):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op == "REDUCE_SUM" and editor.licensed(node, "mergeable"):
                _lift(editor, node)
            elif node.op == "LOG":
                _log_of_softmax(editor, node)
        return editor.finish()


def _lift(editor: Editor, total: Node) -> None:
    exponential = editor.made_by(total.inputs[0], "EXP")
    axes = kept_axes(editor, total)
    if exponential is None or axes is None or len(axes) != 1:
        return
    if not is_float(editor.type(total.inputs[0])):
        return
    shifted = exponential.inputs[0]
    head, x = _shift(editor, shifted, axes[0])
    ratio = _ratio(editor, exponential, total)
    if ratio is not None and (not head or read_only_by(editor, shifted, [exponential])):
        _replace(editor, "SOFTMAX", x, axes[0], [*head, exponential, total, *ratio])
        return
    logarithm = _logarithm(editor, exponential, total, shifted)
    if logarithm is not None and (
            not head or read_only_by(editor, shifted, [exponential, logarithm[-1]])):
        _replace(editor, "LOG_SOFTMAX", x, axes[0], [*head, exponential, total, *logarithm])


def _replace(editor: Editor, op: str, x: str, axis: int, nodes: list[Node]) -> None:
    last = nodes[-1]
    if editor.type(x) != editor.type(last.outputs[0]) or not properties.licensed(
            op, "shift_invariant"):
        return
    made = editor.node(op, [x], last.outputs, {"axis": axis}, last.name)
    editor.replace(nodes, [made])


def _shift(editor: Editor, value: str, axis: int) -> tuple[list[Node], str]:
    """Return (nodes, x) where value is x - max(x) along axis, else ([], value)."""
    difference = editor.made_by(value, "SUB")
    if difference is None:
        return [], value
    x, peak_value = difference.inputs
    peak = editor.made_by(peak_value, "REDUCE_MAX")
    if (peak is None or peak.inputs[0] != x or kept_axes(editor, peak) != (axis,)
            or not read_only_by(editor, peak_value, [difference])):
        return [], value
    return [peak, difference], x


def _ratio(editor: Editor, exponential: Node, total: Node) -> list[Node] | None:
    """Return the nodes of exponential / total."""
    e, t = exponential.outputs[0], total.outputs[0]
    step = editor.only_reader(t)
    if step is None:
        return None
    nodes = [step]
    if step.op == "DIV" and step.inputs == (e, t):
        pass
    elif is_inverse_of(editor, step, t) and e not in step.inputs:
        last = editor.only_reader(step.outputs[0])
        if last is None or last.op != "MUL" or other_input(last, step.outputs[0]) != e:
            return None
        nodes.append(last)
    else:
        return None
    return nodes if read_only_by(editor, e, [total, nodes[-1]]) else None


def _logarithm(editor: Editor, exponential: Node, total: Node, shifted: str) -> list[Node] | None:
    """Return the nodes of shifted - log(total)."""
    if not read_only_by(editor, exponential.outputs[0], [total]):
        return None
    log = editor.only_reader(total.outputs[0])
    if log is None or log.op != "LOG":
        return None
    last = editor.only_reader(log.outputs[0])
    if last is None or last.op != "SUB" or last.inputs != (shifted, log.outputs[0]):
        return None
    return [log, last]


def _log_of_softmax(editor: Editor, node: Node) -> None:
    softmax = editor.made_by(node.inputs[0], "SOFTMAX")
    if softmax is None or editor.only_reader(softmax.outputs[0]) is not node:
        return
    made = editor.node("LOG_SOFTMAX", softmax.inputs, node.outputs, softmax.attrs, node.name)
    editor.replace([softmax, node], [made])
