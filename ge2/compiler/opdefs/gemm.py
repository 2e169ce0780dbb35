"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import config
from ...contract import F32_MODES, ROW_VALUES, ActKind, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from . import activations
from .gemm_epilogue import EPILOGUE_SCALARS
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import Shape, broadcast, broadcasts_to, optional, tensor

ACT_NAMES = tuple(kind.name.lower() for kind in ActKind)


def f32_mode(attrs: Mapping[str, Any]) -> str:
    """Return how a product of f32 is computed: "ieee", "tf32" or "x3"."""
    mode: str = attrs["f32"]
    return config.get("GE2_F32") if mode == "default" else mode


def product_shape(op: str, a: Shape, b: Shape) -> Shape:
    """Return the shape of a matrix product of operands of rank 1 or more (as numpy.matmul)."""
    if not a or not b:
        raise ShapeMismatch(f"{op} does not take scalars", found=f"{a} and {b}")
    left: Shape = (1, *a) if len(a) == 1 else a
    right: Shape = (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise ShapeMismatch(f"{op} inner extents differ", found=f"{left[-1]} and {right[-2]}",
                            wanted=f"one K in {a} and {b}")
    result: list[Extent] = list(broadcast(op, [left[:-2], right[:-2]]))
    if len(a) > 1:
        result.append(left[-2])
    if len(b) > 1:
        result.append(right[-1])
    return tuple(result)


def matmul(a: Array, b: Array) -> Array:
    """Return a @ b; small integers through exact float64 products, which BLAS can do."""
    if a.dtype.kind in "iu" and a.dtype.itemsize < 8:
        limit = np.iinfo(np.int64).max if a.dtype.itemsize > 2 else 2.0**15
        if limit**2 * max(a.shape[-1], 1) < 2.0**53:
            return np.asarray(a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return np.asarray(a @ b)


def _infer_matmul(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    a, b = tensor(types, 0), tensor(types, 1)
    return [TensorType(a.dtype, product_shape("MATMUL", a.shape, b.shape))]


def _reference_matmul(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    a, b = arrays
    assert a is not None and b is not None
    return [matmul(a, b)]


def _decompose_matmul(builder: Builder, inputs: Sequence[str],
                      attrs: dict[str, Any]) -> Sequence[str] | None:
    """A vector operand becomes a matrix with an extent of 1."""
    a, b = (builder.type(value).shape for value in inputs)
    if len(a) > 1 and len(b) > 1:
        return None
    left = builder.op("RESHAPE", inputs[0], shape=(1, *a)) if len(a) == 1 else inputs[0]
    right = builder.op("RESHAPE", inputs[1], shape=(*b, 1)) if len(b) == 1 else inputs[1]
    result = builder.op("MATMUL", left, right)
    return [builder.op("RESHAPE", result, shape=product_shape("MATMUL", a, b))]


def _swap(shape: Shape, transposed: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def _infer_gemm(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    a, b = tensor(types, 0), tensor(types, 1)
    if a.rank < 2 or b.rank < 2:
        raise ShapeMismatch("GEMM_BIAS_ACT takes matrices", found=f"{a} and {b}")
    out = product_shape("GEMM_BIAS_ACT", _swap(a.shape, attrs["trans_a"]),
                        _swap(b.shape, attrs["trans_b"]))
    for index in range(2, len(types)):
        given = types[index]
        if given is not None and not broadcasts_to(given.shape, out):
            name = ("bias", "C")[index - 2] if index < 4 else f"extras[{index - 4}]"
            raise ShapeMismatch(f"GEMM_BIAS_ACT {name} does not broadcast to the output",
                                found=given, wanted=f"{tuple(out)}")
    epilogue = attrs["epilogue"]
    if epilogue is None and len(types) > 4:
        raise GraphError("GEMM_BIAS_ACT extras need an epilogue", found=f"{len(types) - 4} extras")
    if epilogue is not None and len(epilogue.outputs) > 2:
        raise GraphError("GEMM_BIAS_ACT epilogue has one or two outputs",
                         found=len(epilogue.outputs))
    if epilogue is not None and epilogue.n_scalars > len(EPILOGUE_SCALARS):
        raise GraphError("GEMM_BIAS_ACT epilogue reads other scalars than alpha and beta",
                         found=epilogue.text)
    results = [TensorType(a.dtype, out)] * (1 if epilogue is None else len(epilogue.outputs))
    if attrs["rows"] != "none":
        results.append(TensorType(a.dtype, (*out[:-1], 1)))
    return results


def _reference_gemm(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    results = _products(arrays, attrs)
    rows = attrs["rows"]
    if rows == "max":
        results.append(np.max(results[0], axis=-1, keepdims=True))
    elif rows != "none":
        terms = results[0] if rows == "sum" else results[0] * results[0]
        results.append(np.sum(terms, axis=-1, keepdims=True))
    return results


def _products(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    a, b = arrays[0], arrays[1]
    assert a is not None and b is not None
    a = np.swapaxes(a, -1, -2) if attrs["trans_a"] else a
    b = np.swapaxes(b, -1, -2) if attrs["trans_b"] else b
    acc = matmul(a, b)
    bias, c = optional(arrays, 2), optional(arrays, 3)
    if attrs["epilogue"] is not None:
        return activations.evaluate_bundle(attrs["epilogue"], [acc, bias, c, *arrays[4:]],
                                           [attrs["alpha"], attrs["beta"]])
    if attrs["alpha"] != 1.0:
        acc = acc * acc.dtype.type(attrs["alpha"])
    if c is not None:
        acc = acc + (c if attrs["beta"] == 1.0 else c * acc.dtype.type(attrs["beta"]))
    if bias is not None:
        acc = acc + bias
    return [activations.apply(attrs["act"], acc, attrs["leaky_slope"])]


def _decompose_rows(builder: Builder, inputs: Sequence[str],
                    attrs: dict[str, Any]) -> Sequence[str] | None:
    """A product that says something of its rows is one and a reduction."""
    rows = attrs["rows"]
    if rows == "none":
        return None
    epilogue = attrs["epilogue"]
    results = builder.multi("GEMM_BIAS_ACT", 1 if epilogue is None else len(epilogue.outputs),
                            *inputs, **{**attrs, "rows": "none"})
    return [*results, builder.op(f"REDUCE_{rows.upper()}", results[0], axes=(-1,))]


GEMM_ATTRS = (
    AttrSpec("trans_a", "bool", False, doc="A is stored [K, M]"),
    AttrSpec("trans_b", "bool", False, doc="B is stored [N, K]"),
    AttrSpec("alpha", "float", 1.0, doc="factor of the product"),
    AttrSpec("beta", "float", 1.0, doc="factor of C"),
    AttrSpec("act", "str", "none", ACT_NAMES, doc="activation"),
    AttrSpec("leaky_slope", "float", 0.01, doc="slope of leaky_relu"),
    AttrSpec("epilogue", "expr", None, doc="replaces the sum and act: input 0 is the sum of "
             "products, 1 bias, 2 C, 3.. extras; scalars 0 and 1 are alpha and beta; one or two "
             "outputs"),
    AttrSpec("f32", "str", "default", ("default", *F32_MODES),
             doc="how products of f32 are computed; default: as GE2_F32 says"),
    AttrSpec("rows", "str", "none", ROW_VALUES, "of each row of the first output: a further "
             "output [..., M, 1]"),
)

OPDEFS = (
    OpDef("MATMUL", ("A", "B"), 1, (), _infer_matmul, _reference_matmul,
          properties=frozenset({"linear", "rematerializable", "columnwise", "epilogue",
                                "transposable"}), family="gemm",
          dtypes=(*FLOATS, "i32", "i64"), decompose=_decompose_matmul,
          doc="Matrix product with broadcast batch axes, as numpy.matmul."),
    OpDef("GEMM_BIAS_ACT", ("A", "B", "bias?", "C?", "extras*"), 1, GEMM_ATTRS, _infer_gemm,
          _reference_gemm, family="gemm",
          properties=frozenset({"rematerializable", "columnwise", "epilogue", "transposable"}),
          dtypes=FLOATS, decompose=_decompose_rows,
          doc="act(alpha * op(A) op(B) + beta * C + bias) with broadcast batch axes."),
)
