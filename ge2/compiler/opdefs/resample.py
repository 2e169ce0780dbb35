"""RESAMPLE: weighted sums of picked elements along axes; what interpolation comes down to."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.nodes import TensorType
from .opdef import FLOATS, Array, Arrays, OpDef, Types
from .shapes import axes_of, optional, tensor

_NAME = "RESAMPLE"


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    axes = axes_of(_NAME, attrs["axes"], x.rank)
    if not axes or len(axes) > 2 or list(axes) != sorted(axes):
        raise GraphError(f"{_NAME} takes one axis, or two in order", found=attrs["axes"])
    shape = list(x.shape)
    for index, axis in enumerate(axes):
        places, weights = optional(types, 1 + 2 * index), optional(types, 2 + 2 * index)
        if places is None or places.rank != 2:
            raise ShapeMismatch(f"{_NAME} needs places [out, taps] for axis {axis}", found=places)
        if weights is None and places.shape[1] != 1:
            raise ShapeMismatch(f"{_NAME} without weights picks one element", found=places)
        if weights is not None and weights.shape != places.shape:
            raise ShapeMismatch(f"{_NAME} weights differ in shape from places", found=weights,
                                wanted=places.shape)
        if weights is not None and x.dtype not in FLOATS:
            raise GraphError(f"{_NAME} of {x.dtype} has no weights", found=weights)
        if weights is not None and (weights.dtype == "f64") != (x.dtype == "f64"):
            raise GraphError(f"{_NAME} weights have the type that sums are in", found=weights,
                             wanted="f64" if x.dtype == "f64" else "f32")
        shape[axis] = places.shape[0]
    return [TensorType(x.dtype, tuple(shape))]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    for index, axis in enumerate(axes_of(_NAME, attrs["axes"], x.ndim)):
        places, weights = optional(arrays, 1 + 2 * index), optional(arrays, 2 + 2 * index)
        x = _along(x, axis, places, weights)
    return [x]


def _along(x: Array, axis: int, places: Array, weights: Array | None) -> Array:
    if weights is None:
        return np.take(x, places[:, 0], axis=axis)
    spread = (-1, *(1,) * (x.ndim - axis - 1))
    parts = (np.take(x, places[:, t], axis=axis) * weights[:, t].reshape(spread).astype(x.dtype)
             for t in range(places.shape[1]))
    shape = (*x.shape[:axis], places.shape[0], *x.shape[axis + 1:])
    return np.asarray(sum(parts, np.zeros(shape, x.dtype)))


_TABLES = {"places_a": ("i32",), "weights_a": ("f32", "f64"), "places_b": ("i32",),
           "weights_b": ("f32", "f64")}

OPDEFS = (
    OpDef(_NAME, ("x", "places_a", "weights_a?", "places_b?", "weights_b?"), 1,
          (AttrSpec("axes", "ints", REQUIRED, doc="one or two axes, in order"),),
          _infer, _reference, properties=frozenset({"linear", "rematerializable"}),
          family="resize", dtypes=(*FLOATS, "u8", "i8", "i32", "i64"), other=_TABLES,
          doc="Sum picked elements along axes: tables [out, taps] of places and weights."),
)
