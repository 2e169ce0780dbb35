"""Row operators as problems: operands [*rows, n] by strides, whatever axes are reduced.

Adjacent row axes are merged where every operand allows it, so that the usual case is [rows, n].
Operands come in the order of the RowOp: its inputs, then its extras; an output is [*rows, n], or
[*rows] for one value per row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...contract import DTYPES
from ...errors import StrideMismatch, Unsupported
from ...problem import Problem, TensorSpec
from ..ir import properties
from ..ir.expr import cast, input, where
from ..ir.row import RowOp
from ..ir.row_ops import build_row_op
from ..opdefs.fused_row import base_attrs, split_inputs
from ..opdefs.reduce import reduced_axes
from ..opdefs.shapes import broadcast
from ..opdefs.user_rows import USER_ROWS
from .strides import collapse, expand, reshape_strides

Ints = tuple[int, ...]
Specs = Sequence[TensorSpec | None]


@dataclass(frozen=True, slots=True)
class _Row:
    """How one graph operator is a row operator.

    Attributes:
        build: (compute dtype, attributes, which optional inputs are there) -> RowOp.
        axes: which axes make up a row.
    """

    build: Callable[[str, dict[str, Any], Specs], RowOp]
    axes: Callable[[str, dict[str, Any], int], Ints]


def lower_row(op: str, attrs: dict[str, Any], inputs: Specs,
              outputs: Sequence[TensorSpec]) -> Problem:
    """Return the ROW problem of a softmax, normalisation, reduction or arg operator.

    Raises:
        StrideMismatch: the axes of a row do not count through memory evenly.
        Unsupported: the operator is no row operator that kernels know.
    """
    given = [spec for spec in inputs if spec is not None]
    if op == "FUSED_ROW":
        op, row, shape = _fused(attrs, given, outputs[0].dtype)
        attrs = base_attrs(attrs)
    else:
        row = _rule(op).build(DTYPES[given[0].dtype].compute, attrs, inputs)
        shape = given[0].shape
        if op == "CROSS_ENTROPY":  # a label for the whole row
            label = given[1]
            given[1] = replace(label, shape=(*label.shape, 1), strides=(*label.strides, 0))
    if not properties.licensed(op, "mergeable"):
        row = _whole(op, row)
    axes = _rule(op).axes(op, attrs, len(shape))
    if op in _PER_ROW:
        attrs = {"keepdims": False}
    operands = [_as_rows(expand(s, shape), axes) for s in given]
    results = [_as_rows(s, axes) if kind == "row" else _per_row(s, shape, axes, attrs)
               for s, kind in zip(outputs, row.outputs, strict=True)]
    return _collapsed(row, operands, results)


def _rule(op: str) -> _Row:
    if op in USER_ROWS:
        build = USER_ROWS[op]
        return _Row(lambda dtype, attrs, inputs: build(dtype), _one_axis)
    if op not in _TABLE:
        raise Unsupported(f"{op} has no kernel")
    return _TABLE[op]


def _whole(op: str, row: RowOp) -> RowOp:
    """Return a row operator whose kernels see whole rows: nothing says that parts of it merge.

    Raises:
        Unsupported: it is declared by states alone.
    """
    if not row.stages:
        raise Unsupported(f"{op} has no licence to merge parts of a row, and no other way is "
                          "declared")
    return replace(row, streamable=False)


def _fused(attrs: dict[str, Any], inputs: Sequence[TensorSpec], dtype: str,
           ) -> tuple[str, RowOp, Ints]:
    """Return the base operator, its RowOp with formulas around it, and the shape of its x."""
    xs, extras, more = split_inputs(attrs, inputs)
    prologue, epilogue = attrs["prologue"], attrs["epilogue"]
    compute = prologue.outputs[0].dtype if prologue else DTYPES[xs[0].dtype].compute
    row = _TABLE[attrs["base"]].build(compute, base_attrs(attrs), [xs[0], *extras])
    if prologue:
        row = row.with_prologue(prologue.outputs)
    if epilogue:
        result = epilogue.outputs[0]
        stored = DTYPES[dtype].compute
        row = row.with_epilogue([result if result.dtype == stored else cast(result, stored)],
                                len(more))
    shape = broadcast("FUSED_ROW", [spec.shape for spec in xs])
    return attrs["base"], row, tuple(shape)  # type: ignore[arg-type] # concrete


def _as_rows(spec: TensorSpec, axes: Ints) -> TensorSpec:
    """Return spec with the axes of a row merged into one last axis."""
    kept = [a for a in range(len(spec.shape)) if a not in axes]
    n = 1
    for axis in axes:
        n *= spec.shape[axis]
    stride = reshape_strides(tuple(spec.shape[a] for a in axes),
                             tuple(spec.strides[a] for a in axes), (n,))
    if stride is None:
        raise StrideMismatch("the reduced axes do not count through memory evenly",
                             found=f"shape {spec.shape}, strides {spec.strides}, axes {axes}")
    return replace(spec, shape=(*(spec.shape[a] for a in kept), n),
                   strides=(*(spec.strides[a] for a in kept), *stride))


def _per_row(spec: TensorSpec, shape: Ints, axes: Ints, attrs: dict[str, Any]) -> TensorSpec:
    """Return an output of one value per row without the reduced axes, n = 1 in their place."""
    if attrs.get("keepdims", True):
        kept = [a for a in range(len(shape)) if a not in axes]
        spec = replace(spec, shape=tuple(spec.shape[a] for a in kept),
                       strides=tuple(spec.strides[a] for a in kept))
    return replace(spec, shape=(*spec.shape, 1), strides=(*spec.strides, 0))


def _collapsed(row: RowOp, operands: list[TensorSpec], results: list[TensorSpec]) -> Problem:
    everything = [*operands, *results]
    rows, strides = collapse(operands[0].shape[:-1], [s.strides[:-1] for s in everything])
    specs = []
    for index, (spec, outer) in enumerate(zip(everything, strides, strict=True)):
        result = index - len(operands)
        if result >= 0 and row.outputs[result] == "scalar":
            specs.append(replace(spec, shape=rows, strides=outer))
        else:
            specs.append(replace(spec, shape=(*rows, spec.shape[-1]),
                                 strides=(*outer, spec.strides[-1])))
    return Problem("ROW", tuple(specs[:len(operands)]), tuple(specs[len(operands):]),
                   (("row", row),))


def _one_axis(op: str, attrs: dict[str, Any], rank: int) -> Ints:
    return (attrs["axis"] % rank,)


def _trailing(op: str, attrs: dict[str, Any], rank: int) -> Ints:
    return tuple(range(attrs["axis"] % rank, rank))


def _reduced(op: str, attrs: dict[str, Any], rank: int) -> Ints:
    return reduced_axes(op, attrs, rank)


def _named(name: str) -> Callable[[str, dict[str, Any], Specs], RowOp]:
    return lambda dtype, attrs, inputs: build_row_op(name, dtype)


def _layer_norm(dtype: str, attrs: dict[str, Any], inputs: Specs) -> RowOp:
    has = [len(inputs) > i and inputs[i] is not None for i in (1, 2)]
    narrow = inputs[0] is not None and inputs[0].dtype in ("f16", "bf16")
    return build_row_op("layer_norm", dtype, epsilon=attrs["epsilon"], scale=has[0], bias=has[1],
                        pivot=not narrow)


def _rms_norm(dtype: str, attrs: dict[str, Any], inputs: Specs) -> RowOp:
    return build_row_op("rms_norm", dtype, epsilon=attrs["epsilon"])


def _arg(name: str) -> Callable[[str, dict[str, Any], Specs], RowOp]:
    return lambda dtype, attrs, inputs: build_row_op(
        name, dtype, last=bool(attrs["select_last_index"]))


def _masked_softmax(dtype: str, attrs: dict[str, Any], inputs: Specs) -> RowOp:
    """Softmax over where(mask, x, -inf); 0 where masked, so that a row of none is 0, not NaN."""
    mask = input(1, "bool")
    row = build_row_op("softmax", dtype).with_prologue([where(mask, input(0, dtype), -math.inf)])
    allowed = input(len(row.state) + 1, "bool")
    finish = tuple(where(allowed, result, 0.0) for result in row.finish)
    return replace(row, name="masked_softmax", finish=finish)


def _lp_norm(dtype: str, attrs: dict[str, Any], inputs: Specs) -> RowOp:
    """x over its norm; a row of zeros stays one."""
    row = build_row_op("l1_normalize" if attrs["p"] == 1 else "l2_normalize", dtype)
    empty = input(0, dtype).eq(0.0)  # the only state is the sum
    return replace(row, name=f"lp_norm_{row.name}",
                   finish=tuple(where(empty, 0.0, result) for result in row.finish))


def _add_norm(name: str) -> Callable[[str, dict[str, Any], Specs], RowOp]:
    return lambda dtype, attrs, inputs: build_row_op(
        name, dtype, epsilon=attrs["epsilon"], rounding=attrs["rounding"] or "")


def _last(op: str, attrs: dict[str, Any], rank: int) -> Ints:
    return (rank - 1,)


# Their outputs of one value per row have no axis for it.
_PER_ROW = frozenset({"CROSS_ENTROPY", "QUANTIZE_ROWS"})
_REDUCTIONS = {"REDUCE_SUM": "sum", "REDUCE_MEAN": "mean", "REDUCE_MAX": "max",
               "REDUCE_MIN": "min", "REDUCE_PROD": "prod", "REDUCE_L1": "l1",
               "REDUCE_L2": "l2", "REDUCE_SUMSQUARE": "sum_square",
               "REDUCE_LOGSUM": "log_sum", "REDUCE_LOGSUMEXP": "logsumexp"}

_TABLE: dict[str, _Row] = {
    "SOFTMAX": _Row(_named("softmax"), _one_axis),
    "MASKED_SOFTMAX": _Row(_masked_softmax, _one_axis),
    "LOG_SOFTMAX": _Row(_named("log_softmax"), _one_axis),
    "LAYER_NORM": _Row(_layer_norm, _trailing),
    "ADD_LAYER_NORM": _Row(_add_norm("add_layer_norm"), _trailing),
    "ADD_RMS_NORM": _Row(_add_norm("add_rms_norm"), _trailing),
    "RMS_NORM": _Row(_rms_norm, _trailing),
    "LP_NORM": _Row(_lp_norm, _one_axis),
    "QUANTIZE_ROWS": _Row(_named("quantize_rows"), _last),
    "CROSS_ENTROPY": _Row(_named("cross_entropy"), _last),
    "ARGMAX": _Row(_arg("argmax"), _one_axis),
    "ARGMIN": _Row(_arg("argmin"), _one_axis),
    **{op: _Row(_named(name), _reduced) for op, name in _REDUCTIONS.items()},
}
