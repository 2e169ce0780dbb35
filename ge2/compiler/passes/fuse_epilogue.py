"""An elementwise node that alone reads a matrix product becomes the product's epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...contract import DTYPES
from ..ir.expr import Expr, ExprBundle, cast, const, input, substitute
from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from ..opdefs.gemm_epilogue import EPILOGUE_SCALARS, epilogue_of
from ..opdefs.scaled_matmul import scaled_epilogue
from ..opdefs.shapes import broadcasts_to
from .editor import Editor, has_any, is_float
from .fuse_elementwise import MAX_INPUTS, fusible, node_formulas, reads_coordinates
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult

PRODUCTS = (*GEMM_OPS, "SCALED_MATMUL")


@dataclass(frozen=True, slots=True)
class FuseEpiloguePass:
    """Moves elementwise work into the product that runs last among those it reads."""

    name: str = "fuse_epilogue"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, PRODUCTS):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if fusible(editor, node):
                product = _product_before(editor, node)
                if product is not None:
                    _fuse(editor, product, node)
        return editor.finish()


def _product_before(editor: Editor, node: Node) -> Node | None:
    """Return the latest product that only node reads and that can make node's result."""
    found: Node | None = None
    for value in dict.fromkeys(node.inputs):
        maker = editor.made_by(value, *PRODUCTS)
        if maker is None or not _accepts(editor, maker, node):
            continue
        if found is None or editor.position(maker) > editor.position(found):
            found = maker
    return found


def _accepts(editor: Editor, product: Node, node: Node) -> bool:
    value = product.outputs[0]
    made, result = editor.type(value), editor.type(node.outputs[0])
    others = [editor.type(v) for v in node.inputs if v != value and editor.number(v) is None]
    matrices = all(editor.type(v).rank > 1 for v in product.inputs[:2])
    # Kernels of 8-bit operands write any element type, those of floats only their own.
    fits = made.shape == result.shape if product.op == "SCALED_MATMUL" else (
        made == result and is_float(result) and all(o.dtype == result.dtype for o in others))
    return (fits and editor.licensed(product, "epilogue") and matrices
            and editor.only_reader(value) is node
            and not reads_coordinates(node_formulas(editor, node))
            and len(product.inputs) + len(others) <= MAX_INPUTS
            and all(broadcasts_to(o.shape, result.shape) for o in others))


def _fuse(editor: Editor, product: Node, node: Node) -> None:
    value = product.outputs[0]
    scaled = product.op == "SCALED_MATMUL"
    result = editor.type(node.outputs[0])
    least = 5 if scaled else 4
    operands = [*product.inputs, *[""] * (least - len(product.inputs))]
    base, attrs = (_scaled if scaled else _plain)(editor, product, operands)
    table: dict[int, Expr] = {}
    for index, read in enumerate(node.inputs):
        number = editor.number(read)
        kind = DTYPES[editor.type(read).dtype].compute
        if read == value:
            table[index] = base
        elif number is not None:
            table[index] = const(number, kind)
        else:
            if read not in operands[2:]:
                operands.append(read)
            table[index] = input(operands.index(read, 2) - 1, kind)
    formula = substitute(node_formulas(editor, node), table)[0]
    if scaled:
        attrs["output_dtype"] = result.dtype
    attrs["epilogue"] = ExprBundle((cast(formula, DTYPES[result.dtype].compute),))
    made = editor.node("SCALED_MATMUL" if scaled else "GEMM_BIAS_ACT", operands, node.outputs,
                       attrs, node.name)
    editor.replace([product, node], [made])


def _plain(editor: Editor, product: Node, operands: Sequence[str]) -> tuple[Expr, dict[str, Any]]:
    """Return a product's epilogue so far, and the attributes that stay."""
    attrs = full_attrs("GEMM_BIAS_ACT", product.attrs if product.op != "MATMUL" else {})
    dtypes = [editor.type(v).dtype if v else None for v in operands[2:4]]
    base = epilogue_of(editor.type(product.outputs[0]).dtype, dtypes, attrs).outputs[0]
    return base, {name: attrs[name] for name in ("trans_a", "trans_b", *EPILOGUE_SCALARS)}


def _scaled(editor: Editor, product: Node, operands: Sequence[str]) -> tuple[Expr, dict[str, Any]]:
    dtypes = [editor.type(v).dtype if v else None for v in operands[2:5]]
    bundle = product.attrs.get("epilogue") or scaled_epilogue(
        editor.type(operands[0]).dtype, editor.type(product.outputs[0]).dtype, dtypes)
    return bundle.outputs[0], {}
