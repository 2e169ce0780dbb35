"""A TRANSPOSE of the last two axes in front of a matrix product becomes a flag of the product."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.nodes import Graph, Node
from ..opdefs.movement import permutation
from .editor import Editor, has_any, is_float
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult


@dataclass(frozen=True, slots=True)
class FoldTransposesPass:
    """Lets products read their operands as stored; the transpose stays for its other readers."""

    name: str = "fold_transposes"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, ("TRANSPOSE",)):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op in GEMM_OPS and editor.licensed(node, "transposable"):
                _fold(editor, node)
        return editor.finish()


def _fold(editor: Editor, node: Node) -> None:
    if not is_float(editor.type(node.inputs[0])):
        return
    inputs, attrs = list(node.inputs), dict(node.attrs)
    for index, flag in ((0, "trans_a"), (1, "trans_b")):
        source = _swapped(editor, inputs[index])
        if source is not None:
            inputs[index] = source
            attrs[flag] = not attrs.get(flag, False)
    if inputs == list(node.inputs) or any(editor.type(v).rank < 2 for v in inputs[:2]):
        return
    editor.replace([node], [editor.node("GEMM_BIAS_ACT", inputs, node.outputs, attrs, node.name)])


def _swapped(editor: Editor, value: str) -> str | None:
    """Return what a value is the transpose of, over its last two axes only."""
    maker = editor.made_by(value, "TRANSPOSE")
    if maker is None:
        return None
    rank = editor.type(value).rank
    order = permutation(editor.attrs(maker), rank)
    if rank < 2 or order != (*range(rank - 2), rank - 1, rank - 2):
        return None
    return maker.inputs[0]
