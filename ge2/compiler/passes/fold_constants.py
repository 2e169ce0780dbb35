"""What depends on constants only is computed once, when the model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import opdefs
from ..ir.dim import Dim
from ..ir.nodes import Graph, Node, TensorType, present
from .editor import Editor
from .pass_manager import PassResult

# Results may be this much larger than what they are made of: an EXPAND stays a view.
GROWTH = 2
SMALL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class FoldConstantsPass:
    """Evaluates deterministic nodes on constants with the operators' references."""

    name: str = "fold_constants"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        editor = Editor(graph)
        for node in editor.sweep():
            if _foldable(editor, node):
                _fold(editor, node)
        return editor.finish()


def _foldable(editor: Editor, node: Node) -> bool:
    if not editor.licensed(node, "deterministic") or any(map(editor.is_output, node.outputs)):
        return False
    if any(_is_symbolic(value) for value in node.attrs.values()):
        return False
    inputs = [editor.constant(value) for value in present(node.inputs)]
    if any(array is None for array in inputs):
        return False
    types = [editor.type(value) for value in present(node.outputs)]
    if not all(kind.is_static for kind in types):
        return False
    allowed = max(SMALL_BYTES, GROWTH * sum(a.nbytes for a in inputs if a is not None))
    return sum(map(_nbytes, types)) <= allowed


def _is_symbolic(attr: Any) -> bool:
    return isinstance(attr, Dim) or (
        isinstance(attr, tuple | list) and any(isinstance(item, Dim) for item in attr))


def _nbytes(kind: TensorType) -> int:
    from ...problem import TensorSpec

    return TensorSpec.dense(kind.dtype, kind.shape).nbytes  # type: ignore[arg-type] # static


def _fold(editor: Editor, node: Node) -> None:
    arrays = [editor.constant(value) if value else None for value in node.inputs]
    results = opdefs.reference(node.op, arrays, node.attrs)
    editor.remove(node)
    for value, result in zip(node.outputs, results, strict=False):
        if value:
            editor.graph.constants[value] = result
