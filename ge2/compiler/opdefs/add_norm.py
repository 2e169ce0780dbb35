"""A residual sum and the norm of it in one operator, made by fusion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...contract import DTYPES, AttrSpec, numpy_dtype
from ...errors import ShapeMismatch
from ..ir.nodes import TensorType
from . import normalize
from .opdef import FLOATS, Array, Arrays, OpDef, Types
from .shapes import tensor

# Fused operator -> the norm inside it.
NORMS: dict[str, OpDef] = {
    f"ADD_{op.name}": op for op in normalize.OPDEFS if op.name in ("LAYER_NORM", "RMS_NORM")
}


def _infer(name: str) -> Callable[[Types, dict[str, Any]], list[TensorType]]:
    def infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
        x, residual = tensor(types, 0), tensor(types, 1)
        if x != residual:
            raise ShapeMismatch(f"{name} adds tensors of one type", found=residual, wanted=x)
        return [x, NORMS[name].infer([x, *types[2:]], attrs)[0]]

    return infer


def _reference(name: str) -> Callable[[Arrays, dict[str, Any]], list[Array]]:
    def reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
        x, residual = arrays[0], arrays[1]
        assert x is not None and residual is not None
        total = x + residual
        rounding = attrs["rounding"]
        if rounding is not None and DTYPES[rounding].itemsize < total.dtype.itemsize == 4:
            # The norm sees the sum as it is stored.
            total = total.astype(numpy_dtype(rounding)).astype(total.dtype)
        return [total, NORMS[name].reference([total, *arrays[2:]], attrs)[0]]

    return reference


def _row(name: str) -> OpDef:
    base = NORMS[name]
    rounding = AttrSpec("rounding", "dtype", None, doc="element type that the sum is stored in")
    return OpDef(
        name, ("x", "residual", *base.inputs[1:]), 2, (*base.attrs, rounding), _infer(name),
        _reference(name), properties=frozenset({"mergeable", "rematerializable"}), family="row",
        dtypes=FLOATS, doc=f"(x + residual, {base.name} of it).")


OPDEFS = tuple(_row(name) for name in NORMS)
