"""ATTENTION reads and writes heads side by side, as projections lay them out.

TRANSPOSE(RESHAPE(x, [batch, length, heads, size])) before it and the reverse behind it are strides
of a kernel that knows the number of heads; written out, the reverse costs a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.dim import Extent
from ..ir.nodes import Graph, Node
from ..opdefs.movement import permutation
from .editor import Editor, has_any
from .pass_manager import PassResult

_HEADS_BEHIND = (0, 2, 1, 3)


@dataclass(frozen=True, slots=True)
class FoldHeadsPass:
    """Turns ATTENTION of four axes into that of [batch, length, heads * size]."""

    name: str = "fold_heads"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, ("ATTENTION",)):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op == "ATTENTION" and editor.type(node.inputs[0]).rank == 4:
                _fold(editor, node)
        return editor.finish()


def _fold(editor: Editor, node: Node) -> None:
    q, k, v = node.inputs[:3]
    sources = [_before_transposes(editor, value) for value in (q, k, v)]
    behind = editor.only_reader(node.outputs[0])
    heads, groups = editor.type(q).shape[1], editor.type(k).shape[1]
    counted = isinstance(heads, int) and isinstance(groups, int)
    if behind is None or behind.op != "TRANSPOSE" or not counted or any(
            source is None for source in sources):
        return
    if permutation(editor.attrs(behind), 4) != _HEADS_BEHIND:
        return
    new: list[Node] = []
    operands = [_merged(editor, source, new) for source in sources if source is not None]
    value, statistics = editor.fresh(f"{node.name}.merged"), node.outputs[1:]
    attrs = {**node.attrs, "q_num_heads": heads, "kv_num_heads": groups}
    new.append(editor.node("ATTENTION", [*operands, *node.inputs[3:]], [value, *statistics], attrs,
                           node.name))
    old = [node, behind]
    last = editor.only_reader(behind.outputs[0])
    if last is not None and last.op == "RESHAPE":
        old.append(last)
    result = old[-1].outputs[0]
    if editor.type(result) == editor.type(value):
        new[-1] = editor.node("ATTENTION", new[-1].inputs, [result, *statistics], attrs, node.name)
        del editor.graph.types[value]
    else:
        shape = editor.type(result).shape
        new.append(editor.node("RESHAPE", [value], [result], {"shape": shape, "allowzero": True},
                               old[-1].name))
    editor.replace(old, new)


def _before_transposes(editor: Editor, value: str) -> str | None:
    """Return x of [batch, length, heads, size] where a value is x with the heads in front."""
    order: tuple[int, ...] = (0, 1, 2, 3)
    while order != _HEADS_BEHIND:
        maker = editor.made_by(value, "TRANSPOSE")
        if maker is None:
            return None
        first = permutation(editor.attrs(maker), 4)
        order, value = tuple(first[axis] for axis in order), maker.inputs[0]
    return value


def _merged(editor: Editor, value: str, new: list[Node]) -> str:
    """Return [batch, length, heads * size] of a value, without a node where it came from there."""
    batch, length, heads, size = editor.type(value).shape
    shape: tuple[Extent, ...] = (batch, length, heads * size)
    maker = editor.made_by(value, "RESHAPE")
    if maker is not None and editor.type(maker.inputs[0]).shape == shape:
        return maker.inputs[0]
    source = maker.inputs[0] if maker is not None else value
    made = editor.fresh(f"{value}.merged")
    new.append(editor.node("RESHAPE", [source], [made], {"shape": shape, "allowzero": True}))
    return made
