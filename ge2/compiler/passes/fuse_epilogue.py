"""An elementwise node that alone reads a matrix product becomes the product's epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from ...contract import DTYPES
from ..ir.expr import Expr, ExprBundle, cast, const, input, substitute
from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from ..opdefs.gemm_epilogue import EPILOGUE_SCALARS, epilogue_of
from ..opdefs.shapes import broadcasts_to
from .editor import Editor, has_any, is_float
from .fuse_elementwise import MAX_INPUTS, fusible, node_formulas, reads_coordinates
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult


@dataclass(frozen=True, slots=True)
class FuseEpiloguePass:
    """Moves elementwise work into the product that runs last among those it reads."""

    name: str = "fuse_epilogue"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, GEMM_OPS):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if fusible(editor, node):
                product = _product_before(editor, node)
                if product is not None:
                    _fuse(editor, product, node)
        return editor.finish()


def _product_before(editor: Editor, node: Node) -> Node | None:
    """Return the latest product that only node reads and whose result has node's type."""
    found: Node | None = None
    for value in dict.fromkeys(node.inputs):
        maker = editor.made_by(value, *GEMM_OPS)
        if maker is None or not _accepts(editor, maker, node):
            continue
        if found is None or editor.position(maker) > editor.position(found):
            found = maker
    return found


def _accepts(editor: Editor, product: Node, node: Node) -> bool:
    value = product.outputs[0]
    result = editor.type(node.outputs[0])
    others = [editor.type(v) for v in node.inputs if v != value and editor.number(v) is None]
    matrices = all(editor.type(v).rank > 1 for v in product.inputs[:2])
    return (editor.licensed(product, "epilogue") and matrices and is_float(result)
            and editor.only_reader(value) is node and editor.type(value) == result
            and not reads_coordinates(node_formulas(editor, node))
            and len(product.inputs) + len(others) <= MAX_INPUTS
            and all(o.dtype == result.dtype and broadcasts_to(o.shape, result.shape)
                    for o in others))


def _fuse(editor: Editor, product: Node, node: Node) -> None:
    value = product.outputs[0]
    dtype = editor.type(value).dtype
    compute = DTYPES[dtype].compute
    operands = [*product.inputs, "", ""] if product.op == "MATMUL" else list(product.inputs)
    operands += [""] * (4 - len(operands))
    attrs = full_attrs("GEMM_BIAS_ACT", product.attrs if product.op != "MATMUL" else {})
    dtypes = [editor.type(v).dtype if v else None for v in operands[2:4]]
    base = epilogue_of(dtype, dtypes, attrs).outputs[0]
    table: dict[int, Expr] = {}
    for index, read in enumerate(node.inputs):
        number = editor.number(read)
        if read == value:
            table[index] = base
        elif number is not None:
            kind = DTYPES[editor.type(read).dtype].compute
            table[index] = const(number, kind)
        else:
            if read not in operands[2:]:
                operands.append(read)
            table[index] = input(operands.index(read, 2) - 1, compute)
    result = cast(substitute(node_formulas(editor, node), table)[0], compute)
    kept = {name: attrs[name] for name in ("trans_a", "trans_b", *EPILOGUE_SCALARS)}
    made = editor.node("GEMM_BIAS_ACT", operands, node.outputs,
                       {**kept, "epilogue": ExprBundle((result,))}, node.name)
    editor.replace([product, node], [made])
