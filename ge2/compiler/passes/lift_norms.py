"""Chains of means and square roots become LAYER_NORM or RMS_NORM.

1. x / sqrt(mean(x * x) + epsilon), with the root as SQRT and DIV, RSQRT and MUL, RECIPROCAL or
   POW, is RMS_NORM.
2. The same over d = x - mean(x), where nothing else reads d, is LAYER_NORM of x.
3. x * f + (bias - mean(x) * f) with f = scale / sqrt(mean(d * d) + epsilon) is LAYER_NORM, too.
4. A product and (LAYER_NORM) a sum with one value per element of the row behind it become scale
   and bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...contract import numpy_dtype
from ..ir.dim import Extent
from ..ir.nodes import Graph, Node
from ..opdefs.shapes import broadcasts_to
from .chains import (
    added_number,
    is_inverse_of,
    is_inverse_root_of,
    is_root_of,
    kept_axes,
    other_input,
    read_only_by,
    squared,
)
from .editor import Editor, has_any, is_float
from .pass_manager import PassResult


@dataclass(frozen=True, slots=True)
class LiftNormsPass:
    """Finds normalisations at the mean of squares that they are built on."""

    name: str = "lift_norms"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, ("REDUCE_MEAN",)):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op == "REDUCE_MEAN" and editor.licensed(node, "mergeable"):
                found = _standardised(editor, node)
                if found is not None:
                    _lift(editor, found)
        return editor.finish()


@dataclass(slots=True)
class _Norm:
    """A normalisation on its way to one node.

    Attributes:
        x: what is normalised; axis: the first axis of its rows.
        epsilon: added to the mean of squares.
        nodes: everything that it replaces, in order; the last makes its value.
        parameters: scale and bias, where they are known from the start.
    """

    x: str
    axis: int
    epsilon: float
    nodes: list[Node]
    op: str = "RMS_NORM"
    parameters: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        return self.nodes[-1].outputs[0]


def _standardised(editor: Editor, mean: Node) -> _Norm | None:
    """Return x / sqrt(mean(x * x) + epsilon) that is built on a mean."""
    x = squared(editor, mean.inputs[0])
    square = editor.producer(mean.inputs[0])
    axes = kept_axes(editor, mean)
    if x is None or square is None or axes is None or not is_float(editor.type(x)):
        return None
    rank = editor.type(x).rank
    if axes != tuple(range(rank - len(axes), rank)) or not axes:
        return None
    if not read_only_by(editor, square.outputs[0], [mean]):
        return None
    nodes, epsilon = [square, mean], 0.0
    step = editor.only_reader(mean.outputs[0])
    if step is None:
        return None
    number = added_number(editor, step, mean.outputs[0])
    if number is not None:
        nodes.append(step)
        epsilon = number
    batch_form = _batch_form(editor, nodes, x, axes)
    if batch_form is not None:
        batch_form.epsilon = epsilon
        return batch_form
    last = _divided(editor, nodes, x)
    return None if last is None else _Norm(x, axes[0], epsilon, nodes)


def _batch_form(editor: Editor, before: list[Node], centred_value: str,
                axes: tuple[int, ...]) -> _Norm | None:
    """Return x * f + (bias - mean * f) that is built on the variance before it."""
    centred = editor.made_by(centred_value, "SUB")
    if centred is None or not read_only_by(editor, centred_value, before[:1]):
        return None
    x, mean_value = centred.inputs
    mean = editor.made_by(mean_value, "REDUCE_MEAN")
    if mean is None or mean.inputs[0] != x or kept_axes(editor, mean) != axes:
        return None
    nodes = [mean, centred, *before]
    factor = _factor(editor, nodes)
    if factor is None:
        return None
    value = factor.outputs[0]
    products = {other_input(r, value): r for r in editor.readers(value) if r.op == "MUL"}
    if set(products) != {x, mean_value} or not read_only_by(editor, value, products.values()) or (
            not read_only_by(editor, mean_value, [centred, products[mean_value]])):
        return None
    shift = editor.only_reader(products[mean_value].outputs[0])
    last = editor.only_reader(products[x].outputs[0])
    if shift is None or last is None or shift.op != "SUB" or last.op != "ADD" or (
            shift.inputs[1] != products[mean_value].outputs[0]
            or other_input(last, products[x].outputs[0]) != shift.outputs[0]
            or editor.only_reader(shift.outputs[0]) is not last):
        return None
    inner = editor.type(x).shape[axes[0]:]
    scale = other_input(factor, nodes[-2].outputs[0])
    rows = [_row(editor, v, inner) for v in (scale, shift.inputs[0]) if v is not None]
    if len(rows) != 2 or editor.type(last.outputs[0]) != editor.type(x):
        return None
    parameters = tuple(row for row in rows if row is not None)
    nodes += [products[mean_value], products[x], shift, last]
    return _Norm(x, axes[0], 0.0, nodes, "LAYER_NORM", parameters) if len(parameters) == 2 else None


def _factor(editor: Editor, nodes: list[Node]) -> Node | None:
    """Append what leads from a variance to scale / sqrt(variance) and return the product."""
    variance = nodes[-1].outputs[0]
    root = editor.only_reader(variance)
    if root is None:
        return None
    nodes.append(root)
    if is_root_of(editor, root, variance):
        inverse = editor.only_reader(root.outputs[0])
        if inverse is None or not is_inverse_of(editor, inverse, root.outputs[0]):
            return None
        nodes.append(inverse)
    elif not is_inverse_root_of(editor, root, variance):
        return None
    product = editor.only_reader(nodes[-1].outputs[0])
    if product is None or product.op != "MUL":
        return None
    nodes.append(product)
    return product


def _divided(editor: Editor, nodes: list[Node], x: str) -> Node | None:
    """Append what leads from the variance to x / sqrt(variance) and return the last node."""
    variance = nodes[-1].outputs[0]
    root = editor.only_reader(variance)
    if root is None:
        return None
    nodes.append(root)
    inverted = is_inverse_root_of(editor, root, variance)
    if not inverted and not is_root_of(editor, root, variance):
        return None
    last = editor.only_reader(root.outputs[0])
    if last is not None and not inverted and is_inverse_of(editor, last, root.outputs[0]):
        nodes.append(last)
        inverted, last = True, editor.only_reader(last.outputs[0])
    if last is None or other_input(last, nodes[-1].outputs[0]) != x:
        return None
    if last.op != ("MUL" if inverted else "DIV") or (not inverted and last.inputs[0] != x):
        return None
    nodes.append(last)
    return last


def _lift(editor: Editor, norm: _Norm) -> None:
    if norm.parameters:
        last = norm.nodes[-1]
        attrs = {"axis": norm.axis - editor.type(norm.x).rank, "epsilon": norm.epsilon}
        made = editor.node(norm.op, [norm.x, *norm.parameters], last.outputs, attrs, last.name)
        editor.replace(norm.nodes, [made])
        return
    _centre(editor, norm)
    # What is centred may be read by the square and the division only; x itself by anyone.
    scale = _affine(editor, norm, "MUL")
    bias = _affine(editor, norm, "ADD") if norm.op == "LAYER_NORM" and scale else None
    last = norm.nodes[-1]
    dtype = numpy_dtype(editor.type(norm.x).dtype)
    if scale is None:
        scale = editor.graph.add_constant(editor.fresh(f"{last.name}.scale"), np.ones((), dtype))
    inputs = [norm.x, scale, *([bias] if bias else [])]
    attrs = {"axis": norm.axis - editor.type(norm.x).rank, "epsilon": norm.epsilon}
    made = editor.node(norm.op, inputs, last.outputs, attrs, last.name)
    editor.replace(norm.nodes, [made])


def _centre(editor: Editor, norm: _Norm) -> None:
    """Turn the RMS_NORM of x - mean(x) into the LAYER_NORM of x."""
    centred = editor.made_by(norm.x, "SUB")
    if centred is None:
        return
    x, mean_value = centred.inputs
    mean = editor.made_by(mean_value, "REDUCE_MEAN")
    if mean is None or mean.inputs[0] != x or mean.inputs[0] == mean_value:
        return
    square, last = norm.nodes[0], norm.nodes[-1]
    axes = kept_axes(editor, mean)
    rank = editor.type(x).rank
    if (axes == tuple(range(norm.axis, rank)) and editor.licensed(mean, "mergeable")
            and read_only_by(editor, mean_value, [centred])
            and read_only_by(editor, norm.x, [square, last])
            and editor.type(x) == editor.type(norm.x)):
        norm.nodes[:0] = [mean, centred]
        norm.x, norm.op = x, "LAYER_NORM"


def _affine(editor: Editor, norm: _Norm, op: str) -> str | None:
    """Absorb a product or sum with one value per element of the row; return that value."""
    reader = editor.only_reader(norm.value)
    if reader is None or reader.op != op:
        return None
    other = other_input(reader, norm.value)
    if other is None or editor.type(reader.outputs[0]) != editor.type(norm.value):
        return None
    row = _row(editor, other, editor.type(norm.x).shape[norm.axis:])
    if row is not None:
        # In a LAYER_NORM without scale the sum could be a residual: only true rows are a bias.
        norm.nodes.append(reader)
    return row


def _row(editor: Editor, value: str, inner: tuple[Extent, ...]) -> str | None:
    """Return a value with one element per element of a row; a constant without leading axes."""
    shape = editor.type(value).shape
    if broadcasts_to(shape, inner):
        return value
    array = editor.constant(value)
    lead = len(shape) - len(inner)
    if array is None or lead <= 0 or any(extent != 1 for extent in shape[:lead]):
        return None
    row = editor.graph.add_constant(editor.fresh(f"{value}.row"),
                                    array.reshape(array.shape[lead:]))
    return row if broadcasts_to(editor.type(row).shape, inner) else None
