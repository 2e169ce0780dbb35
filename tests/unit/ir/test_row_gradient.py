"""Generated gradients of row operators agree with finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler.ir.row import row_op
from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.compiler.ir.row_gradient import gradient
from ge2.compiler.ir.row_ops import build_row_op
from ge2.errors import Invalid

SMOOTH = ("softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "variance", "sum",
          "mean", "l1", "l2", "sum_square", "log_sum", "l1_normalize", "l2_normalize",
          "add_layer_norm", "add_rms_norm", "softmax_grad")


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_is_the_slope(name: str) -> None:
    op = build_row_op(name).widened()
    back = gradient(build_row_op(name)).widened()
    draw = np.random.default_rng(2)
    n = 7
    operands = [draw.uniform(0.4, 2, (3, n)) for _ in range(op.n_inputs + op.n_extras)]
    ys = evaluate_row(op, operands[: op.n_inputs], operands[op.n_inputs:])
    dys = [draw.uniform(-1, 1, y.shape) for y in ys]
    rows = [dy if dy.ndim == 2 else np.broadcast_to(dy[:, None], (3, n)) for dy in dys]
    found = evaluate_row(back, [*operands, *rows])
    step = 1e-5
    for position, operand in enumerate(operands):
        for j in range(n):
            slope = np.zeros(3)
            for sign in (1, -1):
                moved = [o.copy() for o in operands]
                moved[position][:, j] = operand[:, j] + sign * step
                out = evaluate_row(op, moved[: op.n_inputs], moved[op.n_inputs:])
                for y, dy in zip(out, dys, strict=True):
                    slope += sign * (y * dy).reshape(3, -1).sum(-1) / (2 * step)
            np.testing.assert_allclose(found[position][:, j], slope, rtol=1e-6, atol=1e-8)


def test_softmax_gradient_is_short() -> None:
    # Forward maximum and sum, then one more sum: dy * d y / d sum.
    assert [len(stage) for stage in gradient(build_row_op("softmax")).stages] == [1, 1, 1]


def test_stages_of_plain_sums_are_found() -> None:
    op = row_op("own", state={"a": 0.0, "b": 0.0}, outputs=("scalar",),
                update=lambda s, r: [s.a + r.x, s.b + r.x * r.x],
                merge=lambda a, b: [a.a + b.a, a.b + b.b], finish=lambda s, r: s.b - s.a)
    assert len(op.stages) == 1
    x = np.arange(6.0)[None]
    np.testing.assert_allclose(evaluate_row(op, [x], by_stages=True)[0], x.sum() * 0 + 40)
    np.testing.assert_allclose(evaluate_row(gradient(op).widened(), [x, np.ones_like(x)])[0],
                               2 * x - 1)


@pytest.mark.parametrize("name", ["max", "argmax", "prod"])
def test_operators_without_a_gradient_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match="no gradient"):
        gradient(build_row_op(name))
