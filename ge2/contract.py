"""The contract between callers and kernels: codes, params blocks, buffer order.

Buffers are integers in the order inputs, outputs, then optionally the host address of one params
block. All tables here are append-only; changing a layout needs a new GE2_API_VERSION and a row in
VERSION_HISTORY. kernels/include/ge2/contract.cuh mirrors the layouts and is checked against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from . import errors

GE2_API_VERSION = 3

VERSION_HISTORY: tuple[tuple[int, str, str], ...] = (
    (1, "First version.", "Nothing to migrate from."),
    (2, "GEMM_BIAS_ACT has the attribute f32 and may write a second output.",
     "Make blocks with encode_params, or put a zero behind `epilogue`."),
    (3, "GEMM_BIAS_ACT has the attribute rows and may write one value per row.",
     "Make blocks with encode_params, or put a zero behind `f32`."),
)

MAX_RANK = 8

F32_MODES = ("ieee", "tf32", "x3")
"""How products of f32 are computed; x3 is as accurate as ieee, on tensor cores."""


ROW_VALUES = ("none", "sum", "sumsquare", "max")
"""What a product may say of each of its rows, in an output of its own."""


class Status(IntEnum):
    """What a launcher returns: 0, or a negative code that maps to one exception."""

    OK = 0
    INVALID = -1
    MISSING_INPUT = -2
    DTYPE_MISMATCH = -3
    SHAPE_MISMATCH = -4
    STRIDE_MISMATCH = -5
    LAYOUT_MISMATCH = -6
    DEVICE_MISMATCH = -7
    UNSUPPORTED = -8
    COMPILE_FAILED = -9
    LAUNCH_FAILED = -10
    OUT_OF_MEMORY = -11
    API_VERSION = -12


STATUS_EXCEPTIONS: dict[Status, type[errors.Ge2Error]] = {
    Status.INVALID: errors.Invalid,
    Status.MISSING_INPUT: errors.MissingInput,
    Status.DTYPE_MISMATCH: errors.DtypeMismatch,
    Status.SHAPE_MISMATCH: errors.ShapeMismatch,
    Status.STRIDE_MISMATCH: errors.StrideMismatch,
    Status.LAYOUT_MISMATCH: errors.LayoutMismatch,
    Status.DEVICE_MISMATCH: errors.DeviceMismatch,
    Status.UNSUPPORTED: errors.Unsupported,
    Status.COMPILE_FAILED: errors.CompileFailed,
    Status.LAUNCH_FAILED: errors.LaunchFailed,
    Status.OUT_OF_MEMORY: errors.OutOfMemory,
    Status.API_VERSION: errors.ApiVersionMismatch,
}


def status_of(error: errors.Ge2Error) -> Status:
    """Return the status code of an exception; INVALID for one without a code of its own."""
    for status, kind in STATUS_EXCEPTIONS.items():
        if isinstance(error, kind):
            return status
    if isinstance(error, errors.NoKernelError):
        return Status.UNSUPPORTED
    return Status.INVALID


class DType(IntEnum):
    """Element types; the integer travels in tensor descriptors."""

    F32 = 0
    F16 = 1
    BF16 = 2
    F64 = 3
    I32 = 4
    I64 = 5
    BOOL = 6
    U8 = 7
    I8 = 8
    F8E4M3 = 9
    F8E5M2 = 10


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """One element type.

    Attributes:
        name: the IR's name ("f32").
        code: the number in descriptors.
        itemsize: bytes.
        c_type: the storage type in kernel sources.
        compute: the dtype that scalar expressions over it are computed in.
        kind: "float", "int" or "bool".
    """

    name: str
    code: DType
    itemsize: int
    c_type: str
    compute: str
    kind: str


DTYPES: dict[str, DTypeInfo] = {
    info.name: info
    for info in (
        DTypeInfo("f32", DType.F32, 4, "float", "f32", "float"),
        DTypeInfo("f16", DType.F16, 2, "ge2::f16", "f32", "float"),
        DTypeInfo("bf16", DType.BF16, 2, "ge2::bf16", "f32", "float"),
        DTypeInfo("f64", DType.F64, 8, "double", "f64", "float"),
        DTypeInfo("i32", DType.I32, 4, "int", "i32", "int"),
        DTypeInfo("i64", DType.I64, 8, "long long", "i64", "int"),
        DTypeInfo("bool", DType.BOOL, 1, "ge2::b8", "bool", "bool"),
        DTypeInfo("u8", DType.U8, 1, "unsigned char", "i32", "int"),
        DTypeInfo("i8", DType.I8, 1, "signed char", "i32", "int"),
        DTypeInfo("f8e4m3", DType.F8E4M3, 1, "ge2::f8e4m3", "f32", "float"),
        DTypeInfo("f8e5m2", DType.F8E5M2, 1, "ge2::f8e5m2", "f32", "float"),
    )
}
DTYPE_NAMES: dict[int, str] = {int(info.code): name for name, info in DTYPES.items()}


FLOAT8_MAX = {"f8e4m3": 448.0, "f8e5m2": 57344.0}
"""The largest finite values of the 8-bit floating types. Conversions to them saturate there,
infinities included, as the GPU's instruction does; NaN stays NaN. f8e4m3 has no infinity."""

