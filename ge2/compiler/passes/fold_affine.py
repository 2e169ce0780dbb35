"""A factor and a summand per channel go into the weights and the bias of what comes before.

This folds a BATCH_NORM (decomposed: a product and a sum with constants) into the convolution or
matrix product before it, also behind a bias, and gives a convolution its bias, a residual sum and
its activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.nodes import Graph, Node
from ..opdefs import full_attrs
from .activations import activation_of
from .chains import other_input
from .editor import Editor, has_any, is_float
from .fuse_gemm import GEMM_OPS
from .pass_manager import PassResult

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class FoldAffinePass:
    """Folds products and sums with constants into constant weights."""

    name: str = "fold_affine"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, ("CONV2D", *GEMM_OPS)):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op == "CONV2D" or node.op in GEMM_OPS:
                affine = _Affine.of(editor, node)
                if affine is not None:
                    _grow(editor, affine)
        return editor.finish()


@dataclass(slots=True)
class _Affine:
    """node(x, w) * factor + summand, with one value of each per channel.

    Attributes:
        nodes: what it replaces, in order.
        axis: of the channels in the result; weight_axis: in the weights.
        scaled: whether a factor per channel was taken in.
        residual: a tensor that a convolution adds at the end.
    """

    nodes: list[Node]
    axis: int
    weight_axis: int
    weights: Array
    factor: Array
    summand: Array
    scaled: bool = False
    residual: str = ""

    @property
    def node(self) -> Node:
        return self.nodes[0]

    @property
    def value(self) -> str:
        return self.nodes[-1].outputs[0]

    @classmethod
    def of(cls, editor: Editor, node: Node) -> _Affine | None:
        """Return a node with constant weights (and bias) and nothing after them."""
        weights = editor.constant(node.inputs[1])
        attrs = editor.attrs(node)
        plain = attrs.get("act", "none") == "none" and attrs.get("epilogue") is None
        if weights is None or not plain or any(node.inputs[3:]) or weights.ndim < 2:
            return None
        if not is_float(editor.type(node.inputs[1])) or not editor.licensed(node, "columnwise"):
            return None
        if node.op == "CONV2D":
            axis, weight_axis = 1, 0
        else:
            if weights.ndim != 2 or editor.type(node.inputs[0]).rank < 2:
                return None
            axis = editor.type(node.outputs[0]).rank - 1
            weight_axis = 0 if attrs.get("trans_b", False) else 1
        channels = weights.shape[weight_axis]
        bias = _bias(editor, node, axis, channels)
        return None if bias is None else cls([node], axis, weight_axis, weights,
                                             np.ones(channels), bias)


def _bias(editor: Editor, node: Node, axis: int, channels: int) -> Array | None:
    """Return a node's bias per channel, zeros where it has none; None if it is no constant."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(channels)
    array = editor.constant(node.inputs[2])
    if array is None:
        return None
    if node.op == "CONV2D":
        return array.astype(np.float64)
    return _per_channel(array, editor.type(node.outputs[0]).rank, axis, channels)


def _per_channel(array: Array, rank: int, axis: int, channels: int) -> Array | None:
    """Return a constant as one value per channel if it varies along that axis at most."""
    if array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    others = shape[:axis] + shape[axis + 1:]
    if any(extent != 1 for extent in others) or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,))


def _grow(editor: Editor, affine: _Affine) -> None:
    while (reader := editor.only_reader(affine.value)) is not None:
        if not _take(editor, affine, reader):
            break
        affine.nodes.append(reader)
    convolution = affine.node.op == "CONV2D"
    act: dict[str, Any] = {}
    if convolution:
        affine.residual = _residual(editor, affine)
        act = _activation(editor, affine)
    # A product takes sums and numbers as bias and alpha already; only factors need new weights.
    if len(affine.nodes) > 1 and (convolution or affine.scaled):
        _replace(editor, affine, act)


def _take(editor: Editor, affine: _Affine, reader: Node) -> bool:
    """Take a product, quotient, sum or difference with a constant in."""
    other = other_input(reader, affine.value)
    array = editor.constant(other) if other else None
    kind = editor.type(affine.value)
    if array is None or editor.type(reader.outputs[0]) != kind:
        return False
    channels = affine.factor.size
    values = _per_channel(array, kind.rank, affine.axis, channels)
    first = reader.inputs[0] == affine.value
    if values is None or reader.op not in ("MUL", "DIV", "ADD", "SUB"):
        return False
    if reader.op in ("DIV", "SUB") and not first:
        return False
    if reader.op in ("MUL", "DIV"):
        if reader.op == "DIV" and not np.all(values):
            return False
        factor = values if reader.op == "MUL" else 1.0 / values
        affine.factor = affine.factor * factor
        affine.summand = affine.summand * factor
        affine.scaled = affine.scaled or array.size > 1
    else:
        affine.summand = affine.summand + (values if reader.op == "ADD" else -values)
    return True


def _residual(editor: Editor, affine: _Affine) -> str:
    """Take the addition of a tensor of the result's shape in and return that tensor, or ""."""
    reader = editor.only_reader(affine.value)
    other = other_input(reader, affine.value) if reader is not None else None
    if reader is None or other is None or reader.op != "ADD":
        return ""
    if editor.type(other) != editor.type(affine.value) or not editor.licensed(
            affine.node, "epilogue"):
        return ""
    affine.nodes.append(reader)
    return other


def _activation(editor: Editor, affine: _Affine) -> dict[str, Any]:
    """Take the activation behind a convolution in and return its attributes."""
    reader = editor.only_reader(affine.value)
    found = activation_of(editor, reader) if reader is not None else None
    if reader is None or found is None or not editor.licensed(affine.node, "epilogue"):
        return {}
    affine.nodes.append(reader)
    return {"act": found[0], **({} if found[1] is None else {"leaky_slope": found[1]})}


def _replace(editor: Editor, affine: _Affine, act: dict[str, Any]) -> None:
    node, last = affine.node, affine.nodes[-1]
    dtype = affine.weights.dtype
    inputs = list(node.inputs[:3])
    if np.any(affine.factor != 1.0):
        shape = [1] * affine.weights.ndim
        shape[affine.weight_axis] = -1
        scaled = affine.weights.astype(np.float64) * affine.factor.reshape(shape)
        inputs[1] = editor.graph.add_constant(editor.fresh(f"{node.inputs[1]}.scaled"),
                                              scaled.astype(dtype))
    if np.any(affine.summand) or len(inputs) > 2:
        # alpha multiplies the product only, never the bias: the summand is complete as it is.
        name = editor.fresh(f"{last.name}.bias")
        bias = editor.graph.add_constant(name, affine.summand.astype(dtype))
        inputs[2:] = [bias]
    if affine.residual:
        inputs += [""] * (3 - len(inputs))
        inputs.append(affine.residual)
    op = "CONV2D" if node.op == "CONV2D" else "GEMM_BIAS_ACT"
    attrs = {k: v for k, v in node.attrs.items() if k in full_attrs(op, {})}
    made = editor.node(op, inputs, last.outputs, {**attrs, **act}, last.name)
    editor.replace(affine.nodes, [made])
