"""A norm of rows and the matrix product that reads it in one operator, made by fusion.

A block of the product holds whole rows of its left operand anyway when these are short: it can
normalise them itself. The normalised rows are an output, too, for a residual sum further on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...contract import DTYPES, REQUIRED, AttrSpec, numpy_dtype
from ...errors import GraphError
from ..ir.nodes import TensorType
from . import gemm, normalize
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types, fill_attrs
from .shapes import optional, tensor

NORMS = {op.name: op for op in normalize.OPDEFS if op.name in ("LAYER_NORM", "RMS_NORM")}
_GEMM = next(op for op in gemm.OPDEFS if op.name == "GEMM_BIAS_ACT")
PRODUCT_ATTRS = ("trans_b", "alpha", "beta", "act", "leaky_slope", "epilogue")


def _norm_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    return fill_attrs(NORMS[attrs["norm"]], {"axis": -1, "epsilon": attrs["epsilon"]})


def _product_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    return fill_attrs(_GEMM, {name: attrs[name] for name in PRODUCT_ATTRS})


def _norm_inputs(given: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    """Return x, scale and, where the norm takes one, shift."""
    shift = optional(given, 3)
    absent = shift is None or (isinstance(shift, str) and not shift)
    return [given[0], given[1], *([] if absent else [shift])]


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    rows, = NORMS[attrs["norm"]].infer(_norm_inputs(types, attrs), _norm_attrs(attrs))
    product = _GEMM.infer([rows, tensor(types, 2), *types[4:]], _product_attrs(attrs))
    if len(product) > 1:
        raise GraphError("NORM_GEMM has one product", found=attrs["epilogue"].text)
    return [product[0], rows] if attrs["rows"] else product


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    rows, = NORMS[attrs["norm"]].reference(_norm_inputs(arrays, attrs), _norm_attrs(attrs))
    rounding = attrs["rounding"]
    if rounding is not None and DTYPES[rounding].itemsize < rows.dtype.itemsize == 4:
        # The product sees the rows as they are stored.
        rows = rows.astype(numpy_dtype(rounding)).astype(rows.dtype)
    product, = _GEMM.reference([rows, arrays[2], *arrays[4:]], _product_attrs(attrs))
    return [product, rows] if attrs["rows"] else [product]


def _decompose(builder: Builder, inputs: Sequence[str], attrs: dict[str, Any]) -> Sequence[str]:
    rows = builder.op(attrs["norm"], *_norm_inputs(inputs, attrs), axis=-1,
                      epsilon=attrs["epsilon"])
    product = builder.op("GEMM_BIAS_ACT", rows, inputs[2], *inputs[4:],
                         **{name: attrs[name] for name in PRODUCT_ATTRS})
    return [product, rows] if attrs["rows"] else [product]


OPDEFS = (
    OpDef("NORM_GEMM", ("x", "scale", "B", "shift?", "bias?", "C?", "extras*"), 2,
          (AttrSpec("norm", "str", REQUIRED, tuple(NORMS), "of the rows of x"),
           AttrSpec("epsilon", "float", 1e-5, doc="added to the variance"),
           *(spec for spec in gemm.GEMM_ATTRS if spec.name in PRODUCT_ATTRS),
           AttrSpec("rows", "bool", True, doc="the normalised rows are a second output"),
           AttrSpec("rounding", "dtype", None, doc="element type that the rows are stored in")),
          _infer, _reference, properties=frozenset({"rematerializable"}), family="gemm",
          dtypes=FLOATS, decompose=_decompose,
          doc="(GEMM_BIAS_ACT of norm(x), norm(x)); the norm over the last axis."),
)
