"""One spelling for what has several: no-ops go, compositions become one node, constants go right.

1. IDENTITY, a CAST, RESHAPE, EXPAND or SLICE that changes nothing, CONCAT and friends of one input.
2. Multiplication and division by 1, subtraction of 0, the first power.
3. TRANSPOSE of TRANSPOSE, RESHAPE of RESHAPE; a CAST behind a CAST that lost nothing.
4. The constant operand of a commutative operator becomes the second.
5. x to the 2 is x * x.
6. The second application of an idempotent operator, or both of an involution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.nodes import Graph, Node
from ..opdefs.movement import permutation, slice_axes
from .editor import Editor, all_equal, is_float
from .pass_manager import PassResult

Rule = Callable[[Editor, Node], bool]


@dataclass(frozen=True, slots=True)
class CanonicalizePass:
    """Applies the rules of this module once to every node, in order."""

    name: str = "canonicalize"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        editor = Editor(graph)
        for node in editor.sweep():
            for rule in (*_BY_OP.get(node.op, ()), *_GENERAL):
                if rule(editor, node):
                    break
        return editor.finish()


def _drop(editor: Editor, node: Node) -> bool:
    return editor.redirect(node.outputs[0], node.inputs[0])


def _drop_if_same_type(editor: Editor, node: Node) -> bool:
    return editor.type(node.inputs[0]) == editor.type(node.outputs[0]) and _drop(editor, node)


def _drop_single(editor: Editor, node: Node) -> bool:
    return len(node.inputs) == 1 and _drop(editor, node)


def _slice(editor: Editor, node: Node) -> bool:
    shape = editor.type(node.inputs[0]).shape
    whole = all(step == 1 and count == shape[axis]
                for axis, _, step, count in slice_axes(editor.attrs(node), shape))
    return whole and _drop(editor, node)


# For each element type, those that hold all of its values.
_LOSSLESS = {
    "f16": {"f32", "f64"}, "bf16": {"f32", "f64"}, "f32": {"f64"}, "i32": {"i64", "f64"},
    "u8": {"i32", "i64", "f32", "f64", "f16"}, "i8": {"i32", "i64", "f32", "f64", "f16"},
}


def _cast(editor: Editor, node: Node) -> bool:
    if _drop_if_same_type(editor, node):
        return True
    before = editor.made_by(node.inputs[0], "CAST")
    if before is None:
        return False
    source = before.inputs[0]
    kept = _LOSSLESS.get(editor.type(source).dtype, set())
    if editor.type(node.inputs[0]).dtype not in kept:
        return False
    if editor.type(source).dtype == node.attrs["to"] and editor.redirect(node.outputs[0], source):
        return True
    editor.with_inputs(node, [source])
    return True


def _transpose(editor: Editor, node: Node) -> bool:
    rank = editor.type(node.inputs[0]).rank
    order = permutation(editor.attrs(node), rank)
    source = node.inputs[0]
    before = editor.made_by(source, "TRANSPOSE")
    if before is not None and editor.licensed(node, "composes"):
        first = permutation(editor.attrs(before), rank)
        order, source = tuple(first[axis] for axis in order), before.inputs[0]
    if order == tuple(range(rank)) and editor.redirect(node.outputs[0], source):
        return True
    if source == node.inputs[0]:
        return False
    made = editor.node("TRANSPOSE", [source], node.outputs, {"perm": order}, node.name)
    editor.replace([node], [made])
    return True


def _reshape(editor: Editor, node: Node) -> bool:
    if _drop_if_same_type(editor, node):
        return True
    source = node.inputs[0]
    before = editor.made_by(source, "RESHAPE")
    if before is not None and editor.licensed(node, "composes"):
        source = before.inputs[0]
        if (editor.type(source) == editor.type(node.outputs[0])
                and editor.redirect(node.outputs[0], source)):
            return True
    attrs = {"shape": editor.type(node.outputs[0]).shape, "allowzero": True}
    if source == node.inputs[0] and dict(node.attrs) == attrs:
        return False
    made = editor.node("RESHAPE", [source], node.outputs, attrs, node.name)
    editor.replace([node], [made])
    return True


def _unit_operand(unit: float) -> Rule:
    def rule(editor: Editor, node: Node) -> bool:
        for index in (1, 0):
            array = editor.constant(node.inputs[index])
            # Only a commutative operator may lose its left operand.
            usable = index == 1 or editor.licensed(node, "commutative")
            if array is not None and usable and array.size and all_equal(array, unit):
                kept = node.inputs[1 - index]
                same = editor.type(kept) == editor.type(node.outputs[0])
                if same and editor.redirect(node.outputs[0], kept):
                    return True
        return False

    return rule


def _square(editor: Editor, node: Node) -> bool:
    x, exponent = node.inputs
    same = editor.type(x) == editor.type(node.outputs[0])
    if editor.number(exponent) != 2 or not same or not is_float(editor.type(x)):
        return False
    editor.replace([node], [editor.node("MUL", [x, x], node.outputs, name=node.name)])
    return True


def _constant_right(editor: Editor, node: Node) -> bool:
    if len(node.inputs) != 2 or not editor.licensed(node, "commutative"):
        return False
    left, right = (editor.constant(value) is not None for value in node.inputs)
    if not left or right:
        return False
    editor.with_inputs(node, [node.inputs[1], node.inputs[0]])
    return True


def _repeated(editor: Editor, node: Node) -> bool:
    if len(node.inputs) != 1 or node.attrs:
        return False
    before = editor.made_by(node.inputs[0], node.op)
    if before is None or before.attrs or len(before.inputs) != 1:
        return False
    if editor.licensed(node, "idempotent"):
        return editor.redirect(node.outputs[0], node.inputs[0])
    return editor.licensed(node, "involution") and editor.redirect(
        node.outputs[0], before.inputs[0])


_BY_OP: dict[str, tuple[Rule, ...]] = {
    "IDENTITY": (_drop,),
    "CAST": (_cast,),
    "EXPAND": (_drop_if_same_type,),
    "SLICE": (_slice,),
    "TRANSPOSE": (_transpose,),
    "RESHAPE": (_reshape,),
    "MUL": (_unit_operand(1.0),),
    "DIV": (_unit_operand(1.0),),
    "SUB": (_unit_operand(0.0),),
    "POW": (_unit_operand(1.0), _square),
    **dict.fromkeys(("CONCAT", "SUM", "MEAN", "MAX", "MIN"), (_drop_single,)),
}
_GENERAL: tuple[Rule, ...] = (_constant_right, _repeated)