_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of an IR dtype name; bf16 and 8-bit floats come from ml_dtypes."""
    if name in _ML_DTYPES:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
        return found
    table = {"f32": "f4", "f16": "f2", "f64": "f8", "i32": "i4", "i64": "i8", "bool": "?",
             "u8": "u1", "i8": "i1"}
    result: np.dtype[Any] = np.dtype(table[name])
    return result


def dtype_name(dtype: Any) -> str:
    """Return the IR name of a NumPy dtype.

    Raises:
        DtypeMismatch: ge2 has no such element type.
    """
    for name in DTYPES:
        if numpy_dtype(name) == dtype:
            return name
    raise errors.DtypeMismatch("unknown element type", found=dtype, wanted=", ".join(DTYPES))


class ActKind(IntEnum):
    """Activations of GEMM_BIAS_ACT and CONV2D; shared by the IR, params blocks and ge2.ops."""

    NONE = 0
    RELU = 1
    GELU = 2
    GELU_TANH = 3
    SILU = 4
    SIGMOID = 5
    TANH = 6
    LEAKY_RELU = 7
    HARD_SWISH = 8
    HARD_SIGMOID = 9
    ELU = 10
    SOFTPLUS = 11
    MISH = 12
    RELU6 = 13


HEADER_DTYPE = np.dtype(
    [("struct_size", "u4"), ("api_version", "u4"), ("n_inputs", "u4"), ("n_outputs", "u4")]
)

# rank -1 marks an optional input that is absent; its buffer is 0.
TENSOR_DTYPE = np.dtype(
    [("dtype", "i4"), ("rank", "i4"), ("shape", "i8", MAX_RANK), ("strides", "i8", MAX_RANK)]
)

TRAILER_DTYPE = np.dtype(
    [("workspace", "u8"), ("workspace_size", "u8"), ("semaphores", "u8")]
)


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One operator attribute.

    Attributes:
        name: as ONNX names it where ONNX has it.
        kind: int, float, bool, ints, floats, str, dtype or expr.
        default: the value when absent; REQUIRED when there is none.
        choices: for kind str, the allowed values; the params block holds the index.
        doc: one line for the generated operator table.
    """

    name: str
    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()
    doc: str = ""


REQUIRED = object()

_ATTR_FIELDS: dict[str, list[Any]] = {
    "int": ["i8"],
    "float": ["f8"],
    "bool": ["i8"],
    "str": ["i8"],
    "dtype": ["i8"],
    "expr": ["u8"],
    "ints": ["i8", (2 * MAX_RANK,)],
    "floats": ["f8", (2 * MAX_RANK,)],
}


def attrs_dtype(specs: Sequence[AttrSpec]) -> np.dtype[Any]:
    """Return the params-block layout of an operator's attributes, in declaration order.

    A list attribute takes a count (name + "_count") and a fixed array of 2 * MAX_RANK values.
    """
    fields: list[tuple[Any, ...]] = []
    for spec in specs:
        if spec.kind in ("ints", "floats"):
            fields.append((f"{spec.name}_count", "i8"))
        fields.append((spec.name, *_ATTR_FIELDS[spec.kind]))
    return np.dtype(fields)


def params_dtype(specs: Sequence[AttrSpec], n_tensors: int) -> np.dtype[Any]:
    """Return the whole params-block layout of an operator called with n_tensors buffers."""
    return np.dtype(
        [
            ("header", HEADER_DTYPE),
            ("tensors", TENSOR_DTYPE, (n_tensors,)),
            ("attrs", attrs_dtype(specs)),
            ("trailer", TRAILER_DTYPE),
        ]
    )
