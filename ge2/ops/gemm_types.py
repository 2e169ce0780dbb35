"""Tensors and attributes of the direct GEMM path: addresses with a checked description."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ..contract import DTYPE_NAMES, DTYPES, F32_MODES, ActKind, DType
from ..errors import DeviceMismatch, DtypeMismatch, Invalid, LayoutMismatch, StrideMismatch
from ..problem import TensorSpec

GEMM_DTYPES = (DType.F32, DType.F16, DType.BF16, DType.F64)


class Device(IntEnum):
    """Where a tensor lives."""

    CPU = 0
    CUDA = 1


class Layout(IntEnum):
    """Order of elements; only ROW_MAJOR reaches kernels."""

    ROW_MAJOR = 0
    COL_MAJOR = 1


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """What a tensor is, without its address.

    Attributes:
        shape: one or two extents.
        strides: in elements; an axis of extent 1 counts as dense whatever was given.
        dtype, layout, device, device_index: as named.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    layout: Layout = Layout.ROW_MAJOR
    device: Device = Device.CUDA
    device_index: int = 0

    @property
    def ld(self) -> int:
        """Leading dimension: elements from one row to the next."""
        return self.strides[0] if len(self.strides) == 2 else 1

    @property
    def extent_bytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * DTYPES[DTYPE_NAMES[self.dtype]].itemsize

    def spec(self, align: int) -> TensorSpec:
        """Return the description that kernels are selected by."""
        return TensorSpec(DTYPE_NAMES[self.dtype], self.shape, self.strides, align)


class Tensor:
    """A GPU buffer: an address and a description. Immutable; keeps its owner alive.

    Attributes:
        ptr: device address of the first element.
        desc: what lies there.
        align: largest power of two up to 16 that divides ptr.
        owner: the array that the memory belongs to, if any.
    """

    __slots__ = ("align", "desc", "key", "owner", "ptr")

    def __init__(self, ptr: int, desc: TensorDesc, owner: Any = None) -> None:
        self.ptr = ptr
        self.desc = desc
        self.align = min(16, ptr & -ptr) if ptr else 16
        self.owner = owner
        self.key = number_of((desc, self.align))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.desc.shape

    def __repr__(self) -> str:
        return f"Tensor({self.ptr:#x}, {self.desc})"


_numbers: dict[Any, int] = {}


def number_of(value: Any) -> int:
    """Return a small number that stands for a value: cheap to hash on every call."""
    return _numbers.setdefault(value, len(_numbers))


@dataclass(frozen=True, slots=True)
class GemmAttrs:
    """Y = act(alpha * op(A) op(B) + beta * C + bias).

    Attributes:
        trans_a, trans_b: whether A is stored [K, M] and B [N, K].
        alpha, beta: factors of the product and of C.
        act: activation.
        leaky_slope: slope of LEAKY_RELU below zero; takes effect only where not zero (else 0.01).
        save_z: forward also writes the value before the activation to Z_out.
        f32: how f32 products are computed: "ieee", "tf32" or "x3" (f32-accurate, tensor cores);
            "default": as GE2_F32 says.
    """

    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    act: ActKind = ActKind.NONE
    leaky_slope: float = 0.0
    save_z: bool = False
    f32: str = "default"
    key: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "act", ActKind(self.act))
        if self.f32 not in ("default", *F32_MODES):
            raise Invalid("unknown f32 mode", argument="f32", found=repr(self.f32),
                          wanted=", ".join(("default", *F32_MODES)))
        values = (self.trans_a, self.trans_b, self.alpha, self.beta, int(self.act),
                  self.leaky_slope, self.save_z, self.f32)
        object.__setattr__(self, "key", number_of(("attrs", *values)))

    def __hash__(self) -> int:
        return self.key

    @property
    def slope(self) -> float:
        """The slope that LEAKY_RELU uses."""
        return self.leaky_slope or 0.01


def make_tensor_2d(ptr_u64: int, shape: tuple[int, int], dtype: DType | int = DType.F32,
                   device: Device | int = Device.CUDA, device_index: int = 0,
                   strides: tuple[int, int] | None = None,
                   layout: Layout | int = Layout.ROW_MAJOR) -> Tensor:
    """Return a tensor over memory that the caller owns; nothing is copied.

    Args:
        ptr_u64: device address of the first element; any multiple of the element size.
        shape: rows and columns; zero is allowed.
        strides: in elements; None means dense. Rows may be further apart than columns are many
            (a slice of columns).

    Raises:
        Invalid: a negative extent, or an address that is no multiple of the element size.
        DtypeMismatch: an element type that GEMM does not take.
        LayoutMismatch: column-major. StrideMismatch: negative or overlapping strides.
    """
    kind = _checked_dtype(dtype)
    if len(shape) != 2 or min(shape, default=0) < 0:
        raise Invalid("a matrix has two extents of at least 0", argument="shape", found=shape)
    if Layout(layout) is Layout.COL_MAJOR:
        raise _column_major(tuple(shape))
    itemsize = DTYPES[DTYPE_NAMES[kind]].itemsize
    if ptr_u64 % itemsize:
        raise Invalid("the address lies between two elements", argument="ptr_u64",
                      found=hex(ptr_u64), wanted=f"a multiple of {itemsize}")
    desc = TensorDesc(tuple(shape), row_major_strides(tuple(shape), strides), kind,
                      Layout.ROW_MAJOR, Device(device), device_index)
    return Tensor(int(ptr_u64), desc)


