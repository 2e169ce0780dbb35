"""Products of flattened tokens work on the tokens as they are: the RESHAPEs around them go.

Exporters write RESHAPE to [batch * length, k], the product, a bias, an activation, and RESHAPE
back. A product takes leading axes in any number, so both views only keep what follows (a residual
sum, a norm) from being fused with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.nodes import Graph, Node
from ..opdefs.shapes import product as product_of
from .editor import Editor, has_any, is_float
from .fuse_elementwise import fusible
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult


@dataclass(frozen=True, slots=True)
class FoldReshapesPass:
    """Takes the leading axes behind a product from before it."""

    name: str = "fold_reshapes"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, GEMM_OPS):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op == "RESHAPE":
                _fold(editor, node)
        return editor.finish()


def _fold(editor: Editor, last: Node) -> None:
    found = _product_before(editor, last)
    if found is None:
        return
    product, steps = found
    flat = editor.made_by(product.inputs[0], "RESHAPE")
    if flat is None or not _extensible(editor, product):
        return
    x = flat.inputs[0]
    shape, depth = editor.type(x).shape, editor.type(product.inputs[0]).shape[-1]
    split = next((i for i in range(1, len(shape)) if product_of(shape[i:]) == depth), None)
    if split is None or editor.type(last.outputs[0]).shape[:split] != shape[:split]:
        return
    if split < len(shape) - 1:  # the last axes are merged, too: heads side by side
        merged = editor.fresh(f"{x}.merged")
        editor.insert_before(product, [editor.node(
            "RESHAPE", [x], [merged], {"shape": (*shape[:split], depth), "allowzero": True})])
        x = merged
    _replace(editor, product, steps, last, x)


def _product_before(editor: Editor, last: Node) -> tuple[Node, list[Node]] | None:
    """Return the product before a RESHAPE, and the elementwise nodes between them in order."""
    steps: list[Node] = []
    reader, value = last, last.inputs[0]
    while True:
        node = editor.producer(value)
        if node is None or editor.only_reader(value) is not reader:
            return None
        if node.op in GEMM_OPS:
            return node, steps[::-1]
        source = _only_tensor(editor, node)
        if source is None:
            return None
        steps.append(node)
        reader, value = node, source


def _only_tensor(editor: Editor, node: Node) -> str | None:
    """Return the operand of an elementwise node beside which there are only rows and numbers."""
    if not fusible(editor, node):
        return None
    kind = editor.type(node.outputs[0])
    full = [v for v in node.inputs if editor.type(v).rank > 1 and editor.number(v) is None]
    return full[0] if len(full) == 1 and editor.type(full[0]).shape == kind.shape else None


def _extensible(editor: Editor, product: Node) -> bool:
    a, b = (editor.type(v) for v in product.inputs[:2])
    attrs = product.attrs
    return (b.rank == 2 and is_float(a) and not attrs.get("trans_a", False)
            and attrs.get("epilogue") is None
            and all(editor.type(v).rank < 2 for v in product.inputs[2:] if v))


def _replace(editor: Editor, product: Node, steps: list[Node], last: Node, x: str) -> None:
    chain = [product, *steps]
    sources = {product.outputs[0]: product, **{s.outputs[0]: s for s in steps}}
    same = (*editor.type(x).shape[:-1], editor.type(last.inputs[0]).shape[-1]) == (
        editor.type(last.outputs[0]).shape)
    names: dict[str, str] = {}
    made = []
    for node in chain:
        value = node.outputs[0]
        final = same and node is chain[-1]
        names[value] = last.outputs[0] if final else editor.fresh(f"{value}.lead")
        operands = [x, *node.inputs[1:]] if node is product else [
            names[v] if v in sources else v for v in node.inputs]
        made.append(editor.node(node.op, operands, [names[value]], node.attrs,
                                last.name if final else node.name))
    if not same:
        shape = editor.type(last.outputs[0]).shape
        made.append(editor.node("RESHAPE", [made[-1].outputs[0]], last.outputs,
                                {"shape": shape, "allowzero": True}, last.name))
    editor.replace([*chain, last], made)
