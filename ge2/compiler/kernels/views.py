"""Operators that are views: the same memory under another offset, shape and strides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...contract import DTYPES
from ...problem import TensorSpec
from .. import opdefs
from ..ir import properties
from ..ir.nodes import Node, TensorType
from ..ir.size import common_divisor
from ..opdefs.movement import permutation, slice_axes
from .strides import expand, reshape_strides


@dataclass(frozen=True, slots=True)
class View:
    """Where a value lies: strides may be 0 or negative; offset counts elements from its buffer."""

    spec: TensorSpec
    offset: int = 0


def view(node: Node, source: View, output: int = 0) -> View | None:
    """Return output number output of node as a view of its input 0; None if it needs a kernel.

    The node must be concrete (no symbolic extents in its attributes).
    """
    rule = _RULES.get(node.op)
    if rule is None or not properties.licensed(node.op, "view"):
        return None
    attrs = opdefs.full_attrs(node.op, node.attrs)
    spec = source.spec
    shapes = opdefs.infer(node.op, [TensorType(spec.dtype, spec.shape)], node.attrs)
    found = rule(spec, attrs, _ints(shapes[output].shape), output)
    if found is None:
        return None
    shape, strides, moved = found
    step = abs(moved) * DTYPES[spec.dtype].itemsize
    made = replace(spec, shape=shape, strides=strides, align=common_divisor(spec.align, step))
    return View(made, source.offset + moved)


Ints = tuple[int, ...]
Found = tuple[Ints, Ints, int] | None
Rule = Callable[[TensorSpec, dict[str, Any], Ints, int], Found]


def _ints(extents: Any) -> Ints:
    return tuple(extents)


def _same(spec: TensorSpec, attrs: dict[str, Any], shape: Ints, output: int) -> Found:
    return spec.shape, spec.strides, 0


def _transpose(spec: TensorSpec, attrs: dict[str, Any], shape: Ints, output: int) -> Found:
    order = permutation(attrs, len(spec.shape))
    return shape, tuple(spec.strides[axis] for axis in order), 0


def _reshape(spec: TensorSpec, attrs: dict[str, Any], shape: Ints, output: int) -> Found:
    strides = reshape_strides(spec.shape, spec.strides, shape)
    return None if strides is None else (shape, strides, 0)


def _expand(spec: TensorSpec, attrs: dict[str, Any], shape: Ints, output: int) -> Found:
    return shape, expand(spec, shape).strides, 0


def _slice(spec: TensorSpec, attrs: dict[str, Any], shape: Ints, output: int) -> Found:
    strides, moved = list(spec.strides), 0
    for axis, first, step, count in slice_axes(attrs, spec.shape):
        if count:
            moved += first * spec.strides[axis]  # type: ignore[assignment] # concrete
        strides[axis] *= step
    return shape, tuple(strides), moved if spec.size else 0


def _flip(spec: TensorSpec, attrs: dict[str, Any], shape: Ints, output: int) -> Found:
    strides, moved = list(spec.strides), 0
    for axis in attrs["axes"]:
        moved += max(spec.shape[axis] - 1, 0) * spec.strides[axis]
        strides[axis] = -spec.strides[axis]
    return shape, tuple(strides), moved


def _split(spec: TensorSpec, attrs: dict[str, Any], shape: Ints, output: int) -> Found:
    axis = attrs["axis"]
    sizes = opdefs.infer("SPLIT", [TensorType(spec.dtype, spec.shape)], attrs)
    before = sum(piece.shape[axis] for piece in sizes[:output])
    return shape, spec.strides, before * spec.strides[axis]


_RULES: dict[str, Rule] = {
    "IDENTITY": _same,
    "TRANSPOSE": _transpose,
    "RESHAPE": _reshape,
    "FLATTEN": _reshape,
    "SQUEEZE": _reshape,
    "UNSQUEEZE": _reshape,
    "EXPAND": _expand,
    "SLICE": _slice,
    "FLIP": _flip,
    "SPLIT": _split,
}
