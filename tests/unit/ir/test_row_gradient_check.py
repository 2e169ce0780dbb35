"""Gradients of declarations agree with differences; a wrong one is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ge2.compiler.ir import row_gradient_check
from ge2.compiler.ir.row_gradient import gradient
from ge2.compiler.ir.row_gradient_check import check_gradient
from ge2.compiler.ir.row_ops import build_row_op
from ge2.errors import Invalid


@pytest.mark.parametrize("name", [
    "softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "l2_normalize", "variance",
    "sum", "mean", "l2", "sum_square", "add_layer_norm", "add_rms_norm", "softmax_grad"])
def test_built_in_gradients(name: str) -> None:
    assert check_gradient(build_row_op(name)) < 1e-6


def test_layer_norm_of_narrow_rows_has_the_same_gradient() -> None:
    assert check_gradient(build_row_op("layer_norm", pivot=False)) < 1e-6


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(op):
        right = gradient(op)
        return replace(right, finish=tuple(f * 1.01 for f in right.finish))

    monkeypatch.setattr(row_gradient_check, "gradient", wrong)
    with pytest.raises(Invalid, match="differs from differences"):
        check_gradient(build_row_op("softmax"))


def test_no_gradient_is_said() -> None:
    with pytest.raises(Invalid, match="no gradient"):
        check_gradient(build_row_op("argmax"))
