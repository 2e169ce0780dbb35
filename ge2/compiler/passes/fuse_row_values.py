"""A sum or maximum over the rows of a product is made by the product, while it has them at hand."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from ..opdefs.gemm import f32_mode
from .editor import Editor, has_any
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult

REDUCTIONS = {"REDUCE_SUM": "sum", "REDUCE_SUMSQUARE": "sumsquare", "REDUCE_MAX": "max"}


@dataclass(frozen=True, slots=True)
class FuseRowValuesPass:
    """Takes a reduction over the last axis into the product that it reads."""

    name: str = "fuse_row_values"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, REDUCTIONS):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op in REDUCTIONS:
                product = editor.made_by(node.inputs[0], *GEMM_OPS)
                if product is not None and _accepts(editor, product, node):
                    _fuse(editor, product, node)
        return editor.finish()


def _accepts(editor: Editor, product: Node, node: Node) -> bool:
    """Whether a product can say what a reduction does: along its columns, of what it stores."""
    kind = editor.type(node.inputs[0])
    axes = editor.attrs(node)["axes"]
    columns = kind.shape[-1] if kind.rank else 0
    matrices = all(editor.type(v).rank > 1 for v in product.inputs[:2])
    attrs = full_attrs("GEMM_BIAS_ACT", product.attrs if product.op != "MATMUL" else {})
    return (editor.licensed(node, "mergeable") and kind.dtype in ("f32", "f16", "bf16")
            and matrices and axes is not None and tuple(a % kind.rank for a in axes) == (
                kind.rank - 1,)
            and isinstance(columns, int) and columns > 0 and len(product.outputs) == 1
            and attrs["rows"] == "none"
            and (kind.dtype != "f32" or f32_mode(attrs) == "ieee"))


def _fuse(editor: Editor, product: Node, node: Node) -> None:
    value, result = product.outputs[0], node.outputs[0]
    attrs = dict(product.attrs) if product.op == "GEMM_BIAS_ACT" else {}
    attrs["rows"] = REDUCTIONS[node.op]
    keeps = editor.attrs(node)["keepdims"]
    column = result if keeps else editor.fresh(f"{result}.column")
    if keeps:
        editor.remove(node)
    made = editor.node("GEMM_BIAS_ACT", product.inputs, [value, column], attrs, product.name)
    editor.replace([product], [made])
    if not keeps:
        rank = editor.type(column).rank
        editor.replace([node], [editor.node("SQUEEZE", [column], [result], {"axes": (rank - 1,)},
                                            node.name)])
