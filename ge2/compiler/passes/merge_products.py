"""Products of one input with several weights become one product and a view per result.

Query, key and value projections read the same tokens: one product over the weights side by side
reads them once and fills the device better. Each result is a slice, which costs no launch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from .cse import frozen
from .editor import Editor, has_any, is_float
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult

# Readers that take a strided operand in place, or pass it on as a view.
_STRIDED_FAMILIES = frozenset({"elementwise", "row", "gemm", "movement", "attention"})


@dataclass(frozen=True, slots=True)
class MergeProductsPass:
    """Merges products that share their first operand and have constant weights."""

    name: str = "merge_products"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, GEMM_OPS):
            return PassResult(graph, False)
        editor = Editor(graph)
        groups: dict[Hashable, list[Node]] = {}
        for node in editor.sweep():
            key = _key(editor, node)
            if key is not None:
                groups.setdefault(key, []).append(node)
        for nodes in groups.values():
            if len(nodes) > 1:
                _merge(editor, nodes)
        return editor.finish()


def _gemm_attrs(node: Node) -> dict[str, Any]:
    return full_attrs("GEMM_BIAS_ACT", node.attrs if node.op == "GEMM_BIAS_ACT" else {})


def _key(editor: Editor, node: Node) -> Hashable | None:
    """Return what products must have in common to be merged; None for one that cannot be."""
    if node.op not in GEMM_OPS or not editor.licensed(node, "columnwise"):
        return None
    weights = editor.constant(node.inputs[1])
    attrs = _gemm_attrs(node)
    if weights is None or weights.ndim != 2 or not is_float(editor.type(node.inputs[1])):
        return None
    if attrs["epilogue"] is not None or any(node.inputs[3:]) or editor.is_output(node.outputs[0]):
        return None
    if editor.type(node.inputs[0]).rank < 2 or _bias(editor, node) is None:
        return None
    if not _reads_strides(editor.readers(node.outputs[0])):
        return None
    common = ("trans_a", "trans_b", "act", "leaky_slope")
    return node.inputs[0], frozen({name: attrs[name] for name in common})


def _reads_strides(readers: Iterable[Node]) -> bool:
    from ..opdefs import get

    return all(get(reader.op).family in _STRIDED_FAMILIES for reader in readers)


def _bias(editor: Editor, node: Node) -> npt.NDArray[Any] | None:
    """Return a product's bias as one value per column; None if it is another kind of bias."""
    columns = editor.type(node.outputs[0]).shape[-1]
    dtype = editor.graph.constants[node.inputs[1]].dtype
    if not isinstance(columns, int):
        return None
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(columns, dtype)
    array = editor.constant(node.inputs[2])
    if array is None or array.size not in (1, columns) or array.shape[-1:] not in (
            (), (1,), (columns,)):
        return None
    return np.broadcast_to(array.reshape(-1), (columns,))


def _merge(editor: Editor, nodes: list[Node]) -> None:
    first = nodes[0]
    attrs = _gemm_attrs(first)
    biases = [_bias(editor, node) for node in nodes]
    weights = [_scaled(editor, node) for node in nodes]
    axis = 0 if attrs["trans_b"] else 1
    stem = f"{first.name}.merged"
    inputs = [first.inputs[0], editor.graph.add_constant(
        editor.fresh(f"{stem}.weights"), np.concatenate(weights, axis=axis))]
    joined = np.concatenate([b for b in biases if b is not None])
    if np.any(joined):
        inputs.append(editor.graph.add_constant(editor.fresh(f"{stem}.bias"), joined))
    defaults = full_attrs("GEMM_BIAS_ACT", {})
    kept = {k: v for k, v in {**attrs, "alpha": 1.0, "beta": 1.0}.items() if v != defaults[k]}
    value = editor.fresh(stem)
    merged = editor.node("GEMM_BIAS_ACT", inputs, [value], kept)
    editor.insert_before(first, [merged])
    start, last_axis = 0, editor.type(value).rank - 1
    for node, part in zip(nodes, weights, strict=True):
        end = start + part.shape[axis]
        piece = editor.node("SLICE", [value], node.outputs,
                            {"starts": (start,), "ends": (end,), "axes": (last_axis,)}, node.name)
        editor.replace([node], [piece])
        start = end


def _scaled(editor: Editor, node: Node) -> npt.NDArray[Any]:
    """Return a product's weights with its alpha multiplied in."""
    array = editor.graph.constants[node.inputs[1]]
    alpha = _gemm_attrs(node)["alpha"]
    return array if alpha == 1.0 else (array.astype(np.float64) * alpha).astype(array.dtype)
