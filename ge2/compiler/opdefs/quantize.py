"""Quantisation to 8 bits and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import AttrSpec, numpy_dtype
from ...errors import DtypeMismatch, GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from .gemm import matmul, product_shape
from .opdef import F8, FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import axis_of, optional, tensor

_BYTES = ("u8", "i8")
_CODES = (*_BYTES, *F8)
_LIMITS = {"u8": (0, 255), "i8": (-128, 127)}
_AXIS = AttrSpec("axis", "int", 1, doc="axis of a per-axis scale")
_BLOCK = AttrSpec("block_size", "int", 0, doc="elements of axis that share a scale; 0 = all")


def _check_scale(op: str, x: TensorType, scale: TensorType, zero: TensorType | None,
                 attrs: dict[str, Any]) -> None:
    ones = ((), (1,))
    if zero is not None and zero.shape != scale.shape and not (
            zero.shape in ones and scale.shape in ones):
        raise ShapeMismatch(f"{op} zero_point and scale differ", found=zero, wanted=scale)
    if attrs["block_size"] < 0:
        raise GraphError(f"{op} block_size is negative", found=attrs["block_size"])
    if attrs["block_size"]:
        axis = axis_of(op, attrs["axis"], x.rank)
        wanted: tuple[Extent, ...] = tuple(
            (e + (attrs["block_size"] - 1)) // attrs["block_size"] if i == axis else e
            for i, e in enumerate(x.shape))
    elif scale.shape in ((), (1,)):
        return
    else:
        wanted = (x.shape[axis_of(op, attrs["axis"], x.rank)],)
    if scale.shape != wanted:
        raise ShapeMismatch(f"{op} scale does not fit", found=scale, wanted=f"{tuple(wanted)}")


def _spread(values: Array, x: Array, attrs: dict[str, Any]) -> Array:
    """Return a scale or zero point in a shape that broadcasts to x."""
    axis = attrs["axis"] % max(x.ndim, 1)
    if attrs["block_size"]:
        whole = np.repeat(values, attrs["block_size"], axis=axis)
        return np.take(whole, np.arange(x.shape[axis]), axis=axis)
    if values.size == 1:
        return values.reshape(())
    return values.reshape(-1, *(1,) * (x.ndim - axis - 1))


def _spread_value(builder: Builder, value: str, like: str, attrs: dict[str, Any]) -> str:
    kind, x = builder.type(value), builder.type(like)
    if attrs["block_size"]:
        axis = attrs["axis"] % x.rank
        wide = builder.op("UNSQUEEZE", value, axes=(axis + 1,))
        shape = (*kind.shape[:axis + 1], attrs["block_size"], *kind.shape[axis + 1:])
        wide = builder.op("EXPAND", wide, shape=shape)
        shape = (*kind.shape[:axis], kind.shape[axis] * attrs["block_size"],
                 *kind.shape[axis + 1:])
        wide = builder.op("RESHAPE", wide, shape=shape, allowzero=True)
        return builder.op("SLICE", wide, axes=(axis,), starts=(0,), ends=(x.shape[axis],))
    if kind.shape in ((), (1,)):
        return builder.op("RESHAPE", value, shape=())
    shape = (kind.shape[0], *(1,) * (x.rank - attrs["axis"] % x.rank - 1))
    return builder.op("RESHAPE", value, shape=shape, allowzero=True)


def _out_dtype(zero: TensorType | None, attrs: dict[str, Any]) -> str:
    given = attrs["output_dtype"]
    if given is not None and (given not in _CODES or (zero is not None and zero.dtype != given)):
        raise DtypeMismatch("QUANTIZE output_dtype does not fit", found=given,
                            wanted=zero.dtype if zero is not None else " or ".join(_CODES))
    return zero.dtype if zero is not None else given or "u8"


def _infer_quantize(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, scale, zero = tensor(types, 0), tensor(types, 1), optional(types, 2)
    _check_scale("QUANTIZE", x, scale, zero, attrs)
    return [TensorType(_out_dtype(zero, attrs), x.shape)]


def _reference_quantize(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, scale, zero = arrays[0], arrays[1], optional(arrays, 2)
    assert x is not None and scale is not None
    dtype = attrs["output_dtype"] or "u8"
    out = x / _spread(scale, x, attrs)
    if dtype in F8 or (zero is not None and zero.dtype.kind == "f"):
        return [out if zero is None else out + _spread(zero, x, attrs)]
    out = np.rint(out)
    if zero is not None:
        dtype = "u8" if zero.dtype == np.uint8 else "i8"
        out += _spread(zero, x, attrs)
    return [np.clip(out, *_LIMITS[dtype])]


def _decompose_quantize(builder: Builder, inputs: Sequence[str],
                        attrs: dict[str, Any]) -> Sequence[str]:
    x, zero = inputs[0], optional(inputs, 2) or ""
    dtype = _out_dtype(builder.type(zero) if zero else None, attrs)
    scale = _spread_value(builder, inputs[1], x, attrs)
    # Rounded quotients above 2048 are not exact in f16.
    wide = [builder.op("CAST", value, to="f32") if builder.type(value).dtype in ("f16", "bf16")
            else value for value in (x, scale)]
    out = builder.op("DIV", *wide)
    if dtype not in F8:
        out = builder.op("ROUND", out)
    if zero:
        offset = _spread_value(builder, zero, x, attrs)
        out = builder.op("ADD", out, builder.op("CAST", offset, to=builder.type(out).dtype))
    if dtype not in F8:
        low, high = _LIMITS[dtype]
        out = builder.op("CLIP", out, min=low, max=high)
    return [builder.op("CAST", out, to=dtype)]


def _infer_dequantize(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, scale, zero = tensor(types, 0), tensor(types, 1), optional(types, 2)
    _check_scale("DEQUANTIZE", x, scale, zero, attrs)
    return [TensorType(scale.dtype, x.shape)]


def _reference_dequantize(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, scale, zero = arrays[0], arrays[1], optional(arrays, 2)
    assert x is not None and scale is not None
    out = x.astype(scale.dtype)
    if zero is not None:
        out -= _spread(zero, x, attrs).astype(scale.dtype)
    return [out * _spread(scale, x, attrs)]


def _decompose_dequantize(builder: Builder, inputs: Sequence[str],
                          attrs: dict[str, Any]) -> Sequence[str]:
    x, zero = inputs[0], optional(inputs, 2) or ""
    dtype = builder.type(inputs[1]).dtype
    wide = "f64" if dtype == "f64" else "f32"
    out = builder.op("CAST", x, to=wide)
    if zero:
        offset = builder.op("CAST", _spread_value(builder, zero, x, attrs), to=wide)
        out = builder.op("SUB", out, offset)
    scale = builder.op("CAST", _spread_value(builder, inputs[1], x, attrs), to=wide)
    return [builder.op("CAST", builder.op("MUL", out, scale), to=dtype)]


def _infer_matmul(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    a, b = tensor(types, 0), tensor(types, 1)
    for index, rows in ((2, a.shape[-2:-1]), (3, b.shape[-1:])):
        zero = optional(types, index)
        if zero is not None and zero.shape not in ((), (1,), rows):
            raise ShapeMismatch("MATMUL_INTEGER zero point does not fit", found=zero,
                                wanted=f"a scalar or {rows}")
    return [TensorType("i32", product_shape("MATMUL_INTEGER", a.shape, b.shape))]


def _reference_matmul(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    a, b = (x.astype(np.int32) for x in arrays[:2] if x is not None)
    a_zero, b_zero = optional(arrays, 2), optional(arrays, 3)
    if a_zero is not None:
        a = a - (a_zero.reshape(-1, 1) if a_zero.size > 1 else a_zero.astype(np.int32))
    if b_zero is not None:
        b = b - b_zero.astype(np.int32)
    return [matmul(a.astype(np.int16), b.astype(np.int16))]


def _decompose_matmul(builder: Builder, inputs: Sequence[str],
                      attrs: dict[str, Any]) -> Sequence[str]:
    """(A - a)(B - b) = A B - a sums of columns of (B - b) - sums of rows of A * b, modulo 2**32."""
    shapes = [builder.type(value).shape for value in inputs[:2]]
    a, b = (builder.op("RESHAPE", value, shape=(1, *shape) if index == 0 else (*shape, 1))
            if len(shape) == 1 else value
            for index, (value, shape) in enumerate(zip(inputs[:2], shapes, strict=True)))
    out = builder.op("SCALED_MATMUL", a, b)
    a_zero, b_zero = optional(inputs, 2) or "", optional(inputs, 3) or ""
    if a_zero:
        offset = builder.op("CAST", a_zero, to="i32")
        if builder.type(offset).rank == 1:
            offset = builder.op("UNSQUEEZE", offset, axes=(1,))
        right = builder.op("CAST", b, to="i32")
        if b_zero:
            right = builder.op("SUB", right, builder.op("CAST", b_zero, to="i32"))
        sums = builder.op("REDUCE_SUM", right, axes=(-2,), keepdims=True)
        out = builder.op("SUB", out, builder.op("MUL", offset, sums))
    if b_zero:
        sums = builder.op("REDUCE_SUM", builder.op("CAST", a, to="i32"), axes=(-1,), keepdims=True)
        out = builder.op("SUB", out, builder.op("MUL", sums, builder.op("CAST", b_zero, to="i32")))
    if min(len(shape) for shape in shapes) == 1:
        out = builder.op("RESHAPE", out, shape=product_shape("MATMUL_INTEGER", *shapes))
    return [out]


def _infer_dynamic(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    return [TensorType("u8", x.shape), TensorType("f32", ()), TensorType("u8", ())]


def _reference_dynamic(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x = arrays[0]
    assert x is not None
    low = np.minimum(np.min(x, initial=0), 0)
    high = np.maximum(np.max(x, initial=0), 0)
    scale = np.asarray((high - low) / x.dtype.type(255))
    zero = np.clip(np.rint(-low / scale), 0, 255) if scale else np.zeros(())
    out = np.clip(np.rint(x / (scale if scale else 1)) + zero, 0, 255)
    return [out, scale, np.asarray(zero)]


def _decompose_dynamic(builder: Builder, inputs: Sequence[str],
                       attrs: dict[str, Any]) -> Sequence[str]:
    x = inputs[0]

    def number(value: float) -> str:
        return builder.constant(np.asarray(value, numpy_dtype("f32")))

    low = builder.op("MIN", builder.op("REDUCE_MIN", x, keepdims=False), number(0))
    high = builder.op("MAX", builder.op("REDUCE_MAX", x, keepdims=False), number(0))
    scale = builder.op("DIV", builder.op("SUB", high, low), number(255))
    divisor = builder.op("WHERE", builder.op("EQUAL", scale, number(0)), number(1), scale)
    zero = builder.op("ROUND", builder.op("DIV", builder.op("NEG", low), divisor))
    zero = builder.op("CAST", builder.op("CLIP", zero, min=0, max=255), to="u8")
    return [builder.op("QUANTIZE", x, divisor, zero), scale, zero]


OPDEFS = (
    OpDef("QUANTIZE", ("x", "scale", "zero_point?"), 1,
          (_AXIS, _BLOCK, AttrSpec("output_dtype", "dtype", None,
                                   doc="u8, i8 or an 8-bit float; default u8")),
          _infer_quantize, _reference_quantize, properties=frozenset({"rematerializable"}),
          family="composite", dtypes=FLOATS, other={"zero_point": _CODES},
          decompose=_decompose_quantize,
          doc="round(x / scale) + zero_point, saturated; halves to even."),
    OpDef("DEQUANTIZE", ("x", "scale", "zero_point?"), 1, (_AXIS, _BLOCK), _infer_dequantize,
          _reference_dequantize, properties=frozenset({"rematerializable"}), family="composite",
          dtypes=(*_BYTES, "i32", *F8), other={"scale": FLOATS}, decompose=_decompose_dequantize,
          doc="(x - zero_point) * scale, in scale's element type."),
    OpDef("DYNAMIC_QUANTIZE", ("x",), 3, (), _infer_dynamic, _reference_dynamic,
          properties=frozenset({"rematerializable"}), family="row", dtypes=("f32",),
          decompose=_decompose_dynamic,
          doc="x as u8 with the scale and zero point of its own range (outputs y, scale, zero)."),
    OpDef("MATMUL_INTEGER", ("A", "B", "a_zero_point?", "b_zero_point?"), 1, (), _infer_matmul,
          _reference_matmul, properties=frozenset({"rematerializable"}), family="gemm",
          other={"A": _BYTES, "B": _BYTES, "a_zero_point": _BYTES, "b_zero_point": _BYTES},
          decompose=_decompose_matmul, doc="Product of byte matrices less zero points, in i32."),
)
