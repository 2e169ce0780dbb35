"""Does the gradient of a row operator agree with differences of its outputs?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import Invalid
from .row import RowOp
from .row_evaluate import evaluate_row
from .row_gradient import gradient

Array = npt.NDArray[Any]
_ROWS, _LENGTH, _STEP = 4, 7, 1e-6


def check_gradient(op: RowOp, tolerance: float = 1e-6) -> float:
    """Compare gradient(op) with central differences in float64 on random rows.

    Args:
        op: a floating-point row operator.
        tolerance: largest accepted difference, relative to the largest derivative.

    Returns:
        The largest relative difference.

    Raises:
        Invalid: the operator has no gradient, or the two differ; names the operand.
    """
    wide, back = op.widened(), gradient(op).widened()
    draw = np.random.default_rng(11)
    shape = (_ROWS, _LENGTH)
    operands = [draw.uniform(0.25, 2.0, shape) * draw.choice((-1.0, 1.0), shape)
                for _ in range(op.n_inputs)]
    operands += [draw.uniform(0.5, 2.0, shape) for _ in range(op.n_extras)]
    dys = [draw.standard_normal(shape if kind == "row" else (_ROWS, 1)) for kind in op.outputs]
    with np.errstate(all="ignore"):
        found = evaluate_row(back, [*operands, *(np.broadcast_to(dy, shape) for dy in dys)])
        worst = 0.0
        for number, one in enumerate(found):
            wanted = np.stack([_slope(wide, operands, dys, number, column)
                               for column in range(_LENGTH)], axis=-1)
            scale = max(float(np.abs(wanted).max()), 1e-3)
            error = float(np.abs(np.broadcast_to(one, shape) - wanted).max()) / scale
            if not error <= tolerance:
                raise Invalid(f"row operator {op.name}: the gradient differs from differences",
                              argument=f"operand {number}", found=f"{error:.2g} apart",
                              wanted=f"at most {tolerance:.2g}")
            worst = max(worst, error)
    return worst


def _slope(op: RowOp, operands: list[Array], dys: list[Array], number: int, column: int) -> Array:
    """Return the derivative of sum(dy * y) of each row with respect to one element."""
    totals = []
    for sign in (1.0, -1.0):
        moved = [a.copy() for a in operands]
        moved[number][:, column] += sign * _STEP
        outputs = evaluate_row(op, moved[:op.n_inputs], moved[op.n_inputs:])
        totals.append(sum((np.asarray(y).reshape(_ROWS, -1) * dy).sum(-1)
                          for y, dy in zip(outputs, dys, strict=True)))
    return np.asarray((totals[0] - totals[1]) / (2 * _STEP))
