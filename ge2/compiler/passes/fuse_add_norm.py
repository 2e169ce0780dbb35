"""A sum and the norm of it become one node that reads the operands once and writes both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...contract import numpy_dtype
from ..ir.nodes import Graph, Node
from ..opdefs.add_norm import NORMS
from .editor import Editor, has_any
from .pass_manager import PassResult

_BASES = frozenset(op.name for op in NORMS.values())


@dataclass(frozen=True, slots=True)
class FuseAddNormPass:
    """Joins LAYER_NORM and RMS_NORM with the residual sum before them."""

    name: str = "fuse_add_norm"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, _BASES):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op in _BASES:
                total = _sum_before(editor, node)
                if total is not None:
                    _fuse(editor, total, node)
        return editor.finish()


def _sum_before(editor: Editor, norm: Node) -> Node | None:
    """Return the sum of two tensors of one type that a norm reads and that others read too."""
    total = editor.made_by(norm.inputs[0], "ADD")
    if total is None or not editor.licensed(total, "elementwise"):
        return None
    kind = editor.type(total.outputs[0])
    # The result is made where the sum is: the norm's parameters must be there already.
    known = all(editor.constant(value) is not None for value in norm.inputs[1:] if value)
    same = all(editor.type(v) == kind and editor.constant(v) is None for v in total.inputs)
    if not known or not same or not editor.licensed(norm, "mergeable"):
        return None
    # A sum that only the norm reads need not be stored where the norm can compute it itself.
    alone = editor.only_reader(total.outputs[0]) is norm
    return None if alone and editor.licensed(norm, "prologue") else total


def _fuse(editor: Editor, total: Node, norm: Node) -> None:
    kind = editor.type(norm.inputs[0])
    parameters = [v for v in norm.inputs[1:] if v]
    if norm.op == "LAYER_NORM" and len(parameters) == 1:
        zero = np.zeros((), numpy_dtype(kind.dtype))
        parameters.append(editor.graph.add_constant(editor.fresh(f"{norm.name}.bias"), zero))
    attrs = {**norm.attrs, "rounding": kind.dtype}
    outputs = [total.outputs[0], norm.outputs[0]]
    made = editor.node(f"ADD_{norm.op}", [*total.inputs, *parameters], outputs, attrs, total.name)
    editor.remove(norm)
    editor.replace([total], [made])
