"""Steps that the lifting passes share: who reads a value within a chain, numbers, powers."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.nodes import Node
from ..opdefs.reduce import reduced_axes
from .editor import Editor


def read_only_by(editor: Editor, value: str, readers: Iterable[Node]) -> bool:
    """Return whether exactly these nodes read a value and the caller does not see it."""
    return not editor.is_output(value) and (
        {r.name for r in editor.readers(value)} == {r.name for r in readers})


def other_input(node: Node, value: str) -> str | None:
    """Return the other operand of a binary node that reads value once."""
    if len(node.inputs) != 2 or node.inputs.count(value) != 1:
        return None
    return node.inputs[1] if node.inputs[0] == value else node.inputs[0]


def added_number(editor: Editor, node: Node, value: str) -> float | None:
    """Return n where a node is value + n, of value's type."""
    other = other_input(node, value)
    if node.op != "ADD" or other is None:
        return None
    same = editor.type(node.outputs[0]) == editor.type(value)
    return editor.number(other) if same else None


def squared(editor: Editor, value: str) -> str | None:
    """Return x where a value is x * x (a POW of 2 is canonically that)."""
    node = editor.made_by(value, "MUL")
    return node.inputs[0] if node is not None and node.inputs[0] == node.inputs[1] else None


def kept_axes(editor: Editor, node: Node) -> tuple[int, ...] | None:
    """Return the axes of a reduction that keeps its dimensions."""
    attrs = editor.attrs(node)
    if not attrs["keepdims"]:
        return None
    return reduced_axes(node.op, attrs, editor.type(node.inputs[0]).rank)


def is_root_of(editor: Editor, node: Node, value: str) -> bool:
    """Return whether a node is the square root of value."""
    if node.inputs[0] != value:
        return False
    return node.op == "SQRT" or (node.op == "POW" and editor.number(node.inputs[1]) == 0.5)


def is_inverse_root_of(editor: Editor, node: Node, value: str) -> bool:
    """Return whether a node is 1 / sqrt(value)."""
    if node.inputs[0] != value:
        return False
    return node.op == "RSQRT" or (node.op == "POW" and editor.number(node.inputs[1]) == -0.5)


def is_inverse_of(editor: Editor, node: Node, value: str) -> bool:
    """Return whether a node is 1 / value."""
    if node.op == "RECIPROCAL":
        return True
    return (node.op == "DIV" and node.inputs[1] == value and node.inputs[0] != value
            and editor.number(node.inputs[0]) == 1.0)
