"""Products with weights of four bits in groups that share a scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec
from ...errors import DtypeMismatch, GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from . import activations
from .gemm import ACT_NAMES
from .opdef import FLOATS, Array, Arrays, OpDef, Types
from .shapes import optional, tensor

DEFAULT_ZERO = 8


def _check(name: str, given: TensorType, n: Extent, per_row: Extent) -> None:
    if given.shape not in ((n, per_row), (n * per_row,)):
        raise ShapeMismatch(f"MATMUL_NBITS {name} does not fit", found=given,
                            wanted=f"[{n}, {per_row}], or the same flat")


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    a, b, scales = (tensor(types, i) for i in range(3))
    zeros, bias = optional(types, 3), optional(types, 4)
    size = attrs["block_size"]
    if attrs["bits"] != 4:
        raise GraphError("MATMUL_NBITS takes weights of 4 bits", found=attrs["bits"], wanted=4,
                         hint="Dequantise others with DEQUANTIZE in front of MATMUL")
    if size < 2 or size % 2:
        raise GraphError("MATMUL_NBITS block_size must fill whole bytes", found=size,
                         wanted="an even number of at least 2")
    if a.rank < 2:
        raise ShapeMismatch("MATMUL_NBITS takes matrices", found=a)
    blocks = (a.shape[-1] + (size - 1)) // size
    if b.rank != 3 or b.shape[1:] != (blocks, size // 2):
        raise ShapeMismatch("MATMUL_NBITS B does not fit A", found=b,
                            wanted=f"[N, {blocks}, {size // 2}]")
    n = b.shape[0]
    _check("scales", scales, n, blocks)
    if zeros is not None:
        _check("zero_points", zeros, n, (blocks + 1) // 2)
    if bias is not None and bias.shape != (n,):
        raise ShapeMismatch("MATMUL_NBITS bias does not fit", found=bias, wanted=f"[{n}]")
    if scales.dtype not in (a.dtype, "f32"):
        raise DtypeMismatch("MATMUL_NBITS scales are of another type", found=scales,
                            wanted=f"{a.dtype} or f32")
    return [TensorType(a.dtype, (*a.shape[:-1], n))]


def unpack(codes: Array, count: int) -> Array:
    """Return the first count codes of each row [n, bytes]; the low half of a byte comes first."""
    both = np.stack([codes & 15, codes >> 4], axis=-1)
    return np.asarray(both.reshape(len(codes), -1)[:, :count].astype(np.int32))


def weights(b: Array, scales: Array, zeros: Array | None, size: int, k: int) -> Array:
    """Return [N, K] weights in the wider of f32 and the type of scales."""
    n, blocks = b.shape[:2]
    wide = scales.reshape(n, blocks).astype(np.promote_types(scales.dtype, np.float32))
    points = (np.full((n, blocks), DEFAULT_ZERO, np.int32) if zeros is None
              else unpack(zeros.reshape(n, (blocks + 1) // 2), blocks))
    spread = [np.repeat(x, size, axis=1)[:, :k] for x in (points, wide)]
    return np.asarray((unpack(b.reshape(n, blocks * size // 2), k) - spread[0]) * spread[1])


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    a, b, scales = arrays[:3]
    assert a is not None and b is not None and scales is not None
    w = weights(b, scales, optional(arrays, 3), attrs["block_size"], a.shape[-1])
    y = a @ w.astype(a.dtype).T
    bias = optional(arrays, 4)
    if bias is not None:
        y = y + bias
    return [activations.apply(attrs["act"], y, attrs["leaky_slope"])]


OPDEFS = (
    OpDef("MATMUL_NBITS", ("A", "B", "scales", "zero_points?", "bias?"), 1,
          (AttrSpec("block_size", "int", REQUIRED, doc="weights along K that share a scale"),
           AttrSpec("bits", "int", 4, doc="of a weight: 4"),
           AttrSpec("act", "str", "none", ACT_NAMES, doc="activation"),
           AttrSpec("leaky_slope", "float", 0.01, doc="slope of leaky_relu")),
          _infer, _reference, properties=frozenset({"rematerializable"}), family="gemm",
          dtypes=FLOATS, other={"B": ("u8",), "scales": FLOATS, "zero_points": ("u8",)},
          doc="act(A W^T + bias), W = (code - zero_point) * scale of codes two in a byte."),
)
