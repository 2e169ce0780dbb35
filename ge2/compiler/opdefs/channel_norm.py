"""Normalisation per channel, group or neighbourhood of an NC... tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec, numpy_dtype
from ...errors import ShapeMismatch
from ..ir.nodes import TensorType
from .normalize import EPSILON, ROW_PROPERTIES, standardise
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import axes_of, axis_of, product, tensor

AXIS = AttrSpec("axis", "int", -1, doc="axis to normalise over")


def _infer_channels(op: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        if x.rank < 2:
            raise ShapeMismatch(f"{op} takes x of rank 2 or more", found=x)
        for index in range(1, len(types)):
            given = tensor(types, index)
            if given.shape != (x.shape[1],):
                raise ShapeMismatch(f"{op} takes one parameter per channel", found=given,
                                    wanted=f"[{x.shape[1]}]")
        groups = attrs.get("num_groups", 1)
        if groups < 1 or (isinstance(x.shape[1], int) and x.shape[1] % groups):
            raise ShapeMismatch(f"{op} num_groups does not divide the channels", found=groups,
                                wanted=f"a divisor of {x.shape[1]}")
        return [x]

    return infer


def _all(arrays: Arrays) -> list[Array]:
    return [array for array in arrays if array is not None]


def _per_channel(values: Array, rank: int) -> Array:
    return values.reshape(-1, *(1,) * (rank - 2))


def _reference_batch_norm(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, *channels = _all(arrays)
    scale, bias, mean, var = channels
    factor = scale / np.sqrt(var + x.dtype.type(attrs["epsilon"]))
    offset = bias - mean * factor
    return [x * _per_channel(factor, x.ndim) + _per_channel(offset, x.ndim)]


def _decompose_batch_norm(builder: Builder, inputs: Sequence[str],
                          attrs: dict[str, Any]) -> Sequence[str]:
    x, scale, bias, mean, var = inputs
    kind = builder.type(x)
    epsilon = builder.constant(np.asarray(attrs["epsilon"], numpy_dtype(kind.dtype)))
    factor = builder.op("MUL", scale, builder.op("RSQRT", builder.op("ADD", var, epsilon)))
    offset = builder.op("SUB", bias, builder.op("MUL", mean, factor))
    return [_affine(builder, x, factor, offset)]


def _affine(builder: Builder, x: str, scale: str, bias: str) -> str:
    """Return x * scale + bias with one value per channel."""
    kind = builder.type(x)
    shape = (kind.shape[1], *(1,) * (kind.rank - 2))
    scaled = builder.op("MUL", x, builder.op("RESHAPE", scale, shape=shape))
    return builder.op("ADD", scaled, builder.op("RESHAPE", bias, shape=shape))


def _reference_group_norm(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, scale, bias = _all(arrays)
    groups: Any = attrs.get("num_groups", x.shape[1])
    if not x.size:
        return [x]
    rows = standardise(x.reshape(x.shape[0], groups, -1), (2,), attrs["epsilon"])
    return [rows.reshape(x.shape) * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)]


def _decompose_group_norm(builder: Builder, inputs: Sequence[str],
                          attrs: dict[str, Any]) -> Sequence[str]:
    x, scale, bias = inputs
    kind = builder.type(x)
    groups = attrs.get("num_groups", kind.shape[1])
    inner = product(kind.shape[1:]) // groups
    rows = builder.op("RESHAPE", x, shape=(kind.shape[0], groups, inner), allowzero=True)
    one = builder.constant(np.ones((1,), numpy_dtype(kind.dtype)))
    norm = builder.op("LAYER_NORM", rows, builder.op("EXPAND", one, shape=(inner,)),
                      epsilon=attrs["epsilon"])
    return [_affine(builder, builder.op("RESHAPE", norm, shape=kind.shape, allowzero=True),
                    scale, bias)]


def _infer_lp(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    axis_of("LP_NORM", attrs["axis"], x.rank)
    return [x]


def _reference_lp(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    (x,) = _all(arrays)
    axis = attrs["axis"]
    if attrs["p"] == 1:
        norm = np.sum(np.abs(x), axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.sum(x * x, axis=axis, keepdims=True))
    return [np.where(norm == 0, x.dtype.type(0), x / norm)]


def _decompose_lp(builder: Builder, inputs: Sequence[str], attrs: dict[str, Any]) -> Sequence[str]:
    x = inputs[0]
    norm = builder.op("REDUCE_L1" if attrs["p"] == 1 else "REDUCE_L2", x, axes=(attrs["axis"],))
    zero = builder.constant(np.zeros((), numpy_dtype(builder.type(x).dtype)))
    empty = builder.op("EQUAL", norm, zero)
    return [builder.op("WHERE", empty, zero, builder.op("DIV", x, norm))]


def _infer_mvn(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    axes_of("MEAN_VARIANCE_NORM", attrs["axes"], x.rank)
    return [x]


def _reference_mvn(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    (x,) = _all(arrays)
    return [standardise(x, axes_of("MEAN_VARIANCE_NORM", attrs["axes"], x.ndim), 1e-9)]


def _decompose_mvn(builder: Builder, inputs: Sequence[str],
                   attrs: dict[str, Any]) -> Sequence[str]:
    x = inputs[0]
    axes = attrs["axes"]
    centred = builder.op("SUB", x, builder.op("REDUCE_MEAN", x, axes=axes))
    var = builder.op("REDUCE_MEAN", builder.op("MUL", centred, centred), axes=axes)
    tiny = builder.constant(np.asarray(1e-9, numpy_dtype(builder.type(x).dtype)))
    return [builder.op("MUL", centred, builder.op("RSQRT", builder.op("ADD", var, tiny)))]


def _infer_lrn(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if x.rank < 2 or attrs["size"] < 1:
        raise ShapeMismatch("LRN takes x of rank 2 or more and a positive size", found=x)
    return [x]


def _reference_lrn(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    (x,) = _all(arrays)
    size, channels = attrs["size"], x.shape[1]
    before = (size - 1) // 2
    square = np.pad(x * x, [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.ndim - 2))
    total = sum((square[:, i:i + channels] for i in range(1, size)), square[:, :channels])
    factor = x.dtype.type(attrs["alpha"] / size)
    return [x / (x.dtype.type(attrs["bias"]) + factor * total) ** x.dtype.type(attrs["beta"])]


def _decompose_lrn(builder: Builder, inputs: Sequence[str],
                   attrs: dict[str, Any]) -> Sequence[str]:
    """The channel window is an average pool over [N, 1, C, the rest]."""
    x = inputs[0]
    kind = builder.type(x)
    size = attrs["size"]
    before = (size - 1) // 2
    flat = (kind.shape[0], 1, kind.shape[1], product(kind.shape[2:]))
    square = builder.op("RESHAPE", builder.op("MUL", x, x), shape=flat, allowzero=True)
    mean = builder.op("AVG_POOL", square, kernel_shape=(size, 1), count_include_pad=True,
                      pads=(before, 0, size - 1 - before, 0))
    mean = builder.op("RESHAPE", mean, shape=kind.shape, allowzero=True)

    def number(value: float) -> str:
        return builder.constant(np.asarray(value, numpy_dtype(kind.dtype)))

    base = builder.op("ADD", builder.op("MUL", mean, number(attrs["alpha"])),
                      number(attrs["bias"]))
    return [builder.op("DIV", x, builder.op("POW", base, number(attrs["beta"])))]


_GROUPS = AttrSpec("num_groups", "int", REQUIRED, doc="groups of channels")

OPDEFS = (
    OpDef("BATCH_NORM", ("x", "scale", "bias", "mean", "var"), 1, (EPSILON,),
          _infer_channels("BATCH_NORM"), _reference_batch_norm,
          properties=frozenset({"rematerializable"}), family="composite", dtypes=FLOATS,
          decompose=_decompose_batch_norm,
          doc="(x - mean) / sqrt(var + epsilon) * scale + bias per channel; mean, var given."),
    OpDef("GROUP_NORM", ("x", "scale", "bias"), 1, (_GROUPS, EPSILON),
          _infer_channels("GROUP_NORM"), _reference_group_norm, properties=ROW_PROPERTIES,
          family="row", dtypes=FLOATS, decompose=_decompose_group_norm,
          doc="Layer norm over each group of channels, then scale and bias per channel."),
    OpDef("INSTANCE_NORM", ("x", "scale", "bias"), 1, (EPSILON,),
          _infer_channels("INSTANCE_NORM"), _reference_group_norm, properties=ROW_PROPERTIES,
          family="row", dtypes=FLOATS, decompose=_decompose_group_norm,
          doc="Layer norm over each channel of each sample, then scale and bias per channel."),
    OpDef("LP_NORM", ("x",), 1, (AXIS, AttrSpec("p", "int", 2, doc="1 or 2")), _infer_lp,
          _reference_lp, properties=ROW_PROPERTIES | {"prologue"}, family="row", dtypes=FLOATS,
          decompose=_decompose_lp, doc="x divided by its norm along an axis; 0 where that is 0."),
    OpDef("MEAN_VARIANCE_NORM", ("x",), 1,
          (AttrSpec("axes", "ints", (0, 2, 3), doc="axes of the statistics"),), _infer_mvn,
          _reference_mvn, properties=ROW_PROPERTIES, family="row", dtypes=FLOATS,
          decompose=_decompose_mvn, doc="(x - mean) / standard deviation over axes."),
    OpDef("LRN", ("x",), 1,
          (AttrSpec("size", "int", REQUIRED, doc="channels in a window"),
           AttrSpec("alpha", "float", 1e-4, doc="factor"),
           AttrSpec("beta", "float", 0.75, doc="exponent"),
           AttrSpec("bias", "float", 1.0, doc="addend")),
          _infer_lrn, _reference_lrn, properties=frozenset({"rematerializable"}),
          family="composite", dtypes=FLOATS, decompose=_decompose_lrn,
          doc="x / (bias + alpha * mean of squares over neighbouring channels) ** beta."),
)
