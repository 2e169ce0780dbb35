"""Common subexpressions: what is computed twice from the same values is computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from .editor import Editor
from .pass_manager import PassResult

# Larger constants are not compared: a model that stores a big weight twice means it.
COMPARED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CommonSubexpressionPass:
    """Joins nodes of equal operator, inputs and attributes, and equal small constants."""

    name: str = "cse"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        editor = Editor(graph)
        _join_constants(editor)
        seen: dict[Hashable, Node] = {}
        for node in editor.sweep():
            if not editor.licensed(node, "deterministic"):
                continue
            key = _key(editor, node)
            first = seen.setdefault(key, node)
            if first is not node and len(node.outputs) == 1:
                # The first node may have been renamed since it was seen.
                made = editor.producer(first.outputs[0])
                if made is None:
                    seen[key] = node
                elif not editor.redirect(node.outputs[0], first.outputs[0]):
                    continue
                elif editor.producer(first.outputs[0]) is None:
                    seen[key] = editor.producer(node.outputs[0]) or node
        return editor.finish()


def _key(editor: Editor, node: Node) -> Hashable:
    inputs = node.inputs
    if editor.licensed(node, "commutative"):
        inputs = tuple(sorted(inputs))
    attrs = frozen(editor.attrs(node)) if node.attrs else _defaults(node.op)
    return node.op, inputs, len(node.outputs), attrs


@lru_cache(maxsize=1024)
def _defaults(op: str) -> Hashable:
    return frozen(full_attrs(op, {}))


def frozen(value: Any) -> Hashable:
    """Return a hashable form of attribute values."""
    if isinstance(value, dict):
        return tuple((key, frozen(item)) for key, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    # 1, 1.0 and True are equal in Python but not the same attribute.
    return type(value).__name__, value


def _join_constants(editor: Editor) -> None:
    seen: dict[Hashable, str] = {}
    for name, array in list(editor.graph.constants.items()):
        if array.nbytes <= COMPARED_BYTES and not editor.is_output(name):
            key = (array.dtype.str, array.shape, array.tobytes())
            first = seen.setdefault(key, name)
            if first != name:
                editor.join_constant(name, first)
