"""Shapes, views, joins, gathers and scatters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....compiler.ir.dim import Dim, Extent
from ...node_writer import Unmapped
from ..call import Call
from ..values import Known, known, type_name
from .elementwise import dtype_of
from .table import RuleTable

RULES = RuleTable()

# A slice bound beyond any tensor's axis.
_BEYOND = 10**8

for _name, _op, *_attrs in (
        ("Transpose", "TRANSPOSE", "perm"), ("Concat", "CONCAT", "axis"),
        ("Flatten", "FLATTEN", "axis"), ("GatherElements", "GATHER_ELEMENTS", "axis"),
        ("GatherND", "GATHER_ND", "batch_dims"), ("ScatterND", "SCATTER_ND", "reduction"),
        ("ScatterElements", "SCATTER_ELEMENTS", "axis", "reduction"),
        ("Scatter", "SCATTER_ELEMENTS", "axis"),
        ("DepthToSpace", "DEPTH_TO_SPACE", "blocksize", "mode"),
        ("SpaceToDepth", "SPACE_TO_DEPTH", "blocksize", "mode"),
        ("ReverseSequence", "REVERSE_SEQUENCE", "batch_axis", "time_axis")):
    RULES.direct(_name, _op, *_attrs)


@RULES.rule("Gather")
def _gather(call: Call) -> str:
    """A known index of rank 0 or 1 that takes one slice is a view."""
    call.only("axis")
    axis = call.attrs.get("axis", 0)
    index = call.inputs[1]
    if isinstance(index, Known) and index.array.size == 1 and index.array.ndim < 2:
        size = call.extent(0, axis)
        found = index.array.reshape(())[()]
        place: Extent = found if isinstance(found, Dim) else int(found)
        if isinstance(place, int) and place < 0:
            place = size + place
        inside = isinstance(place, Dim) or isinstance(size, Dim) or 0 <= place < size
        if inside:
            piece = call.make("SLICE", call.value(0), starts=(place,), ends=(place + 1,),
                              axes=(axis,))
            return piece if index.array.ndim else call.make("SQUEEZE", piece, axes=(axis,))
    return call.make("GATHER", call.value(0), call.value(1), axis=axis)


@RULES.rule("Constant")
def _constant(call: Call) -> Known:
    for name, value in call.attrs.items():
        if name == "value":
            return known(value, name=call.name)
        if name in ("value_float", "value_floats"):
            return known(np.asarray(value, np.float32), name=call.name)
        if name in ("value_int", "value_ints"):
            return known(np.asarray(value, np.int64), name=call.name)
        raise Unmapped(f"attribute {name}")
    raise Unmapped("a constant without a value")


@RULES.rule("ConstantOfShape")
def _constant_of_shape(call: Call) -> Any:
    shape = call.elements(0)
    value = np.asarray(call.attrs.get("value", np.zeros(1, np.float32))).reshape(())
    return _filled(call, value, shape or [])


def _filled(call: Call, value: Any, shape: list[Any]) -> Any:
    """Return a tensor of one number: known without storing it where the shape is."""
    if all(isinstance(e, int) for e in shape):
        return known(np.broadcast_to(value, tuple(shape)))
    type_name(value.dtype)
    return call.make("EXPAND", call.writer.constant(value), shape=tuple(shape))


@RULES.rule("Expand")
def _expand(call: Call) -> str:
    return call.make("EXPAND", call.value(0), shape=call.elements(1))


@RULES.rule("Reshape")
def _reshape(call: Call) -> str:
    shape = call.attr_or_list("shape", 1)
    return call.make("RESHAPE", call.value(0), shape=shape, **call.take("allowzero"))


@RULES.rule("Squeeze")
def _squeeze(call: Call) -> str:
    return call.make("SQUEEZE", call.value(0), axes=call.attr_or_list("axes", 1))


@RULES.rule("Unsqueeze")
def _unsqueeze(call: Call) -> str:
    return call.make("UNSQUEEZE", call.value(0), axes=call.attr_or_list("axes", 1))


@RULES.rule("Slice")
def _slice(call: Call) -> str:
    starts, ends = (_bounds(call.attr_or_list(n, i)) for n, i in (("starts", 1), ("ends", 2)))
    return call.make("SLICE", call.value(0), starts=starts, ends=ends,
                     axes=call.attr_or_list("axes", 3), steps=call.elements(4))


def _bounds(given: list[Any] | None) -> list[Any]:
    """Return slice bounds; TensorFlow writes 10**9 where ONNX has INT_MAX for the end."""
    return [e if isinstance(e, Dim) or abs(e) < _BEYOND else int(np.sign(e)) * 2**62
            for e in given or ()]


@RULES.rule("Split")
def _split(call: Call) -> Any:
    split = call.attr_or_list("split", 1)
    count = None if split is not None else call.attrs.get("num_outputs", len(call.wanted))
    return call.writer.multi("SPLIT", len(call.wanted), call.value(0), split=split,
                             num_outputs=count, **call.take("axis"))


@RULES.rule("Pad")
def _pad(call: Call) -> str:
    value = call.attrs["value"] if "value" in call.attrs else call.scalar(2, 0)
    return call.make("PAD", call.value(0), pads=call.attr_or_list("pads", 1), value=float(value),
                     axes=call.elements(3), **call.take("mode"))


@RULES.rule("Tile")
def _tile(call: Call) -> str:
    repeats = call.elements(1)
    if repeats is not None and any(isinstance(r, Dim) for r in repeats):
        return _tile_by_expanding(call, repeats)
    return call.make("TILE", call.value(0), repeats=repeats)


def _tile_by_expanding(call: Call, repeats: list[Any]) -> str:
    """Repeat axes a symbolic number of times: [1, e] is expanded to [r, e] and merged."""
    shape = call.type(0).shape
    single = [extent for e in shape for extent in (1, e)]
    wide = [extent for r, e in zip(repeats, shape, strict=True) for extent in (r, e)]
    value = call.make("RESHAPE", call.value(0), shape=single, allowzero=True)
    value = call.make("EXPAND", value, shape=wide)
    merged = [r * e for r, e in zip(repeats, shape, strict=True)]
    return call.make("RESHAPE", value, shape=merged, allowzero=True)


@RULES.rule("OneHot")
def _one_hot(call: Call) -> str:
    depth = call.scalar(1)
    indices = call.value(0)
    return call.make("ONE_HOT", indices, call.value(2),
                     depth=depth if isinstance(depth, Dim) else int(depth), **call.take("axis"))


@RULES.rule("Trilu")
def _trilu(call: Call) -> str:
    return call.make("TRILU", call.value(0), k=call.scalar(1, 0), **call.take("upper"))


@RULES.rule("Range")
def _range(call: Call) -> str:
    given = call.inputs[0]
    dtype = type_name(given.dtype) if isinstance(given, Known) else call.type(0).dtype
    return call.make("RANGE", start=call.scalar(0), limit=call.scalar(1), delta=call.scalar(2),
                     dtype=dtype)


@RULES.rule("EyeLike")
def _eye_like(call: Call) -> str:
    dtype = dtype_of(call.attrs["dtype"]) if "dtype" in call.attrs else None
    return call.make("EYE_LIKE", call.value(0), dtype=dtype, **call.take("k"))


@RULES.rule("CumSum", "CumProd")
def _cumulative(call: Call) -> str:
    return call.make(call.op.upper(), call.value(0), axis=int(call.scalar(1)),
                     **call.take("exclusive", "reverse"))


@RULES.rule("TopK")
def _topk(call: Call) -> Any:
    k = call.attrs["k"] if "k" in call.attrs else call.scalar(1)
    return call.writer.multi("TOPK", 2, call.value(0), k=k,
                             **call.take("axis", "largest", "sorted"))
