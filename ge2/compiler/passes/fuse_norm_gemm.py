"""A norm and the one product that reads it become NORM_GEMM, which normalises the rows it loads.

Whatever else reads the norm (a residual sum) takes the second output.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from ..opdefs.norm_gemm import NORMS
from .editor import Editor, has_any, is_float
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult

# A block keeps whole rows at hand: longer ones leave too little room for the product.
LONGEST_ROW = 1024


@dataclass(frozen=True, slots=True)
class FuseNormGemmPass:
    """Takes norms into the products behind them."""

    name: str = "fuse_norm_gemm"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, NORMS):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op in NORMS:
                product = _product_behind(editor, node)
                if product is not None:
                    _fuse(editor, node, product)
        return editor.finish()


def _product_behind(editor: Editor, norm: Node) -> Node | None:
    """Return the only product with constant weights that reads a norm of rows."""
    value = norm.outputs[0]
    kind = editor.type(value)
    depth = kind.shape[-1] if kind.rank else 0
    last = editor.attrs(norm)["axis"] in (-1, kind.rank - 1)
    # The result is made where the norm is: everything else must be there already.
    known = all(editor.constant(v) is not None for v in norm.inputs[1:] if v)
    if not last or not known or not is_float(kind) or not editor.licensed(norm, "mergeable"):
        return None
    if kind.rank < 2 or not isinstance(depth, int) or depth > LONGEST_ROW:
        return None
    products = [r for r in editor.readers(value) if r.op in GEMM_OPS and r.inputs[0] == value]
    if len(products) != 1 or not _plain(editor, products[0]):
        return None
    return products[0]


def _plain(editor: Editor, product: Node) -> bool:
    attrs = full_attrs("GEMM_BIAS_ACT", product.attrs if product.op == "GEMM_BIAS_ACT" else {})
    weights = editor.constant(product.inputs[1])
    bias = product.inputs[2] if len(product.inputs) > 2 else ""
    return (weights is not None and weights.ndim == 2 and not any(product.inputs[3:])
            and (not bias or editor.constant(bias) is not None) and attrs["epilogue"] is None
            and not attrs["trans_a"] and attrs["alpha"] == 1.0)


def _fuse(editor: Editor, norm: Node, product: Node) -> None:
    given = full_attrs("GEMM_BIAS_ACT",
                       product.attrs if product.op == "GEMM_BIAS_ACT" else {})
    attrs = {"norm": norm.op, "epsilon": editor.attrs(norm)["epsilon"],
             "rounding": editor.type(norm.outputs[0]).dtype,
             **{name: given[name] for name in ("trans_b", "act", "leaky_slope")}}
    shift = norm.inputs[2] if len(norm.inputs) > 2 else ""
    bias = product.inputs[2] if len(product.inputs) > 2 else ""
    inputs = [norm.inputs[0], norm.inputs[1], product.inputs[1], shift, bias]
    while not inputs[-1]:
        inputs.pop()
    made = editor.node("NORM_GEMM", inputs, [product.outputs[0], norm.outputs[0]], attrs,
                       product.name)
    editor.remove(product)
    editor.replace([norm], [made])
