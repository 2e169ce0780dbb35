"""MATMUL, scale, addition and activation become one GEMM_BIAS_ACT.

1. A product by a number behind the product, or on one of its operands, becomes alpha.
2. One addition becomes the bias (what broadcasts, and constants) or C (what has the full shape,
   with a product by a number as beta); a second addition takes the place that is left.
3. An activation of the shared table ends the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from .activations import activation_of
from .editor import Editor, has_any, is_float
from .pass_manager import PassResult

GEMM_OPS = ("MATMUL", "GEMM_BIAS_ACT")


@dataclass(frozen=True, slots=True)
class FuseGemmPass:
    """Grows every matrix product along the only readers of its result."""

    name: str = "fuse_gemm"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, GEMM_OPS):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op in GEMM_OPS and _extensible(editor, node):
                _grow(editor, _Product.of(editor, node))
        return editor.finish()


@dataclass(slots=True)
class _Product:
    """A matrix product on its way to a GEMM_BIAS_ACT.

    Attributes:
        absorbed: nodes that it replaces, in order; the last makes its value.
        operands: A, B, bias, C; "" where absent.
        attrs: of the GEMM_BIAS_ACT.
    """

    absorbed: list[Node]
    operands: list[str]
    attrs: dict[str, Any]

    @classmethod
    def of(cls, editor: Editor, node: Node) -> _Product:
        attrs = full_attrs("GEMM_BIAS_ACT", node.attrs if node.op == "GEMM_BIAS_ACT" else {})
        return cls([node], [*node.inputs, "", ""][:4], attrs)

    @property
    def value(self) -> str:
        return self.absorbed[-1].outputs[0]

    @property
    def is_bare(self) -> bool:
        """Whether nothing was added to the product yet."""
        return not any(self.operands[2:])


def _extensible(editor: Editor, node: Node) -> bool:
    a, b = (editor.type(value) for value in node.inputs[:2])
    attrs = node.attrs
    plain = attrs.get("act", "none") == "none" and attrs.get("epilogue") is None
    return (plain and a.rank > 1 and b.rank > 1 and is_float(a)
            and editor.licensed(node, "epilogue"))


def _grow(editor: Editor, product: _Product) -> None:
    scaled = _scaled_operands(editor, product)
    while (reader := editor.only_reader(product.value)) is not None:
        if editor.type(reader.outputs[0]) != editor.type(product.value):
            break
        if not any(rule(editor, product, reader) for rule in _RULES):
            break
        product.absorbed.append(reader)
        if product.attrs["act"] != "none":
            break
    if len(product.absorbed) == 1 and not scaled:
        return
    last = product.absorbed[-1]
    defaults = full_attrs("GEMM_BIAS_ACT", {})
    attrs = {key: value for key, value in product.attrs.items() if value != defaults[key]}
    operands = product.operands
    while not operands[-1]:
        operands.pop()
    made = editor.node("GEMM_BIAS_ACT", operands, last.outputs, attrs, last.name)
    editor.replace(product.absorbed, [made])


def _scaled_operands(editor: Editor, product: _Product) -> bool:
    """Take numbers that multiply A or B out of the product, into alpha."""
    first = product.absorbed[0]
    found = False
    for index in (0, 1):
        maker = editor.made_by(product.operands[index], "MUL", "DIV")
        factor = None if maker is None else scaled_by(editor, maker)
        if maker is None or factor is None or not editor.licensed(first, "linear"):
            continue
        if editor.only_reader(maker.outputs[0]) is not first or len(set(first.inputs)) == 1:
            continue
        product.operands[index] = factor[0]
        product.attrs["alpha"] *= factor[1]
        product.absorbed.insert(0, maker)
        found = True
    return found


def scaled_by(editor: Editor, node: Node) -> tuple[str, float] | None:
    """Return (x, factor) where a node is x * number or x / number without broadcasting x."""
    x, other = node.inputs
    number = editor.number(other)
    if number is None and node.op == "MUL":
        x, other = other, x
        number = editor.number(other)
    if number is None or editor.type(x) != editor.type(node.outputs[0]):
        return None
    if node.op == "DIV":
        return (x, 1.0 / number) if number else None
    return x, number


def _scale(editor: Editor, product: _Product, reader: Node) -> bool:
    if reader.op not in ("MUL", "DIV") or not product.is_bare:
        return False
    factor = scaled_by(editor, reader)
    if factor is None or factor[0] != product.value:
        return False
    product.attrs["alpha"] *= factor[1]
    return True


def _add(editor: Editor, product: _Product, reader: Node) -> bool:
    if reader.op not in ("ADD", "SUB") or reader.inputs.count(product.value) != 1:
        return False
    left = reader.inputs[0] == product.value
    other = reader.inputs[1] if left else reader.inputs[0]
    if reader.op == "SUB":
        return left and _put_c(product, other, -1.0)
    full = editor.type(other) == editor.type(product.value)
    if full and editor.constant(other) is None:
        scaled = _scaled_addend(editor, reader, other)
        if scaled is not None and _put_c(product, *scaled[:2]):
            product.absorbed.insert(0, scaled[2])
            return True
        return _put_c(product, other, 1.0) or _put_bias(product, other)
    return _put_bias(product, other) or _put_c(product, other, 1.0)


def _scaled_addend(editor: Editor, reader: Node, value: str) -> tuple[str, float, Node] | None:
    maker = editor.made_by(value, "MUL", "DIV")
    if maker is None or editor.only_reader(value) is not reader:
        return None
    factor = scaled_by(editor, maker)
    return None if factor is None else (*factor, maker)


def _put_c(product: _Product, value: str, beta: float) -> bool:
    if product.operands[3]:
        return False
    product.operands[3] = value
    product.attrs["beta"] = beta
    return True


def _put_bias(product: _Product, value: str) -> bool:
    if product.operands[2]:
        return False
    product.operands[2] = value
    return True


def _activation(editor: Editor, product: _Product, reader: Node) -> bool:
    found = activation_of(editor, reader)
    if found is None:
        return False
    product.attrs["act"], slope = found
    if slope is not None:
        product.attrs["leaky_slope"] = slope
    return True


_RULES: tuple[Callable[[Editor, _Product, Node], bool], ...] = (_scale, _add, _activation)
