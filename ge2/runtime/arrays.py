"""Arrays of NumPy, CuPy and torch as addresses, and new ones of the caller's kind."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .. import contract
from ..contract import DTYPES, numpy_dtype
from ..errors import DtypeMismatch, Invalid
from ..problem import TensorSpec

MAX_ALIGN = 16

dtype_name = lru_cache(contract.dtype_name)


@dataclass(frozen=True, slots=True)
class Feed:
    """An array as kernels see it.

    Attributes:
        owner: the array, or the dense host copy that stands for it.
        kind: "numpy", "cupy" or "torch".
        address: of its first element.
        spec: dtype, shape, strides and alignment.
        device: GPU index, None on the host.
    """

    owner: Any
    kind: str
    address: int
    spec: TensorSpec
    device: int | None

    @property
    def host(self) -> bool:
        """Whether the array lives on the host."""
        return self.device is None


def describe(array: Any) -> Feed:
    """Return the feed of an array; anything else is taken through NumPy.

    Raises:
        DtypeMismatch: ge2 has no such element type.
    """
    root = type(array).__module__.partition(".")[0]
    if root == "torch":
        return _describe_torch(array)
    if root == "cupy":
        return _device_feed(array, "cupy", array.data.ptr, array.dtype, array.shape,
                            array.strides, array.device.id)
    if root != "numpy" and hasattr(array, "__cuda_array_interface__"):
        import cupy

        return describe(cupy.asarray(array))
    return _host_feed(np.asarray(array), array, "numpy")


def _host_feed(dense: np.ndarray[Any, Any], array: Any, kind: str) -> Feed:
    name = dtype_name(dense.dtype)
    writable = dense.flags.c_contiguous
    if not writable:
        dense = np.ascontiguousarray(dense)
    address = dense.__array_interface__["data"][0]
    owner = array if writable and kind == "torch" else dense
    return Feed(owner, kind, address, TensorSpec.dense(name, dense.shape), None)


def _device_feed(array: Any, kind: str, address: int, dtype: Any, shape: tuple[int, ...],
                 strides: tuple[int, ...], device: int) -> Feed:
    name = dtype_name(dtype)
    itemsize = DTYPES[name].itemsize
    steps = tuple(stride // itemsize for stride in strides)
    return Feed(array, kind, address, TensorSpec(name, shape, steps, align_of(address)), device)


def align_of(address: int) -> int:
    """Return the largest power of two up to 16 that divides an address."""
    return min(MAX_ALIGN, address & -address) if address else MAX_ALIGN


def _describe_torch(tensor: Any) -> Feed:
    name = _TORCH_NAMES.get(str(tensor.dtype).removeprefix("torch."))
    if name is None:
        raise DtypeMismatch("unknown element type", found=tensor.dtype, wanted=", ".join(DTYPES))
    tensor = tensor.detach()
    if not tensor.is_cuda:
        return _host_feed(_torch_to_numpy(tensor, name), tensor, "torch")
    address = tensor.data_ptr()
    spec = TensorSpec(name, tuple(tensor.shape), tuple(tensor.stride()), align_of(address))
    return Feed(tensor, "torch", address, spec, tensor.device.index)


def _torch_to_numpy(tensor: Any, name: str) -> np.ndarray[Any, Any]:
    if name == "bf16":
        torch = sys.modules["torch"]
        bits: np.ndarray[Any, Any] = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(numpy_dtype("bf16"))
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


_TORCH_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64",
                "int32": "i32", "int64": "i64", "bool": "bool", "uint8": "u8", "int8": "i8"}
_TORCH_DTYPES = {name: text for text, name in _TORCH_NAMES.items()}


def empty(kind: str, spec: TensorSpec, device: int | None, stream: int) -> Any:
    """Return a new dense array of a kind: on a GPU, or on the host where device is None."""
    if kind == "torch":
        torch = sys.modules["torch"]
        place = "cpu" if device is None else f"cuda:{device}"
        return torch.empty(spec.shape, dtype=getattr(torch, _TORCH_DTYPES[spec.dtype]),
                           device=place)
    if device is None:
        return np.empty(spec.shape, numpy_dtype(spec.dtype))
    import cupy

    with cupy.cuda.Device(device):
        if cupy.cuda.get_current_stream().ptr == stream:
            return cupy.empty(spec.shape, numpy_dtype(spec.dtype))
        with cupy.cuda.ExternalStream(stream):
            return cupy.empty(spec.shape, numpy_dtype(spec.dtype))


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


