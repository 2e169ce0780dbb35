"""Row operators on NumPy arrays: the reference of every row kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contract import numpy_dtype
from .expr import evaluate
from .row import RowOp

Array = npt.NDArray[Any]


def evaluate_row(op: RowOp, xs: Sequence[npt.ArrayLike], extras: Sequence[npt.ArrayLike] = (),
                 *, by_stages: bool = False) -> list[Array]:
    """Return one array per output, in the compute dtype of its expression.

    States of single elements are merged pairwise, so this also exercises the declaration's merge.

    Args:
        op: the operator; op.widened() computes in float64.
        xs: arrays [..., n].
        extras: arrays that broadcast to them.
        by_stages: use the stages instead of update and merge, where there are any.
    """
    arrays = [np.asarray(x).astype(numpy_dtype(op.dtype)) for x in xs]
    n = arrays[0].shape[-1]
    length = np.asarray(n, numpy_dtype(op.dtype))
    firsts = [x[..., :1] for x in arrays] if op.pivot and n else []
    if op.pivot and not n:
        firsts = [np.zeros((*x.shape[:-1], 1), x.dtype) for x in arrays]
    index = np.arange(n)
    if op.stages and (by_stages or not op.streamable):
        state = _by_stages(op, arrays, firsts, index, length)
    else:
        state = _by_merging(op, arrays, firsts, index)
    outputs = []
    for expr, kind in zip(op.finish, op.outputs, strict=True):
        if kind == "row":
            leaves = [*state, *arrays, *extras, *firsts]
            value, = evaluate((expr,), leaves, (index,), (length,))
            outputs.append(np.broadcast_to(value, arrays[0].shape).copy())
        else:
            missing: list[None] = [None] * (op.n_inputs + op.n_extras)
            value, = evaluate((expr,), [*state, *missing, *firsts], (np.zeros(1),), (length,))
            outputs.append(np.broadcast_to(value, (*arrays[0].shape[:-1], 1))[..., 0].copy())
    return outputs


def _initial(op: RowOp, shape: tuple[int, ...]) -> list[Array]:
    values = evaluate(tuple(v.init for v in op.state), [])
    return [np.broadcast_to(v, shape) for v in values]


def _by_merging(op: RowOp, arrays: list[Array], firsts: list[Array], index: Array) -> list[Array]:
    """Return the state of each row, shape [..., 1]."""
    shape = arrays[0].shape
    if shape[-1] == 0:
        return _initial(op, (*shape[:-1], 1))
    state = evaluate(op.update, [*_initial(op, shape), *arrays, *firsts], (index,))
    state = [np.broadcast_to(s, shape) for s in state]
    while state and state[0].shape[-1] > 1:
        width = state[0].shape[-1]
        rest = [s[..., width - width % 2:] for s in state]
        left = [s[..., 0: width - width % 2: 2] for s in state]
        right = [s[..., 1: width - width % 2: 2] for s in state]
        merged = evaluate(op.merge, [*left, *right])
        state = [np.concatenate([m, r], axis=-1) for m, r in zip(merged, rest, strict=True)]
    return state


def _by_stages(op: RowOp, arrays: list[Array], firsts: list[Array], index: Array,
               length: Array) -> list[Array]:
    from .row_ops import HIGHEST, LOWEST

    dtype = numpy_dtype(op.dtype)
    starts = {"sum": 0, "max": LOWEST[op.dtype], "min": HIGHEST[op.dtype],
              "max_number": LOWEST[op.dtype]}
    ufuncs: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum,
                                   "max_number": np.fmax}
    seen: list[Array] = []
    for stage in op.stages:
        found = []
        for acc in stage:
            element, = evaluate((acc.element,), [*seen, *arrays, *firsts], (index,),
                                (length,))
            element = np.broadcast_to(element, arrays[0].shape)
            total = ufuncs[acc.combine].reduce(element, axis=-1, keepdims=True,
                                               initial=starts[acc.combine])
            value, = evaluate((acc.value,), [np.asarray(total, dtype)], (), (length,))
            found.append(value)
        seen += found
    return evaluate(op.collect, seen, (), (length,))
