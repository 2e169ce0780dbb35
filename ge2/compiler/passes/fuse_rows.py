"""Elementwise nodes before and behind a row operator are computed inside its kernel.

1. A formula whose only reader is the row operator becomes its prologue.
2. A formula that alone reads the row operator's result becomes its epilogue; where there is one
   value per row, only if it reads nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...contract import DTYPES
from ..ir.expr import Expr, ExprBundle, const, input, substitute, walk
from ..ir.nodes import Graph, Node
from ..opdefs.fused_row import BASES
from ..opdefs.shapes import broadcasts_to
from .editor import Editor, has_any, is_float
from .fuse_elementwise import MAX_INPUTS, fusible, node_formulas, reads_coordinates
from .pass_manager import PassResult

# Kernels may evaluate a prologue once per pass over the row.
MAX_PROLOGUE_STEPS = 32


@dataclass(frozen=True, slots=True)
class FuseRowsPass:
    """Grows row operators by what is around them."""

    name: str = "fuse_rows"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, BASES):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op in BASES and is_float(editor.type(node.inputs[0])):
                _grow(editor, node)
        return editor.finish()


def _grow(editor: Editor, node: Node) -> None:
    before = _before(editor, node)
    behind = _behind(editor, node)
    if before is None and behind is None:
        return
    result = node.outputs[0]
    absorbed = [node]
    xs, extras = [node.inputs[0]], [v for v in node.inputs[1:] if v]
    more: list[str] = []
    attrs: dict[str, Any] = {
        "base": node.op, **node.attrs, "n_extras": len(extras),
        "dtype": editor.type(result).dtype,
    }
    if before is not None:
        absorbed.insert(0, before)
        formula, xs = _formula(editor, before, None)
        attrs["prologue"] = ExprBundle((formula,))
    attrs["n_xs"] = len(xs)
    if behind is not None:
        absorbed.append(behind)
        formula, more = _formula(editor, behind, result)
        attrs["epilogue"] = ExprBundle((formula,))
        attrs["dtype"] = editor.type(behind.outputs[0]).dtype
    last = absorbed[-1]
    made = editor.node("FUSED_ROW", [*xs, *extras, *more], last.outputs, attrs, last.name)
    editor.replace(absorbed, [made])


def _before(editor: Editor, node: Node) -> Node | None:
    """Return the formula that only this row operator reads as its x."""
    value = node.inputs[0]
    maker = editor.producer(value)
    if maker is None or not fusible(editor, maker) or not editor.licensed(node, "prologue"):
        return None
    kind = editor.type(value)
    inputs = _operands(editor, maker, None)
    formula = node_formulas(editor, maker)
    computes = {DTYPES[editor.type(v).dtype].compute for v in inputs}
    if (editor.only_reader(value) is not node or node.inputs.count(value) > 1 or not inputs
            or not computes <= {DTYPES[kind.dtype].compute, "bool"}
            or len(inputs) + len(node.inputs) > MAX_INPUTS // 2
            or not any(editor.type(v).shape == kind.shape for v in inputs)
            or len(walk(formula)) > MAX_PROLOGUE_STEPS or reads_coordinates(formula)):
        return None
    return maker


def _behind(editor: Editor, node: Node) -> Node | None:
    """Return the formula that alone reads this row operator's result."""
    value = node.outputs[0]
    reader = editor.only_reader(value)
    if reader is None or not fusible(editor, reader) or not editor.licensed(node, "epilogue"):
        return None
    kind = editor.type(value)
    per_row = kind.shape != editor.type(node.inputs[0]).shape or node.op.startswith("REDUCE")
    operands = _operands(editor, reader, value)
    if (editor.type(reader.outputs[0]).shape != kind.shape or (per_row and operands)
            or len(operands) + len(node.inputs) > MAX_INPUTS // 2
            or not all(broadcasts_to(editor.type(v).shape, kind.shape) for v in operands)
            or reads_coordinates(node_formulas(editor, reader))):
        return None
    return reader


def _operands(editor: Editor, node: Node, result: str | None) -> list[str]:
    """Return what a formula reads besides numbers and the row operator's result."""
    return [v for v in dict.fromkeys(node.inputs)
            if v != result and editor.number(v) is None]


def _formula(editor: Editor, node: Node, result: str | None) -> tuple[Expr, list[str]]:
    """Return a node's expression over (result, then) the operands, and these operands."""
    operands: Sequence[str] = _operands(editor, node, result)
    places = [*([result] if result else []), *operands]
    table: dict[int, Expr] = {}
    for index, value in enumerate(node.inputs):
        compute = DTYPES[editor.type(value).dtype].compute
        number = editor.number(value)
        if value in places:
            table[index] = input(places.index(value), compute)
        else:
            assert number is not None
            table[index] = const(number, compute)
    return substitute(node_formulas(editor, node), table)[0], list(operands)
