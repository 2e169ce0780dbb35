"""Reductions over axes that do not lie side by side become what row kernels can walk.

1. Where partial results merge, one reduction per group of adjacent axes, the innermost first.
2. Otherwise the reduced axes move to the end by a TRANSPOSE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...contract import DTYPES
from ..ir.nodes import Graph, Node, TensorType
from ..opdefs.reduce import reduced_axes
from .editor import Editor
from .pass_manager import PassResult

# Reductions that equal themselves applied twice, and whether half precision may lie in between.
_CHAINS = {"REDUCE_SUM": False, "REDUCE_MEAN": False, "REDUCE_PROD": False,
           "REDUCE_MAX": True, "REDUCE_MIN": True}


@dataclass(frozen=True, slots=True)
class SplitReductionsPass:
    """Rewrites reductions whose axes are apart."""

    name: str = "split_reductions"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not any(node.op.startswith("REDUCE_") for node in graph.nodes):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op.startswith("REDUCE_"):
                _split(editor, node)
        return editor.finish()


def _split(editor: Editor, node: Node) -> None:
    kind = editor.type(node.inputs[0])
    axes = reduced_axes(node.op, editor.attrs(node), kind.rank)
    groups = _groups(axes, kind)
    if len(groups) < 2:
        return
    exact = kind.dtype not in ("f16", "bf16")
    if node.op == "REDUCE_MEAN" and DTYPES[kind.dtype].kind != "float":
        exact = False  # each mean of integers truncates
    if editor.licensed(node, "mergeable") and (exact or _CHAINS.get(node.op)) and (
            node.op in _CHAINS):
        _chain(editor, node, groups)
    else:
        _move(editor, node, axes, kind.rank)


def _groups(axes: Sequence[int], kind: TensorType) -> list[list[int]]:
    """Return axes in groups that nothing but axes of extent 1 lies between."""
    groups: list[list[int]] = []
    for axis in axes:
        between = kind.shape[groups[-1][-1] + 1: axis] if groups else ()
        if groups and all(extent == 1 for extent in between):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _chain(editor: Editor, node: Node, groups: list[list[int]]) -> None:
    value, new = node.inputs[0], []
    for axes in groups[:0:-1]:
        name = editor.fresh(f"{node.name}.partial")
        new.append(editor.node(node.op, [value], [name], {"axes": tuple(axes), "keepdims": True}))
        value = name
    keep = editor.attrs(node)["keepdims"]
    if not keep:
        # The other axes are 1 by now; they go together with the last group.
        axes = [axis for group in groups for axis in group]
        new.append(editor.node(node.op, [value], node.outputs,
                               {"axes": tuple(axes), "keepdims": False}, node.name))
    else:
        new.append(editor.node(node.op, [value], node.outputs,
                               {"axes": tuple(groups[0]), "keepdims": True}, node.name))
    editor.replace([node], new)


def _move(editor: Editor, node: Node, axes: Sequence[int], rank: int) -> None:
    order = (*(a for a in range(rank) if a not in axes), *axes)
    moved = editor.fresh(f"{node.name}.moved")
    new = [editor.node("TRANSPOSE", [node.inputs[0]], [moved], {"perm": order})]
    attrs = {**node.attrs, "axes": tuple(range(rank - len(axes), rank)), "keepdims": False}
    if editor.attrs(node)["keepdims"]:
        shape = editor.type(node.outputs[0]).shape
        flat = editor.fresh(f"{node.name}.flat")
        new.append(editor.node(node.op, [moved], [flat], attrs))
        new.append(editor.node("RESHAPE", [flat], node.outputs,
                               {"shape": shape, "allowzero": True}, node.name))
    else:
        new.append(editor.node(node.op, [moved], node.outputs, attrs, node.name))
    editor.replace([node], new)
