"""Arrays of NumPy, CuPy and torch as addresses, and new ones of the caller's kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import contract
from ..contract import DTYPES, FLOAT8_MAX, numpy_dtype
from ..errors import DtypeMismatch, Invalid
from ..problem import TensorSpec

MAX_ALIGN = 16

# Several times faster than the named tuples' own constructors; these run for every array.
_new: Any = tuple.__new__


class Signature(NamedTuple):
    """What decides how an array is used, cheap to make and to compare.

    Attributes:
        kind: "numpy", "cupy" or "torch".
        dtype: the library's own element type.
        shape, strides: extents and the library's own strides; None for a dense host array.
        low: the address modulo 16.
        device: GPU index, -1 on the host.
    """

    kind: str
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    low: int
    device: int

    @property
    def host(self) -> bool:
        """Whether the array lives on the host."""
        return self.device < 0


class Seen(NamedTuple):
    """An array as it is used in a call.

    Attributes:
        signature: what a call's route is looked up by.
        address: of the first element.
        owner: the array, or the dense host copy that stands for it.
    """

    signature: Signature
    address: int
    owner: Any


def look(array: Any) -> Seen:
    """Return an array's signature and address; anything unknown is taken through NumPy."""
    return _lookers(type(array))(array)  # type: ignore[arg-type]


@lru_cache
def _lookers(kind: type) -> Callable[[Any], Seen]:
    root = kind.__module__.partition(".")[0]
    if root == "torch":
        return _look_torch
    if root == "cupy":
        return _look_cupy
    if root != "numpy" and hasattr(kind, "__cuda_array_interface__"):
        return _look_foreign
    return _look_numpy


def _look_cupy(array: Any) -> Seen:
    memory = array.data
    address = memory.ptr
    signature = _new(Signature, ("cupy", array.dtype, array.shape, array.strides, address & 15,
                                 memory.device_id))
    seen: Seen = _new(Seen, (signature, address, array))
    return seen


def _look_torch(tensor: Any) -> Seen:
    if tensor.is_cuda:
        address = tensor.data_ptr()
        signature = _new(Signature, ("torch", tensor.dtype, tensor.shape, tensor.stride(),
                                     address & 15, tensor.get_device()))
        seen: Seen = _new(Seen, (signature, address, tensor))
        return seen
    host = _torch_to_numpy(tensor.detach())
    dense = np.asarray(host, order="C")  # ascontiguousarray makes a vector of a scalar
    return Seen(Signature("torch", tensor.dtype, dense.shape, None, 0, -1), _host_address(dense),
                tensor if dense is host else dense)


def _look_foreign(array: Any) -> Seen:
    import cupy

    return _look_cupy(cupy.asarray(array))


def _look_numpy(array: Any) -> Seen:
    dense = np.asarray(array)
    if not dense.flags.c_contiguous:
        dense = np.ascontiguousarray(dense)
    return Seen(Signature("numpy", dense.dtype, dense.shape, None, 0, -1), _host_address(dense),
                dense)


def _host_address(dense: np.ndarray[Any, Any]) -> int:
    address: int = dense.__array_interface__["data"][0]
    return address


def _torch_to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    torch = sys.modules["torch"]
    name = _TORCH_NAMES.get(str(tensor.dtype).removeprefix("torch."), "")
    if name in ("bf16", *FLOAT8_MAX):  # torch does not hand these to NumPy
        whole = torch.int16 if name == "bf16" else torch.uint8
        bits: np.ndarray[Any, Any] = tensor.contiguous().view(whole).numpy()
        return bits.view(numpy_dtype(name))
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


_TORCH_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64",
                "int32": "i32", "int64": "i64", "bool": "bool", "uint8": "u8", "int8": "i8",
                "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
_TORCH_DTYPES = {name: text for text, name in _TORCH_NAMES.items()}


@lru_cache(maxsize=1024)
def spec_of(signature: Signature) -> TensorSpec:
    """Return the spec of an array; a host array counts as aligned, since it is copied.

    Raises:
        DtypeMismatch: ge2 has no such element type.
    """
    if signature.kind == "torch":
        text = str(signature.dtype).removeprefix("torch.")
        if text not in _TORCH_NAMES:
            raise DtypeMismatch("unknown element type", found=signature.dtype,
                                wanted=", ".join(_TORCH_NAMES))
        name = _TORCH_NAMES[text]
    else:
        name = contract.dtype_name(signature.dtype)
    shape = tuple(signature.shape)
    if signature.strides is None:
        return TensorSpec.dense(name, shape)
    unit = 1 if signature.kind == "torch" else DTYPES[name].itemsize
    strides = tuple(stride // unit for stride in signature.strides)
    align = signature.low & -signature.low if signature.low else MAX_ALIGN
    return TensorSpec(name, shape, strides, align)


def maker(kind: str, spec: TensorSpec, device: int | None) -> Callable[[int], Any]:
    """Return a function of the raw stream that makes new dense arrays of a kind.

    Args:
        kind: "numpy", "cupy" or "torch".
        spec: dtype and shape.
        device: GPU index; None for the host.
    """
    if kind == "torch":
        torch = sys.modules["torch"]
        dtype = getattr(torch, _TORCH_DTYPES[spec.dtype])
        place = torch.device("cpu" if device is None else f"cuda:{device}")
        return lambda _stream: torch.empty(spec.shape, dtype=dtype, device=place)
    element = numpy_dtype(spec.dtype)
    if device is None:
        return lambda _stream: np.empty(spec.shape, element)
    import cupy

    def make(stream: int) -> Any:
        if cupy.cuda.get_current_stream().ptr == stream and cupy.cuda.get_device_id() == device:
            return cupy.empty(spec.shape, element)
        with cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream):
            return cupy.empty(spec.shape, element)

    return make


def current_stream(kind: str, device: int) -> int:
    """Return the library's current stream on a device as a raw handle; 0 for NumPy."""
    if kind == "torch":
        return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))
    if kind == "cupy":
        import cupy

        return int(cupy.cuda.get_current_stream(device).ptr)
    return 0


def raw_stream(stream: Any) -> int:
    """Return the raw handle of a stream: an int, or a CuPy, torch or cuda.core stream.

    Raises:
        Invalid: it is none of those.
    """
    if isinstance(stream, int):
        return stream
    for name in ("ptr", "cuda_stream"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise Invalid("not a stream", argument="stream", found=type(stream).__name__,
                  wanted="a raw handle, a CuPy or a torch stream")
