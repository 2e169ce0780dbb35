"""Operators along one ordered axis: running sums, triangles, ranges, reversed sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import Any

import numpy as np

from ...contract import DTYPES, REQUIRED, AttrSpec, numpy_dtype
from ...errors import GraphError, ShapeMismatch
from ..ir import expr as ex
from ..ir.dim import Dim, Extent
from ..ir.nodes import TensorType
from .opdef import ALL, INDEX, NUMERIC, Array, Arrays, Builder, OpDef, Types
from .shapes import axis_of, tensor

Infer = Callable[[Types, dict[str, Any]], list[TensorType]]


def _only(arrays: Arrays) -> Array:
    x = arrays[0]
    assert x is not None
    return x


def _same(op: str) -> Infer:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        axis_of(op, attrs["axis"], x.rank)
        return [x]

    return infer


def _reference_scan(scan: Callable[..., Any],
                    start: int) -> Callable[[Arrays, dict[str, Any]], list[Array]]:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x = _only(arrays)
        axis = attrs["axis"] % x.ndim
        x = np.flip(x, axis) if attrs["reverse"] else x
        if attrs["exclusive"]:
            first = np.full((*x.shape[:axis], 1, *x.shape[axis + 1:]), start, x.dtype)
            keep = tuple(slice(None, -1) if i == axis else slice(None) for i in range(x.ndim))
            x = np.concatenate([first, x[keep]], axis=axis) if x.shape[axis] else x
        out = np.asarray(scan(x, axis=axis, dtype=x.dtype))
        return [np.flip(out, axis) if attrs["reverse"] else out]

    return reference


def _decompose_scan(op: str, start: int) -> Any:
    """Return the decomposition of a scan: log2(n) sums of the tensor with a shifted copy."""

    def decompose(builder: Builder, inputs: Sequence[str],
                  attrs: dict[str, Any]) -> Sequence[str] | None:
        kind = builder.type(inputs[0])
        axis = attrs["axis"] % kind.rank
        size = kind.shape[axis]
        if not isinstance(size, int) or not size:
            return None

        def shifted(value: str, by: int) -> str:
            cut = (by, size) if attrs["reverse"] else (0, size - by)
            kept = builder.op("SLICE", value, axes=(axis,), starts=cut[:1], ends=cut[1:])
            pads = (0, by) if attrs["reverse"] else (by, 0)
            return builder.op("PAD", kept, axes=(axis,), pads=pads, value=start)

        value = shifted(inputs[0], 1) if attrs["exclusive"] else inputs[0]
        step = 1
        while step < size:
            value = builder.op(op, value, shifted(value, step))
            step *= 2
        return [value]

    return decompose


def _infer_trilu(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if x.rank < 2:
        raise ShapeMismatch("TRILU takes matrices", found=x)
    if abs(int(attrs["k"])) >= 2**31:
        raise GraphError("TRILU k is out of range", found=attrs["k"])
    return [x]


def _reference_trilu(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    return [(np.triu if attrs["upper"] else np.tril)(_only(arrays), attrs["k"])]


def _decompose_trilu(builder: Builder, inputs: Sequence[str],
                     attrs: dict[str, Any]) -> Sequence[str]:
    kind = builder.type(inputs[0])
    across = ex.coord(kind.rank - 1) - ex.coord(kind.rank - 2)
    inside = across >= attrs["k"] if attrs["upper"] else across <= attrs["k"]
    x = ex.input(0, DTYPES[kind.dtype].compute)
    zero = ex.const(0, x.dtype)
    bundle = ex.ExprBundle((ex.where(inside, x, zero),))
    return [builder.op("FUSED_ELEMENTWISE", inputs[0], expr=bundle, dtypes=kind.dtype)]


def _infer_range(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    start, limit, delta = (attrs[name] for name in ("start", "limit", "delta"))
    if delta == 0:
        raise GraphError("RANGE delta must not be 0")
    if isinstance(start, Dim) or isinstance(limit, Dim):
        return [TensorType(attrs["dtype"], (_symbolic_count(start, limit, delta),))]
    steps = (limit - start) / delta
    if not isfinite(steps) or steps > 2**40:
        raise GraphError("RANGE has no usable number of steps", found=steps)
    count = max(ceil(steps), 0)
    return [TensorType(attrs["dtype"], (count,))]


def _symbolic_count(start: Any, limit: Any, delta: Any) -> Extent:
    """Return the number of steps between symbolic extents; start is taken as not beyond limit."""
    whole = [isinstance(v, Dim) or float(v).is_integer() for v in (start, limit, delta)]
    if not all(whole) or isinstance(delta, Dim) or delta < 0:
        raise GraphError("RANGE between symbolic extents takes whole steps upwards",
                         found=f"{start}, {limit}, {delta}")
    first, last = (v if isinstance(v, Dim) else int(v) for v in (start, limit))
    count: Extent = (last - first + (int(delta) - 1)) // int(delta)
    return count


def _reference_range(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    count = _infer_range((), attrs)[0].shape[0]
    assert isinstance(count, int)
    values = attrs["start"] + np.arange(count) * attrs["delta"]
    return [values.astype(numpy_dtype(attrs["dtype"]))]


def _decompose_range(builder: Builder, inputs: Sequence[str],
                     attrs: dict[str, Any]) -> Sequence[str]:
    count = _infer_range((), attrs)[0].shape[0]
    if not isinstance(attrs["start"], Dim) and not isinstance(attrs["limit"], Dim):
        return [builder.op("IDENTITY", builder.constant(_reference_range((), attrs)[0]))]
    start, delta = attrs["start"], int(attrs["delta"])
    if isinstance(start, Dim):  # a formula holds no extents: steps from 0 on, the first cut off
        whole = builder.op("RANGE", start=0, limit=start + count * delta, dtype=attrs["dtype"])
        return [builder.op("SLICE", whole, starts=(start,), ends=(start + count * delta,),
                           axes=(0,), steps=(delta,))]
    zero = builder.constant(np.zeros(1, numpy_dtype(attrs["dtype"])))
    place = ex.coord(0) * delta + int(start)
    return [builder.op("FUSED_ELEMENTWISE", builder.op("EXPAND", zero, shape=(count,)),
                       expr=ex.ExprBundle((place,)), dtypes=attrs["dtype"])]


def _infer_eye_like(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x = tensor(types, 0)
    if x.rank != 2:
        raise ShapeMismatch("EYE_LIKE takes a matrix", found=x)
    return [TensorType(attrs["dtype"] or x.dtype, x.shape)]


def _reference_eye_like(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    rows, columns = _only(arrays).shape
    return [np.eye(rows, columns, k=attrs["k"], dtype=np.float32)]


def _decompose_eye_like(builder: Builder, inputs: Sequence[str],
                        attrs: dict[str, Any]) -> Sequence[str]:
    kind = builder.type(inputs[0])
    inside = (ex.coord(1) - ex.coord(0)).eq(attrs["k"])
    bundle = ex.ExprBundle((ex.where(inside, ex.const(1.0), ex.const(0.0)),))
    return [builder.op("FUSED_ELEMENTWISE", inputs[0], expr=bundle,
                       dtypes=attrs["dtype"] or kind.dtype)]


def _infer_reverse(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, lengths = tensor(types, 0), tensor(types, 1)
    if {attrs["batch_axis"], attrs["time_axis"]} != {0, 1} or x.rank < 2:
        raise GraphError("REVERSE_SEQUENCE batch_axis and time_axis are 0 and 1",
                         found=(attrs["batch_axis"], attrs["time_axis"]))
    if lengths.shape != (x.shape[attrs["batch_axis"]],):
        raise ShapeMismatch("REVERSE_SEQUENCE takes one length per sample", found=lengths,
                            wanted=f"[{x.shape[attrs['batch_axis']]}]")
    return [x]


def _reference_reverse(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, lengths = _only(arrays), arrays[1]
    assert lengths is not None
    time = attrs["time_axis"]
    steps = np.arange(x.shape[time]).reshape((-1, 1) if time == 0 else (1, -1))
    length = lengths.reshape((1, -1) if time == 0 else (-1, 1))
    places = np.where(steps < length, length - 1 - steps, steps)
    return [np.take_along_axis(x, places.reshape(*places.shape, *(1,) * (x.ndim - 2)), time)]


def _decompose_reverse(builder: Builder, inputs: Sequence[str],
                       attrs: dict[str, Any]) -> Sequence[str]:
    """Gather elements at computed times; the times come from a formula over coordinates."""
    kind, time = builder.type(inputs[0]), attrs["time_axis"]
    lengths = builder.op("CAST", inputs[1], to="i64")
    around = (1, -1) if time == 0 else (-1, 1)
    lengths = builder.op("RESHAPE", lengths, shape=(*around, *(1,) * (kind.rank - 2)))
    lengths = builder.op("EXPAND", lengths, shape=kind.shape)
    length, step = ex.input(0, "i64"), ex.coord(time)
    bundle = ex.ExprBundle((ex.where(step < length, length - 1 - step, step),))
    places = builder.op("FUSED_ELEMENTWISE", lengths, expr=bundle, dtypes="i64")
    return [builder.op("GATHER_ELEMENTS", inputs[0], places, axis=time)]


_SCAN = (AttrSpec("axis", "int", REQUIRED, doc="axis to run along"),
         AttrSpec("exclusive", "bool", False, doc="leave the element itself out"),
         AttrSpec("reverse", "bool", False, doc="run from the end"))
_RUNNING = frozenset({"order_sensitive"})
_SHAPED = frozenset({"rematerializable"})

OPDEFS = (
    OpDef("CUMSUM", ("x",), 1, _SCAN, _same("CUMSUM"), _reference_scan(np.cumsum, 0),
          properties=_RUNNING | {"linear"}, family="scan", dtypes=NUMERIC,
          decompose=_decompose_scan("ADD", 0),
          doc="Running sum along an axis."),
    OpDef("CUMPROD", ("x",), 1, _SCAN, _same("CUMPROD"), _reference_scan(np.cumprod, 1),
          properties=_RUNNING, family="scan", dtypes=NUMERIC,
          decompose=_decompose_scan("MUL", 1),
          doc="Running product along an axis."),
    OpDef("TRILU", ("x",), 1,
          (AttrSpec("upper", "bool", True, doc="keep the upper triangle"),
           AttrSpec("k", "int", 0, doc="diagonal that bounds it")),
          _infer_trilu, _reference_trilu, properties=_SHAPED | {"linear"}, family="composite",
          decompose=_decompose_trilu, doc="A triangle of each matrix; 0 elsewhere."),
    OpDef("RANGE", (), 1,
          (AttrSpec("start", "float", 0.0, doc="first value; may be an extent"),
           AttrSpec("limit", "float", REQUIRED, doc="end, exclusive; may be an extent"),
           AttrSpec("delta", "float", 1.0, doc="step"),
           AttrSpec("dtype", "dtype", "i64", doc="element type")),
          _infer_range, _reference_range, properties=_SHAPED, decompose=_decompose_range,
          doc="start, start + delta, ... before limit."),
    OpDef("EYE_LIKE", ("x",), 1,
          (AttrSpec("k", "int", 0, doc="diagonal"),
           AttrSpec("dtype", "dtype", None, doc="element type; that of x when absent")),
          _infer_eye_like, _reference_eye_like, properties=_SHAPED, family="composite",
          dtypes=ALL, decompose=_decompose_eye_like,
          doc="A matrix of x's shape with ones on a diagonal."),
    OpDef("REVERSE_SEQUENCE", ("x", "sequence_lens"), 1,
          (AttrSpec("batch_axis", "int", 1, doc="axis of samples"),
           AttrSpec("time_axis", "int", 0, doc="axis of time")),
          _infer_reverse, _reference_reverse, properties=_SHAPED | {"linear"}, family="gather",
          other={"sequence_lens": INDEX}, decompose=_decompose_reverse,
          doc="Reverse the leading part of each sequence."),
)
