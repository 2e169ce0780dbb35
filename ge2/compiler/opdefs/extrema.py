"""Where the extreme values along an axis are: ARGMAX, ARGMIN, TOPK, HARDMAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec
from ...errors import ShapeMismatch
from ..ir.nodes import TensorType
from .opdef import FLOATS, NUMERIC, Array, Arrays, Builder, OpDef, Types
from .shapes import axis_of, tensor
from .topk import decompose_topk


def _only(arrays: Arrays) -> Array:
    x = arrays[0]
    assert x is not None
    return x


def _infer_arg(op: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        axis = axis_of(op, attrs["axis"], x.rank)
        if x.shape[axis] == 0:
            raise ShapeMismatch(f"{op} of nothing", found=x)
        kept = (1,) if attrs["keepdims"] else ()
        return [TensorType("i64", (*x.shape[:axis], *kept, *x.shape[axis + 1:]))]

    return infer


def _reference_arg(pick: Callable[..., Any]) -> Callable[[Arrays, dict[str, Any]], list[Array]]:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x, axis = _only(arrays), attrs["axis"]
        if not attrs["select_last_index"]:
            return [np.asarray(pick(x, axis=axis, keepdims=attrs["keepdims"]))]
        found = pick(np.flip(x, axis), axis=axis, keepdims=attrs["keepdims"])
        return [np.asarray(x.shape[axis] - 1 - found)]

    return reference


def _infer_topk(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, k = tensor(types, 0), attrs["k"]
    axis = axis_of("TOPK", attrs["axis"], x.rank)
    size = x.shape[axis]
    if isinstance(k, int) and (k < 0 or (isinstance(size, int) and k > size)):
        raise ShapeMismatch("TOPK k is out of range", found=k, wanted=f"0..{size}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1:])
    return [TensorType(x.dtype, shape), TensorType("i64", shape)]


def _reference_topk(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    """Ties go to the lower index; NaN counts as the largest value."""
    x, axis, k = _only(arrays), attrs["axis"] % _only(arrays).ndim, attrs["k"]
    if attrs["largest"]:
        flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(flipped, axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis=axis)
    return [np.take_along_axis(x, order, axis), order]


def _infer_hardmax(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    axis_of("HARDMAX", attrs["axis"], x.rank)
    return [x]


def _reference_hardmax(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, axis = _only(arrays), attrs["axis"]
    if not x.size:
        return [x]
    out = np.zeros_like(x)
    np.put_along_axis(out, np.argmax(x, axis=axis, keepdims=True), 1, axis)
    return [out]


def _decompose_hardmax(builder: Builder, inputs: Sequence[str],
                       attrs: dict[str, Any]) -> Sequence[str] | None:
    kind = builder.type(inputs[0])
    axis = attrs["axis"] % kind.rank
    size = kind.shape[axis]
    if not isinstance(size, int) or not size:
        return None
    top = builder.op("ARGMAX", inputs[0], axis=axis)
    places = np.arange(size, dtype=np.int64).reshape(-1, *(1,) * (kind.rank - axis - 1))
    return [builder.op("CAST", builder.op("EQUAL", top, builder.constant(places)), to=kind.dtype)]


_AXIS = AttrSpec("axis", "int", 0, doc="axis")
_ARG = (_AXIS, AttrSpec("keepdims", "bool", True, doc="keep the axis with extent 1"),
        AttrSpec("select_last_index", "bool", False, doc="ties go to the last index"))
_ROW = frozenset({"mergeable", "rematerializable"})

OPDEFS = (
    OpDef("ARGMAX", ("x",), 1, _ARG, _infer_arg("ARGMAX"), _reference_arg(np.argmax),
          properties=_ROW, family="row", dtypes=NUMERIC,
          doc="Index of the maximum along an axis; the first NaN wins."),
    OpDef("ARGMIN", ("x",), 1, _ARG, _infer_arg("ARGMIN"), _reference_arg(np.argmin),
          properties=_ROW, family="row", dtypes=NUMERIC,
          doc="Index of the minimum along an axis; the first NaN wins."),
    OpDef("TOPK", ("x",), 2,
          (AttrSpec("k", "int", REQUIRED, doc="how many"), AttrSpec("axis", "int", -1, doc="axis"),
           AttrSpec("largest", "bool", True, doc="largest or smallest"),
           AttrSpec("sorted", "bool", True, doc="in order; they always are")),
          _infer_topk, _reference_topk, properties=frozenset({"order_sensitive"}), family="sort",
          dtypes=NUMERIC, decompose=decompose_topk,
          doc="The k extreme values along an axis and their indices; ties go to the lower index."),
    OpDef("HARDMAX", ("x",), 1, (AttrSpec("axis", "int", -1, doc="axis"),), _infer_hardmax,
          _reference_hardmax, properties=_ROW, family="row", dtypes=FLOATS,
          decompose=_decompose_hardmax, doc="1 at the first maximum along an axis, 0 elsewhere."),
)
