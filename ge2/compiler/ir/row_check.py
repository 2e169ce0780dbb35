"""Is a row operator's declaration sound? Its merge must be associative and agree with the rest.

Kernels split rows as suits the GPU, so a declaration for which the split matters would give results
that change with the device. It is tried on numbers instead of proved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...contract import numpy_dtype
from ...errors import Invalid
from .expr import evaluate
from .row import RowOp
from .row_evaluate import evaluate_row

Array = npt.NDArray[Any]
_ROWS, _LENGTH = 64, 12


def check_row_op(op: RowOp) -> None:
    """Refuse a declaration whose result depends on how a row is split.

    Raises:
        Invalid: says which rule is broken and on which state member.
    """
    wide = op.widened()
    draw = np.random.default_rng(7)
    shape = (_ROWS, _LENGTH)
    if wide.dtype == "f64":
        xs: list[Array] = [draw.uniform(-2, 2, shape) for _ in range(op.n_inputs)]
    else:
        xs = [draw.integers(-9, 9, shape).astype(numpy_dtype(wide.dtype))
              for _ in range(op.n_inputs)]
    start = [np.broadcast_to(v, shape) for v in evaluate(tuple(v.init for v in wide.state), [])]
    firsts = [x[:, :1] for x in xs] if op.pivot else []
    index = np.arange(_LENGTH)
    single = _update(wide, start, xs, firsts, index)
    a, b, c = ([s[:, i::3] for s in single] for i in range(3))
    _same(op, "merge is not associative: merge(merge(a, b), c) differs from merge(a, merge(b, c))",
          _merge(wide, _merge(wide, a, b), c), _merge(wide, a, _merge(wide, b, c)))
    _same(op, "merging the initial state with another changes that", _merge(wide, start, single),
          single)
    _same(op, "merging another with the initial state changes it", _merge(wide, single, start),
          single)
    joined = _update(wide, [s[:, :-1] for s in single], [x[:, 1:] for x in xs], firsts, index[1:])
    _same(op, "update differs from merging the state of one element", joined,
          _merge(wide, [s[:, :-1] for s in single], [s[:, 1:] for s in single]))
    if op.stages:
        extras = [draw.uniform(0.5, 2, shape) for _ in range(op.n_extras)]
        _same(op, "the stages lead to another result than update and merge",
              evaluate_row(wide, xs, extras, by_stages=True), evaluate_row(wide, xs, extras))


def _update(op: RowOp, state: list[Array], xs: list[Array], firsts: list[Array],
            index: Array) -> list[Array]:
    new = evaluate(op.update, [*state, *xs, *firsts], (index,))
    return [np.broadcast_to(s, xs[0].shape) for s in new]


def _merge(op: RowOp, a: list[Array], b: list[Array]) -> list[Array]:
    shape = np.broadcast_shapes(a[0].shape, b[0].shape)
    return [np.broadcast_to(s, shape) for s in evaluate(op.merge, [*a, *b])]


def _same(op: RowOp, reason: str, found: list[Array], wanted: list[Array]) -> None:
    names = [v.name for v in op.state]
    for number, (left, right) in enumerate(zip(found, wanted, strict=True)):
        with np.errstate(all="ignore"):
            close = np.isclose(left, right, rtol=1e-9, atol=1e-9, equal_nan=True)
        if not close.all():
            at = tuple(np.argwhere(~close)[0].tolist())
            label = names[number] if len(found) == len(names) else f"output {number}"
            raise Invalid(f"row operator {op.name}: {reason}", argument=label,
                          found=f"{label} = {left[at]}", wanted=right[at])
