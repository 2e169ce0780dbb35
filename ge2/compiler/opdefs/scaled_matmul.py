"""Products of 8-bit matrices, scaled back to wider element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...contract import DTYPES, AttrSpec, numpy_dtype
from ...errors import DtypeMismatch, GraphError, ShapeMismatch
from ..ir.expr import Expr, ExprBundle, cast, input
from ..ir.nodes import TensorType
from .activations import evaluate_bundle
from .gemm import product_shape
from .opdef import ALL, F8, Array, Arrays, OpDef, Types
from .shapes import broadcasts_to, optional, tensor

BYTES = ("i8", "u8", *F8)
OPERANDS = ("a_scale", "b_scale", "bias")
_OUTPUTS = ("f32", "f16", "bf16", "i32")


def sum_dtype(operand: str) -> str:
    """Return the dtype that products of an operand of this dtype are summed in."""
    return "i32" if DTYPES[operand].kind == "int" else "f32"


def scaled_epilogue(operand: str, output: str, dtypes: Sequence[str | None]) -> ExprBundle:
    """Return sum * a_scale * b_scale + bias over inputs in this order.

    Args:
        operand: element type of A.
        output: of the result.
        dtypes: of scales and bias; None or missing where absent.
    """
    padded = (*dtypes, None, None, None)[:3]
    return _epilogue(sum_dtype(operand), DTYPES[output].compute, padded)


@lru_cache(maxsize=1024)
def _epilogue(sums: str, compute: str, dtypes: tuple[str | None, ...]) -> ExprBundle:
    value: Expr = input(0, sums)
    for index in (1, 2):
        given = dtypes[index - 1]
        if given is not None:
            value = cast(value, "f32") * input(index, DTYPES[given].compute)
    bias = dtypes[2]
    if bias is not None:
        kind = "i32" if value.dtype == "i32" and bias == "i32" else "f32"
        value = cast(value, kind) + cast(input(3, DTYPES[bias].compute), kind)
    return ExprBundle((cast(value, compute),))


def output_dtype(types: Types, attrs: Mapping[str, Any]) -> str:
    """Return the element type of the result: as asked for, else i32 for bare sums of integers."""
    if attrs["output_dtype"]:
        return str(attrs["output_dtype"])
    scaled = any(optional(types, i) is not None for i in (2, 3))
    return "i32" if sum_dtype(tensor(types, 0).dtype) == "i32" and not scaled else "f32"


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    a, b = tensor(types, 0), tensor(types, 1)
    if a.rank < 2 or b.rank < 2:
        raise ShapeMismatch("SCALED_MATMUL takes matrices", found=f"{a} and {b}")
    if sum_dtype(a.dtype) != sum_dtype(b.dtype):
        raise DtypeMismatch("SCALED_MATMUL does not mix integers and floats", found=f"{a} and {b}")
    out = product_shape("SCALED_MATMUL", a.shape, b.shape)
    for index in range(2, len(types)):
        given = types[index]
        if given is not None and not broadcasts_to(given.shape, out):
            name = OPERANDS[index - 2] if index < 5 else f"extras[{index - 5}]"
            raise ShapeMismatch(f"SCALED_MATMUL {name} does not broadcast to the output",
                                found=given, wanted=f"{tuple(out)}")
    dtype = output_dtype(types, attrs)
    if attrs["epilogue"] is None:
        if len(types) > 5:
            raise GraphError("SCALED_MATMUL extras need an epilogue",
                             found=f"{len(types) - 5} extras")
        if dtype not in _OUTPUTS:
            raise DtypeMismatch("SCALED_MATMUL cannot make this element type", found=dtype,
                                wanted=" or ".join(_OUTPUTS), hint="Add a QUANTIZE behind it")
    return [TensorType(dtype, out)]


def product(a: Array, b: Array) -> Array:
    """Return a @ b: of integers modulo 2**32, of floats in f32 or wider."""
    if a.dtype.kind in "iu":
        wide: Array = np.matmul(a.astype(np.int64), b.astype(np.int64))
        return wide.astype(np.int32)
    return np.asarray(np.matmul(a, b))


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    a, b, *rest = arrays
    assert a is not None and b is not None
    acc = product(a, b)
    epilogue = attrs["epilogue"]
    if epilogue is not None:
        return evaluate_bundle(epilogue, [acc, *rest])
    a_scale, b_scale, bias = (optional(rest, i) for i in range(3))
    for scale in (a_scale, b_scale):
        if scale is not None:
            acc = np.asarray(acc * scale, np.promote_types(scale.dtype, np.float32))
    if bias is not None:
        acc = acc + bias
    dtype = attrs["output_dtype"]
    return [acc if dtype is None or dtype != "i32" else acc.astype(numpy_dtype("i32"))]


OPDEFS = (
    OpDef("SCALED_MATMUL", ("A", "B", "a_scale?", "b_scale?", "bias?", "extras*"), 1,
          (AttrSpec("output_dtype", "dtype", None,
                    doc="f32, f16, bf16 or i32; default: i32 for sums of integers without scales, "
                        "else f32"),
           AttrSpec("epilogue", "expr", None,
                    doc="replaces scales and bias: input 0 is the sum of products (i32 or f32), "
                        "1 a_scale, 2 b_scale, 3 bias, 4.. extras")),
          _infer, _reference, properties=frozenset({"rematerializable", "epilogue"}),
          family="gemm",
          other={"A": BYTES, "B": BYTES, "a_scale": ("f32",), "b_scale": ("f32",),
                 "bias": ("f32", "f16", "bf16", "i32"), "extras": ALL},
          doc="A B * a_scale * b_scale + bias of 8-bit A and B; sums of integers wrap at 2**32."),
)
