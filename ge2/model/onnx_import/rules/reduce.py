"""Reductions, softmax and normalisations."""

from __future__ import annotations

import math
from typing import Any

from ....compiler.ir.dim import Dim, Extent
from ...node_writer import Unmapped
from ..call import Call
from .table import RuleTable

RULES = RuleTable()

for _name, _op, *_attrs in (
        ("ArgMax", "ARGMAX", "axis", "keepdims", "select_last_index"),
        ("ArgMin", "ARGMIN", "axis", "keepdims", "select_last_index"),
        ("LpNormalization", "LP_NORM", "axis", "p"),
        ("MeanVarianceNormalization", "MEAN_VARIANCE_NORM", "axes"),
        ("LRN", "LRN", "size", "alpha", "beta", "bias"),
        ("InstanceNormalization", "INSTANCE_NORM", "epsilon")):
    RULES.direct(_name, _op, *_attrs)


@RULES.rule(*(f"Reduce{n}" for n in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min",
                                     "Prod", "Sum", "SumSquare")))
def _reduce(call: Call) -> str:
    call.only("keepdims", "noop_with_empty_axes", "axes")
    axes = call.attr_or_list("axes", 1)
    return call.make(call.op.upper().replace("REDUCE", "REDUCE_"), call.value(0), axes=axes,
                     **call.take("keepdims", "noop_with_empty_axes"))


@RULES.rule("Softmax", "LogSoftmax", "Hardmax")
def _softmax(call: Call) -> str:
    """Up to opset 12 all axes from `axis` on (1 when absent) are one."""
    call.only("axis")
    op = {"Softmax": "SOFTMAX", "LogSoftmax": "LOG_SOFTMAX", "Hardmax": "HARDMAX"}[call.op]
    axis, shape = call.attrs.get("axis", -1 if call.opset >= 13 else 1), call.type(0).shape
    x = call.value(0)
    if call.opset >= 13 or axis % max(len(shape), 1) == len(shape) - 1:
        return call.make(op, x, axis=axis)
    axis %= len(shape)
    rows: tuple[Extent, ...] = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    flat = call.make(op, call.make("RESHAPE", x, shape=rows, allowzero=True), axis=1)
    return call.make("RESHAPE", flat, shape=shape, allowzero=True)


@RULES.rule("LayerNormalization", "RMSNormalization")
def _layer_norm(call: Call) -> Any:
    call.only("axis", "epsilon", "stash_type")
    op = "LAYER_NORM" if call.op.startswith("Layer") else "RMS_NORM"
    attrs = {"axis": -1, "epsilon": 1e-5, **call.attrs}
    result = call.make(op, *call.values(), axis=attrs["axis"], epsilon=attrs["epsilon"])
    if not any(call.wanted[1:]):
        return [result, *[""] * (len(call.wanted) - 1)]
    return [result, *_statistics(call, attrs["axis"], attrs["epsilon"])]


def _statistics(call: Call, axis: int, epsilon: float) -> tuple[str, str]:
    """Return the mean and the inverse standard deviation of a layer norm's rows, in f32."""
    x = call.value(0)
    kind = call.type(0)
    if kind.dtype != "f32":
        x = call.make("CAST", x, to="f32")
    axes = tuple(range(axis % kind.rank, kind.rank))
    mean = call.make("REDUCE_MEAN", x, axes=axes, keepdims=True)
    centred = call.make("SUB", x, mean)
    variance = call.make("REDUCE_MEAN", call.make("MUL", centred, centred), axes=axes,
                         keepdims=True)
    shifted = call.make("ADD", variance, call.writer.scalar(epsilon, variance))
    return mean, call.make("RSQRT", shifted)


@RULES.rule("BatchNormalization")
def _batch_norm(call: Call) -> Any:
    if call.attrs.get("training_mode") or call.attrs.get("spatial", 1) != 1:
        raise Unmapped("training_mode or spatial = 0")
    if any(call.wanted[1:]):
        raise Unmapped("training: running statistics as outputs")
    result = call.make("BATCH_NORM", *call.values(), **call.take("epsilon"))
    return [result, *[""] * (len(call.wanted) - 1)]


@RULES.rule("GroupNormalization")
def _group_norm(call: Call) -> str:
    """Up to opset 20 scale and bias are one per group."""
    call.only("epsilon", "num_groups", "stash_type")
    groups, channels = call.attrs["num_groups"], call.extent(0, 1)
    x, *affine = call.values()
    if call.opset < 21 and not isinstance(channels, Dim) and channels != groups:
        affine = [_per_channel(call, value, groups, channels // groups) for value in affine]
    return call.make("GROUP_NORM", x, *affine, **call.take("epsilon", "num_groups"))


def _per_channel(call: Call, value: str, groups: int, size: int) -> str:
    column = call.make("RESHAPE", value, shape=(groups, 1))
    wide = call.make("EXPAND", column, shape=(groups, size))
    return call.make("RESHAPE", wide, shape=(groups * size,))
