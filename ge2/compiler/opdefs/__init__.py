"""One definition per operator: schema, shape inference, NumPy reference, properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import DTYPES, numpy_dtype
from ...errors import DtypeMismatch, GraphError, near_matches
from ..ir import properties
from ..ir.expr import Expr
from ..ir.nodes import TensorType
from . import (
    add_norm,
    attention,
    attention_grad,
    channel_norm,
    conv,
    conv_transpose,
    einsum,
    elementwise,
    extrema,
    fused_row,
    gemm,
    index,
    layout,
    loss,
    movement,
    nbits,
    norm_gemm,
    normalize,
    order,
    paged_attention,
    pool,
    quantize,
    quantize_rows,
    recurrent,
    reduce,
    resample,
    resize,
    rotary,
    scaled_matmul,
    scatter,
)
from .opdef import Array, Arrays, Attrs, Builder, OpDef, Types, check_inputs, fill_attrs
from .opdef import narrow as _narrow
from .opdef import widen as _widen

__all__ = ["OPS", "Builder", "OpDef", "dtype_of", "evaluate", "expression", "full_attrs", "get",
           "infer", "reference"]

OPS: dict[str, OpDef] = {
    op.name: op
    for module in (elementwise, gemm, einsum, quantize, normalize, channel_norm, reduce, extrema,
                   order, movement, layout, index, scatter, conv, conv_transpose, pool, resample,
                   resize, attention, attention_grad, rotary, recurrent, fused_row, add_norm,
                   norm_gemm, loss,
                   quantize_rows, scaled_matmul, nbits, paged_attention)
    for op in module.OPDEFS
}

for _op in OPS.values():
    properties.declare(_op.name, _op.properties)

_NAMES = {numpy_dtype(name): name for name in DTYPES}


def get(name: str) -> OpDef:
    """Return the definition of an operator.

    Raises:
        GraphError: there is none; names near matches.
    """
    found = OPS.get(name)
    if found is None:
        raise GraphError(f"unknown operator {name!r}",
                         hint=near_matches(name.upper(), OPS) or "List them with: ge2 ops")
    return found


def full_attrs(op: str, attrs: Attrs) -> dict[str, Any]:
    """Return every attribute of an operator in canonical form, defaults filled.

    Raises:
        GraphError: an attribute is unknown, missing, of the wrong kind or not among the choices.
    """
    return fill_attrs(get(op), attrs)


def infer(op: str, types: Types, attrs: Attrs) -> list[TensorType]:
    """Return the output types of an operator.

    Args:
        types: input types; None for an optional input that is absent. Extents may be symbolic.
        attrs: attributes as given.

    Raises:
        Ge2Error: the attributes, dtypes or shapes are not what the operator takes.
    """
    definition = get(op)
    check_inputs(definition, types)
    return definition.infer(types, fill_attrs(definition, attrs))


def reference(op: str, arrays: Arrays, attrs: Attrs) -> list[Array]:
    """Return an operator's outputs on NumPy arrays.

    f16 and bf16 are computed in f32 and rounded once; f64 in f64; integers wrap.

    Raises:
        Ge2Error: as infer.
    """
    definition = get(op)
    full = fill_attrs(definition, attrs)
    types = [None if a is None else TensorType(dtype_of(a), a.shape) for a in arrays]
    check_inputs(definition, types)
    return evaluate(definition, arrays, full, [t.dtype for t in definition.infer(types, full)])


def evaluate(definition: OpDef, arrays: Arrays, full: dict[str, Any],
             dtypes: Sequence[str]) -> list[Array]:
    """Return reference results in the given dtypes; the inputs must have been checked."""
    with np.errstate(all="ignore"):
        results = definition.reference([_widen(a) for a in arrays], full)
        return [_narrow(r, d) for r, d in zip(results, dtypes, strict=True)]


def expression(op: str, attrs: Attrs, dtypes: Sequence[str]) -> Expr:
    """Return the formula of an elementwise operator over inputs of these element types.

    Raises:
        GraphError: the operator is not elementwise.
    """
    definition = get(op)
    if definition.expr is None:
        raise GraphError(f"{op} is not an elementwise operator")
    return elementwise.expression_of(definition, fill_attrs(definition, attrs), dtypes)


def dtype_of(array: Array) -> str:
    """Return the IR element type of an array.

    Raises:
        DtypeMismatch: ge2 has no such element type.
    """
    name = _NAMES.get(array.dtype)
    if name is None:
        raise DtypeMismatch("unknown element type", found=array.dtype, wanted=", ".join(DTYPES))
    return name
