"""Softmax and normalisation over the trailing axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...contract import AttrSpec
from ...errors import ShapeMismatch
from ..ir.nodes import TensorType
from .opdef import BOOL, FLOATS, Array, Arrays, OpDef, Types
from .shapes import axis_of, broadcasts_to, optional, tensor

AXIS = AttrSpec("axis", "int", -1, doc="axis to normalise over")
EPSILON = AttrSpec("epsilon", "float", 1e-5, doc="added to the variance")
ROW_PROPERTIES = frozenset({"mergeable", "rematerializable", "epilogue"})
SOFTMAX_PROPERTIES = ROW_PROPERTIES | {"shift_invariant", "prologue"}


def _infer_axis(op: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        axis_of(op, attrs["axis"], x.rank)
        mask = optional(types, 1)
        if mask is not None and not broadcasts_to(mask.shape, x.shape):
            raise ShapeMismatch(f"{op} mask does not broadcast to x", found=mask, wanted=x)
        return [x]

    return infer


def _peak(x: Array, axis: int) -> Array:
    if not x.shape[axis]:
        return np.zeros((*x.shape[:axis], 1, *x.shape[axis:][1:]), x.dtype)
    return np.asarray(np.max(x, axis=axis, keepdims=True))


def softmax(x: Array, axis: int) -> Array:
    """Return softmax; a row of -inf only is NaN."""
    axis = axis % x.ndim
    out = x - _peak(x, axis)
    np.exp(out, out=out)
    out /= np.sum(out, axis=axis, keepdims=True)
    return np.asarray(out)


def masked_softmax(x: Array, mask: Array, axis: int) -> Array:
    """Return softmax over the positions where mask is true; 0 elsewhere and in rows of none."""
    axis = axis % x.ndim
    mask = mask.reshape((1,) * (x.ndim - mask.ndim) + mask.shape)
    out = np.where(mask, x, x.dtype.type(-np.inf))
    peak = _peak(out, axis)
    allowed = np.any(mask, axis=axis, keepdims=True)  # before broadcasting: masks are shared
    out -= np.where(allowed, peak, x.dtype.type(0))
    np.exp(out, out=out)
    total = np.sum(out, axis=axis, keepdims=True)
    out /= np.where(allowed, total, x.dtype.type(1))
    return np.asarray(np.where(mask, out, x.dtype.type(0)))


def _reference_softmax(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    return [softmax(x, attrs["axis"])]


def _reference_log_softmax(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    axis = attrs["axis"] % x.ndim
    shifted = x - _peak(x, axis)
    return [np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))]


def _reference_masked_softmax(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, mask = arrays
    assert x is not None and mask is not None
    return [masked_softmax(x, mask, attrs["axis"])]


def _infer_norm(op: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        inner = x.shape[axis_of(op, attrs["axis"], x.rank):]
        for name, given in zip(("scale", "bias"), types[1:], strict=False):
            if given is not None and not broadcasts_to(given.shape, inner):
                raise ShapeMismatch(f"{op} {name} does not fit the normalised axes", found=given,
                                    wanted=f"{tuple(inner)}")
        return [x]

    return infer


def standardise(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Return (x - mean) / sqrt(var + epsilon) over axes; the variance from centred values."""
    if not x.size:
        return x
    out = x - np.mean(x, axis=axes, keepdims=True)
    var = np.mean(out * out, axis=axes, keepdims=True)
    out /= np.sqrt(var + x.dtype.type(epsilon))
    return np.asarray(out)


def _inner_axes(x: Array, axis: int) -> tuple[int, ...]:
    return tuple(range(axis % x.ndim, x.ndim))


def _affine(out: Array, arrays: Arrays) -> list[Array]:
    scale, bias = optional(arrays, 1), optional(arrays, 2)
    if scale is not None:
        out = out * scale
    return [out if bias is None else out + bias]


def _reference_layer_norm(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    return _affine(standardise(x, _inner_axes(x, attrs["axis"]), attrs["epsilon"]), arrays)


def _reference_rms_norm(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    if not x.size:
        return [x]
    square = np.mean(x * x, axis=_inner_axes(x, attrs["axis"]), keepdims=True)
    return _affine(x / np.sqrt(square + x.dtype.type(attrs["epsilon"])), arrays)


OPDEFS = (
    OpDef("SOFTMAX", ("x",), 1, (AXIS,), _infer_axis("SOFTMAX"), _reference_softmax,
          properties=SOFTMAX_PROPERTIES, family="row", dtypes=FLOATS,
          doc="exp(x) / sum(exp(x)) along an axis; a row of -inf only is NaN."),
    OpDef("LOG_SOFTMAX", ("x",), 1, (AXIS,), _infer_axis("LOG_SOFTMAX"), _reference_log_softmax,
          properties=SOFTMAX_PROPERTIES, family="row", dtypes=FLOATS,
          doc="Logarithm of SOFTMAX, without cancellation."),
    OpDef("MASKED_SOFTMAX", ("x", "mask"), 1, (AXIS,), _infer_axis("MASKED_SOFTMAX"),
          _reference_masked_softmax, properties=SOFTMAX_PROPERTIES,
          family="row", dtypes=FLOATS, other={"mask": BOOL},
          doc="SOFTMAX over the positions where mask is true; 0 elsewhere and in rows of none."),
    OpDef("LAYER_NORM", ("x", "scale", "bias?"), 1, (AXIS, EPSILON), _infer_norm("LAYER_NORM"),
          _reference_layer_norm, properties=ROW_PROPERTIES, family="row", dtypes=FLOATS,
          doc="(x - mean) / sqrt(var + epsilon) * scale + bias over axis and all after it."),
    OpDef("RMS_NORM", ("x", "scale"), 1, (AXIS, EPSILON), _infer_norm("RMS_NORM"),
          _reference_rms_norm, properties=ROW_PROPERTIES | {"prologue"}, family="row",
          dtypes=FLOATS,
          doc="x / sqrt(mean(x * x) + epsilon) * scale over axis and all after it."),
)
