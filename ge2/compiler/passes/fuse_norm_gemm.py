"""A norm and the one product that reads it become NORM_GEMM, which normalises the rows it loads.

Whatever else reads the norm (a residual sum) takes the second output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir.nodes import Graph, Node, present
from ..opdefs import full_attrs
from ..opdefs.gemm import f32_mode
from ..opdefs.norm_gemm import NORMS, PRODUCT_ATTRS
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
    known = all(editor.constant(v) is not None for v in norm.inputs[1:] if v)
    if not last or not known or not is_float(kind) or not editor.licensed(norm, "mergeable"):
        return None
    if kind.rank < 2 or not isinstance(depth, int) or not 0 < depth <= LONGEST_ROW:
        return None
    products = [r for r in editor.readers(value) if r.op in GEMM_OPS and value == r.inputs[0]]
    if len(products) != 1 or not _plain(editor, norm, products[0]):
        return None
    return products[0]


def _product_attrs(product: Node) -> dict[str, Any]:
    return full_attrs("GEMM_BIAS_ACT", product.attrs if product.op == "GEMM_BIAS_ACT" else {})


def _plain(editor: Editor, norm: Node, product: Node) -> bool:
    """Whether a product of a norm can be made where the norm is: its other inputs are there."""
    first, weights, *rest = product.inputs
    attrs = _product_attrs(product)
    array = editor.constant(weights)
    made_late = any(
        maker is not None and editor.position(maker) > editor.position(norm)
        for maker in map(editor.producer, present(rest)))
    return (first == norm.outputs[0] and array is not None and array.ndim == 2 and not made_late
            and first not in rest and len(product.outputs) == 1
            and not attrs["trans_a"]
            # With a norm inside, f32 is multiplied on CUDA cores: no gain over tf32 and x3.
            and (editor.type(first).dtype != "f32" or f32_mode(attrs) == "ieee"))


def _fuse(editor: Editor, norm: Node, product: Node) -> None:
    given = _product_attrs(product)
    rows = editor.only_reader(norm.outputs[0]) is not product
    attrs = {"norm": norm.op, "epsilon": editor.attrs(norm)["epsilon"], "rows": rows,
             "rounding": editor.type(norm.outputs[0]).dtype,
             **{name: given[name] for name in PRODUCT_ATTRS}}
    shift = norm.inputs[2] if len(norm.inputs) > 2 else ""
    inputs = [norm.inputs[0], norm.inputs[1], product.inputs[1], shift, *product.inputs[2:]]
    while not inputs[-1]:
        inputs.pop()
    outputs = [product.outputs[0], *([norm.outputs[0]] if rows else [])]
    made = editor.node("NORM_GEMM", inputs, outputs, attrs, product.name)
    editor.remove(product)
    editor.replace([norm], [made])
