"""TOPK as compositions: by ranks for short rows, by repeated selection for a few of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import DTYPES, numpy_dtype
from ..ir import expr as ex
from ..ir.expr import Expr, ExprBundle
from .opdef import Builder
from .reduce import highest, lowest
from .shapes import product

# Every pair of elements is looked at: 2**27 pairs are half a gigabyte of marks.
MAX_PAIRS = 2**27
MAX_ROUNDS = 64


def decompose_topk(builder: Builder, inputs: Sequence[str],
                   attrs: dict[str, Any]) -> Sequence[str] | None:
    """Return (values, places); None where neither composition is affordable."""
    kind, k = builder.type(inputs[0]), attrs["k"]
    axis = attrs["axis"] % kind.rank
    n, total = kind.shape[axis], product(kind.shape)
    if not isinstance(k, int) or not k or not isinstance(n, int):
        return None
    perm = (*(i for i in range(kind.rank) if i != axis), axis)
    x = builder.op("TRANSPOSE", inputs[0], perm=perm)
    if isinstance(total, int) and total * n <= MAX_PAIRS and kind.rank <= 6:
        places = _by_ranks(builder, x, k, attrs["largest"])
    elif k <= MAX_ROUNDS:
        places = _by_rounds(builder, x, k, n, attrs["largest"])
    else:
        return None
    values = builder.op("GATHER_ELEMENTS", x, places, axis=kind.rank - 1)
    back = tuple(perm.index(i) for i in range(kind.rank))
    return [builder.op("TRANSPOSE", value, perm=back) for value in (values, places)]


def _is_nan(x: Expr) -> Expr:
    return ex.is_nan(x) if x.dtype in ("f32", "f64") else ex.const(False, "bool")


def _both(a: Expr, b: Expr) -> Expr:
    return ex.logical_and(a, b)


def _by_ranks(builder: Builder, x: str, k: int, largest: bool) -> str:
    """An element's place in the order is the number of elements before it."""
    kind = builder.type(x)
    compute = DTYPES[kind.dtype].compute
    other, own = ex.input(0, compute), ex.input(1, compute)
    nans = (_is_nan(other), _is_nan(own))
    first, second = nans if largest else nans[::-1]
    ahead = ex.logical_or(other > own if largest else other < own,
                          _both(first, ex.logical_not(second)))
    same = ex.logical_or(other.eq(own), _both(*nans))
    earlier = ex.coord(kind.rank) < ex.coord(kind.rank - 1)
    formula = ExprBundle((ex.cast(ex.logical_or(ahead, _both(same, earlier)), "i32"),))
    counts = builder.op("FUSED_ELEMENTWISE", builder.op("UNSQUEEZE", x, axes=(-2,)),
                        builder.op("UNSQUEEZE", x, axes=(-1,)), expr=formula, dtypes="i32")
    ranks = builder.op("REDUCE_SUM", counts, axes=(-1,), keepdims=False)
    wanted = builder.constant(np.arange(k, dtype=np.int32).reshape(k, 1))
    hits = builder.op("EQUAL", builder.op("UNSQUEEZE", ranks, axes=(-2,)), wanted)
    return builder.op("ARGMAX", builder.op("CAST", hits, to="i32"), axis=-1, keepdims=False)


def _by_rounds(builder: Builder, x: str, k: int, n: int, largest: bool) -> str:
    """Each round finds the best value that is left, and the first place that has it."""
    kind = builder.type(x)
    last = kind.rank - 1
    value, taken = ex.input(0, DTYPES[kind.dtype].compute), ex.input(1, "bool")
    best, at = ex.input(2, value.dtype), ex.coord(last)
    stored = numpy_dtype(value.dtype if DTYPES[kind.dtype].kind == "float" else kind.dtype)
    worst = ex.const(lowest(stored) if largest else highest(stored), value.dtype)
    free, nan = ex.logical_not(taken), _is_nan(value)
    # NaN counts as the largest value: MAX finds it, MIN must not see it before the rest is gone.
    hidden = taken if largest else ex.logical_or(taken, nan)
    left = ExprBundle((ex.where(hidden, worst, value),))
    hit = ex.logical_or(value.eq(best), _both(nan, _is_nan(best))) if largest else value.eq(best)
    otherwise = ex.where(_both(free, nan), at + n, ex.const(2 * n, "i64"))
    place = ExprBundle((ex.cast(ex.where(_both(free, hit), at, otherwise), "i32"),))
    found = ex.input(1, "i32")
    mark = ExprBundle((ex.logical_or(ex.input(0, "bool"), ex.cast(at, "i32").eq(found)),))
    marks = builder.op("EXPAND", builder.constant(np.zeros((1,) * kind.rank, np.bool_)),
                       shape=kind.shape)
    size = builder.constant(np.asarray(n, np.int32))
    places = []
    for _ in range(k):
        rest = builder.op("FUSED_ELEMENTWISE", x, marks, expr=left, dtypes=kind.dtype)
        top = builder.op("REDUCE_MAX" if largest else "REDUCE_MIN", rest, axes=(-1,))
        spots = builder.op("FUSED_ELEMENTWISE", x, marks, top, expr=place, dtypes="i32")
        spot = builder.op("REDUCE_MIN", spots, axes=(-1,))
        places.append(builder.op("MOD", spot, size))  # a NaN was counted from n on
        marks = builder.op("FUSED_ELEMENTWISE", marks, places[-1], expr=mark, dtypes="bool")
    return builder.op("CAST", builder.op("CONCAT", *places, axis=-1), to="i64")
