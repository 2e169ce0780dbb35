"""Operators that users declare: references, shapes, refusals, and the examples of the document."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import ge2
from ge2.compiler import opdefs
from ge2.compiler.ir.expr import exp, log
from ge2.compiler.ir.nodes import Node, TensorType
from ge2.compiler.ir.row_check import check_row_op
from ge2.compiler.ir.row_ops import ROW_OPS, build_row_op
from ge2.compiler.kernels.lower import lower
from ge2.compiler.opdefs.user_rows import USER_ROWS
from ge2.errors import Invalid, ShapeMismatch
from ge2.problem import TensorSpec

ROOT = Path(__file__).parents[3]


class TEST_GEO_MEAN:
    """exp(mean(log(x)))"""

    state = {"total": 0.0}  # noqa: RUF012 - as a user writes it
    outputs = ("scalar",)

    def single(r):
        return [log(r.x)]

    def merge(a, b):
        return [a.total + b.total]

    def finish(s, r):
        return exp(s.total / r.n)


@pytest.fixture(autouse=True, scope="module")
def declared():
    """Declare the operator, and forget all of this module's afterwards."""
    before = set(opdefs.OPS)
    ge2.row_operator(TEST_GEO_MEAN)
    yield
    for name in set(opdefs.OPS) - before:
        del opdefs.OPS[name], USER_ROWS[name]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reference_along_any_axis(axis: int, keepdims: bool) -> None:
    x = np.random.default_rng(0).uniform(0.5, 2, (3, 4, 5))
    attrs = {"axis": axis, "keepdims": keepdims}
    found, = opdefs.reference("TEST_GEO_MEAN", [x], attrs)
    np.testing.assert_allclose(found, np.exp(np.log(x).mean(axis, keepdims=keepdims)))
    shape = opdefs.infer("TEST_GEO_MEAN", [TensorType("f64", x.shape)], attrs)[0].shape
    assert shape == found.shape


def test_lowers_to_a_row_problem() -> None:
    spec = TensorSpec.dense("f16", (3, 4, 5))
    problem = lower(Node("TEST_GEO_MEAN", "n", ("x",), ("y",), {"axis": 1}), {"x": spec})
    assert problem.op_type == "ROW"
    assert problem.inputs[0].shape == (3, 5, 4)


def test_merge_that_depends_on_the_split_is_refused() -> None:
    class SUBTRACT:
        state = {"a": 0.0}  # noqa: RUF012 - as a user writes it
        outputs = ("scalar",)

        def single(r):
            return [r.x]

        def merge(a, b):
            return [a.a - b.a]

        def finish(s, r):
            return s.a

    with pytest.raises(Invalid, match="merge is not associative"):
        ge2.row_operator(SUBTRACT)
    assert "SUBTRACT" not in opdefs.OPS


def test_unknown_members_and_taken_names_are_refused() -> None:
    wrong = type("WRONG", (), {"state": {"a": 0.0}, "merg": None})
    with pytest.raises(Invalid, match=r"unknown member.*merge"):
        ge2.row_operator(wrong)
    with pytest.raises(Invalid, match="already"):
        ge2.row_operator(type("SOFTMAX", (), {}))
    with pytest.raises(Invalid, match="lacks a member"):
        ge2.row_operator(type("NOTHING", (), {"state": {"a": 0.0}}))


def test_operands_that_do_not_broadcast_are_refused() -> None:
    exec_document()
    with pytest.raises(ShapeMismatch, match="broadcast"):
        opdefs.infer("MAX_SCALE", [TensorType("f32", (3, 4)), TensorType("f32", (5,))], {})


@pytest.mark.parametrize("name", sorted(ROW_OPS))
def test_built_in_declarations_are_sound(name: str) -> None:
    check_row_op(build_row_op(name))


def exec_document() -> None:
    text = (ROOT / "docs/own-operator.md").read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), {})


def test_the_document_runs() -> None:
    exec_document()
    assert "LOG_MEAN_EXP" in opdefs.OPS