def _checked_dtype(dtype: DType | int) -> DType:
    if dtype not in GEMM_DTYPES:
        found = DTYPE_NAMES.get(int(dtype), str(dtype))
        raise DtypeMismatch("GEMM does not take this element type", argument="dtype", found=found,
                            wanted=", ".join(DTYPE_NAMES[d] for d in GEMM_DTYPES))
    return DType(dtype)


def _column_major(shape: tuple[int, ...]) -> LayoutMismatch:
    return LayoutMismatch(
        "a column-major matrix is not taken", argument="layout", found=f"COL_MAJOR {shape}",
        wanted="ROW_MAJOR",
        hint=f"The same memory is the row-major matrix {shape[::-1]}: pass that one and set "
             "trans_a (for A) or trans_b (for B)")


@lru_cache(maxsize=4096)
def row_major_strides(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the strides that kernels see, after checking the given ones.

    Raises:
        StrideMismatch, LayoutMismatch: negative, overlapping or column-major strides.
    """
    if len(shape) == 1:
        step = 1 if strides is None or shape[0] <= 1 else strides[0]
        if step < 1:
            raise StrideMismatch("a stride must be positive", argument="strides", found=strides)
        return (step,)
    rows, columns = shape
    dense = (max(columns, 1), 1)
    if strides is None or rows * columns == 0:
        return dense
    if min(s for s, n in zip((*strides, 1), (*shape, 2), strict=True) if n > 1) < 0:
        raise StrideMismatch("negative strides are not taken", argument="strides", found=strides,
                             wanted="positive strides", hint="Copy the reversed view first")
    if rows == 1 and columns == 1:
        return dense
    if rows == 1:
        return _vector_strides(columns, strides[1], dense, row=True)
    if columns == 1:
        return _vector_strides(rows, strides[0], dense, row=False)
    if strides[1] != 1:
        if strides[0] == 1 and strides[1] >= rows:
            raise _column_major(shape)
        raise StrideMismatch("elements of a row must be neighbours", argument="strides",
                             found=strides, wanted=f"(ld >= {columns}, 1)")
    if strides[0] < columns:
        raise StrideMismatch("the leading dimension is too small: rows overlap",
                             argument="strides", found=f"ld = {strides[0]}",
                             wanted=f"at least {columns}")
    return strides


def _vector_strides(extent: int, step: int, dense: tuple[int, int], *,
                    row: bool) -> tuple[int, int]:
    if step < 1:
        raise StrideMismatch("elements overlap", argument="strides", found=step,
                             wanted="a positive stride")
    return (dense[0] * step, step) if row else (step, 1)


def as_tensor(array: Any) -> Tensor:
    """Return the tensor of a CuPy array, a torch tensor or any DLPack / CUDA-array object.

    The tensor shares the array's memory and keeps it alive.

    Raises:
        DeviceMismatch: the array lives on the host. Others as make_tensor_2d.
    """
    if isinstance(array, Tensor):
        return array
    root = type(array).__module__.partition(".")[0]
    if root == "torch":
        return _from_torch(array)
    if root == "cupy":
        itemsize = array.itemsize
        strides = tuple([s // itemsize for s in array.strides])
        return _shared(array, array.data.ptr, array.shape, strides, str(array.dtype),
                       array.device.id)
    if hasattr(array, "__cuda_array_interface__") or hasattr(array, "__dlpack_device__"):
        if not hasattr(array, "__cuda_array_interface__") and array.__dlpack_device__()[0] != 2:
            raise _on_host(type(array).__name__)
        import cupy

        made = cupy.asarray(array) if hasattr(array, "__cuda_array_interface__") else (
            cupy.from_dlpack(array))
        return as_tensor(made)
    raise _on_host(type(array).__name__)


def _on_host(kind: str) -> DeviceMismatch:
    return DeviceMismatch("an array lives on the host", found=kind, wanted="a GPU array",
                          hint="Copy it to the GPU first, or call forward_numpy")


def _from_torch(array: Any) -> Tensor:
    if not array.is_cuda:
        raise _on_host(f"torch tensor on {array.device}")
    return _shared(array, array.data_ptr(), tuple(array.shape), array.stride(),
                   str(array.dtype)[6:], array.get_device())


_NAMES = {"float32": DType.F32, "float16": DType.F16, "bfloat16": DType.BF16,
          "float64": DType.F64}


def _shared(owner: Any, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str,
            index: int) -> Tensor:
    return Tensor(ptr, _shared_desc(shape, strides, dtype, index), owner)


@lru_cache(maxsize=4096)
def _shared_desc(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str,
                 index: int) -> TensorDesc:
    if dtype not in _NAMES:
        raise DtypeMismatch("GEMM does not take this element type", argument="dtype", found=dtype,
                            wanted=", ".join(_NAMES))
    if len(shape) > 2:
        raise Invalid("GEMM takes matrices", argument="shape", found=shape, wanted="two extents")
    if len(shape) == 0:
        shape, strides = (1,), (1,)
    return TensorDesc(shape, row_major_strides(shape, strides), _NAMES[dtype],
                      device_index=index)
