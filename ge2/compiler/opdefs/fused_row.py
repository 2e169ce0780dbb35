"""FUSED_ROW: a row operator with formulas before and after it, made by fusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...contract import REQUIRED, AttrSpec
from ...errors import GraphError
from ..ir.expr import ExprBundle
from ..ir.nodes import TensorType
from . import activations as act
from . import channel_norm, normalize, reduce
from .opdef import ALL, Array, Arrays, OpDef, Types, fill_attrs
from .shapes import broadcast

BASES: dict[str, OpDef] = {
    op.name: op for op in (*normalize.OPDEFS, *reduce.OPDEFS,
                           *(op for op in channel_norm.OPDEFS if op.name == "LP_NORM"))
    if op.name != "MASKED_SOFTMAX"
}


def base_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of the row operator inside a FUSED_ROW."""
    base = BASES[attrs["base"]]
    names = {spec.name for spec in base.attrs}
    return fill_attrs(base, {k: v for k, v in attrs.items() if k in names and v is not None})


def split_inputs(attrs: dict[str, Any], inputs: Sequence[Any]) -> tuple[list[Any], list[Any],
                                                                         list[Any]]:
    """Return (what x is computed from, other operands of the base, what only the end reads)."""
    n, m = attrs["n_xs"], attrs["n_extras"]
    return list(inputs[:n]), list(inputs[n: n + m]), list(inputs[n + m:])


def _compute_type(bundle: ExprBundle) -> str:
    """Return a stored dtype whose compute dtype is the formula's."""
    return bundle.outputs[0].dtype


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    base = BASES.get(attrs["base"])
    if base is None:
        raise GraphError("FUSED_ROW of an operator that is no row operator", found=attrs["base"],
                         wanted=", ".join(BASES))
    given = [t for t in types if t is not None]
    xs, extras, more = split_inputs(attrs, given)
    shape = broadcast("FUSED_ROW", [t.shape for t in xs])
    prologue: ExprBundle | None = attrs["prologue"]
    dtype = xs[0].dtype if prologue is None else _compute_type(prologue)
    # The base is computed in one dtype; its own operands are converted on the way in.
    same = [TensorType(dtype, t.shape) for t in extras]
    result = base.infer([TensorType(dtype, shape), *same], base_attrs(attrs))[0]
    if more and broadcast("FUSED_ROW", [result.shape, *(t.shape for t in more)]) != result.shape:
        raise GraphError("FUSED_ROW operands do not broadcast to its result",
                         found=[str(t) for t in more], wanted=f"{result}")
    return [TensorType(attrs["dtype"], result.shape)]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    given = [a for a in arrays if a is not None]
    xs, extras, more = split_inputs(attrs, given)
    prologue, epilogue = attrs["prologue"], attrs["epilogue"]
    x = xs[0] if prologue is None else act.evaluate_bundle(prologue, xs)[0]
    base = BASES[attrs["base"]]
    result = base.reference([x, *extras], base_attrs(attrs))[0]
    return [result if epilogue is None else act.evaluate_bundle(epilogue, [result, *more])[0]]


OPDEFS = (
    OpDef("FUSED_ROW", ("xs*",), 1, (
        AttrSpec("base", "str", REQUIRED, doc="the row operator"),
        AttrSpec("n_xs", "int", REQUIRED, doc="operands that its x is computed from"),
        AttrSpec("n_extras", "int", REQUIRED, doc="further operands of it (scale, bias)"),
        AttrSpec("prologue", "expr", None, doc="x over the first operands"),
        AttrSpec("epilogue", "expr", None, doc="over input 0 = its result, then the last operands"),
        AttrSpec("dtype", "dtype", REQUIRED, doc="element type of the result"),
        AttrSpec("axis", "int", None, doc="as the row operator"),
        AttrSpec("epsilon", "float", None, doc="as the row operator"),
        AttrSpec("p", "int", None, doc="as the row operator"),
        AttrSpec("axes", "ints", None, doc="as the row operator"),
        AttrSpec("keepdims", "bool", True, doc="as the row operator"),
        AttrSpec("noop_with_empty_axes", "bool", False, doc="as the row operator")),
        _infer, _reference, properties=frozenset({"rematerializable"}), family="row",
        other={"xs": ALL}, doc="epilogue(row operator(prologue(xs), extras), more)."),
)
