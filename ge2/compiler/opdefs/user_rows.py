"""Row operators that users declare: one class gives schema, inference, reference and kernels.

    @ge2.row_operator
    class LOG_MEAN_EXP:
        '''log(mean(exp(x)))'''
        state = {"total": 0.0}
        outputs = ("scalar",)
        def single(r): return [exp(r.x)]
        def merge(a, b): return [a.total + b.total]
        def finish(s, r): return log(s.total / r.n)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...contract import AttrSpec
from ...errors import GraphError, Invalid, ShapeMismatch, near_matches
from ..ir import properties
from ..ir.nodes import TensorType
from ..ir.row import RowOp, row_op
from ..ir.row_check import check_row_op
from ..ir.row_evaluate import evaluate_row
from ..ir.row_gradient_check import check_gradient as check_row_gradient
from .opdef import FLOATS, Array, Arrays, OpDef, Types
from .shapes import axis_of, broadcasts_to, tensor

_MEMBERS = ("state", "inputs", "extras", "outputs", "pivot", "update", "single", "merge", "finish",
            "stages", "collect")
_NEEDED = ("state", "merge", "finish")
_ATTRS = (
    AttrSpec("axis", "int", -1, doc="axis that the rows lie along"),
    AttrSpec("keepdims", "bool", False, doc="keep the axis, of extent 1, in outputs per row"),
)

Build = Callable[[str], RowOp]

USER_ROWS: dict[str, Build] = {}
"""Operator name -> its RowOp for a compute dtype."""


def row_operator(declaration: type) -> OpDef:
    """Define a graph operator from a class that declares it; use it as a decorator.

    The class's name is the operator's. Members: `state`, `merge`, `finish`, and `update` or
    `single`, as in ge2.compiler.ir.row.row_op; optional `stages`, `collect`, `pivot`, `outputs`
    (default one row output), and operand names `inputs` (default ("x",)) and `extras`.
    The operator takes an attribute `axis` and, for outputs with one value per row, `keepdims`.

    Raises:
        Invalid: the name is taken, a member is unknown or missing, or the result would depend on
            how rows are split (the merge is not associative, ...).
    """
    from . import OPS

    name = declaration.__name__.upper()
    if name in OPS and name not in USER_ROWS:
        raise Invalid(f"there is an operator {name} already")
    members = {k: v for k, v in vars(declaration).items() if not k.startswith("__")}
    for member in members:
        if member not in _MEMBERS:
            raise Invalid(f"row operator {name} has an unknown member", found=member,
                          wanted=", ".join(_MEMBERS), hint=near_matches(member, _MEMBERS))
    for member in _NEEDED:
        if member not in members:
            raise Invalid(f"row operator {name} lacks a member", wanted=member)
    inputs = tuple(members.pop("inputs", ("x",)))
    extras = tuple(members.pop("extras", ()))

    @lru_cache(maxsize=4)
    def build(dtype: str) -> RowOp:
        return row_op(name.lower(), dtype=dtype, inputs=len(inputs), extras=len(extras), **members)

    op = build("f32")
    check_row_op(op)
    definition = OpDef(
        name, (*inputs, *extras), len(op.outputs), _ATTRS, _infer(name, op), _reference(build),
        properties=frozenset({"mergeable", "rematerializable"}), family="row", dtypes=FLOATS,
        doc=(declaration.__doc__ or "Declared by a user.").strip().splitlines()[0])
    properties.declare(name, definition.properties)
    OPS[name], USER_ROWS[name] = definition, build
    return definition


def check_gradient(name: str, tolerance: float = 1e-6) -> float:
    """Compare the gradient of a declared row operator with differences of its outputs.

    Args:
        name: of an operator declared with row_operator.
        tolerance: largest accepted difference, relative to the largest derivative.

    Returns:
        The largest relative difference found.

    Raises:
        Invalid: no such declaration, it has no gradient, or the two differ.
    """
    build = USER_ROWS.get(name.upper())
    if build is None:
        raise Invalid("no declared row operator has this name", found=repr(name),
                      wanted=", ".join(USER_ROWS) or "one declared with ge2.row_operator",
                      hint=near_matches(name.upper(), USER_ROWS))
    return check_row_gradient(build("f32"), tolerance)


def _infer(name: str, op: RowOp) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x = tensor(types, 0)
        if not x.rank:
            raise GraphError(f"{name} needs an axis", found=x)
        axis = axis_of(name, attrs["axis"], x.rank)
        for position in range(1, len(types)):
            other = tensor(types, position)
            if not broadcasts_to(other.shape, x.shape):
                raise ShapeMismatch(f"{name} input {position} does not broadcast to x",
                                    found=other, wanted=x)
        reduced = (*x.shape[:axis], *((1,) if attrs["keepdims"] else ()), *x.shape[axis + 1:])
        return [TensorType(x.dtype, x.shape if kind == "row" else reduced) for kind in op.outputs]

    return infer


def _reference(build: Build) -> Callable[[Arrays, dict[str, Any]], list[Array]]:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        op = build("f32")
        op = op.widened() if x.dtype == np.float64 else op
        axis = attrs["axis"] % x.ndim
        rows = [np.moveaxis(np.broadcast_to(a, x.shape), axis, -1)
                for a in arrays if a is not None]
        found = evaluate_row(op, rows[: op.n_inputs], rows[op.n_inputs:])
        results = []
        for array, kind in zip(found, op.outputs, strict=True):
            if kind == "row":
                array = np.moveaxis(array, -1, axis)
            elif attrs["keepdims"]:
                array = np.expand_dims(array, axis)
            results.append(array)
        return results

    return reference
