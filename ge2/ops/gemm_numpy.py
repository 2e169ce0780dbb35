"""The convenient path: NumPy arrays in, a NumPy array out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..contract import DType, dtype_name
from ..runtime.device import Device, cuda_device, default_backend, default_index
from .gemm_forward import forward, product
from .gemm_types import GemmAttrs, Tensor, make_tensor_2d

Array = npt.NDArray[Any]


def forward_numpy(A: Array, B: Array, bias: Array | None = None, *, C: Array | None = None,
                  attrs: GemmAttrs | None = None) -> Array:
    """Return act(alpha * op(A) op(B) + beta * C + bias) of host arrays.

    On a machine without a GPU NumPy computes it. Copies both ways make this several times slower
    than forward for small matrices: use forward in loops.

    Args:
        A, B: [M, K] and [K, N] (or transposed, by attrs). bias, C: as forward.

    Returns:
        [M, N] in A's element type.
    """
    attrs = attrs or GemmAttrs()
    if default_backend() != "cuda":
        return _on_host(A, B, bias, C, attrs)
    device = cuda_device(default_index())
    shape = (A.shape[1] if attrs.trans_a else A.shape[0],
             B.shape[0] if attrs.trans_b else B.shape[1])
    result = np.empty(shape, A.dtype)
    with device.active():
        uploaded = [None if x is None else _upload(x, device) for x in (A, B, bias, C)]
        y = _tensor(device, result)
        a, b, on_gpu_bias, on_gpu_c = uploaded
        forward(a, b, on_gpu_bias, y, attrs, None, C=on_gpu_c)
        device.copy(result.ctypes.data, y.ptr, result.nbytes, 0)
        device.synchronize(0)
    return result


def _tensor(device: Device, array: Array) -> Tensor:
    memory = device.allocate(array.nbytes)
    shape = array.shape if array.ndim == 2 else (1, array.size)
    made = make_tensor_2d(memory.address, shape, DType[dtype_name(array.dtype).upper()],
                          device_index=device.index)
    return Tensor(made.ptr, made.desc, owner=memory)


def _upload(array: Array, device: Device) -> Tensor:
    dense = np.ascontiguousarray(array)
    made = _tensor(device, dense)
    device.copy(made.ptr, dense.ctypes.data, dense.nbytes, 0)
    device.synchronize(0)
    return made


def _on_host(a: Array, b: Array, bias: Array | None, c: Array | None, attrs: GemmAttrs) -> Array:
    from ..compiler import opdefs

    node = product("Y", bias is not None, c is not None, attrs, attrs.act)
    if bias is not None and bias.ndim < 2:
        bias = bias.reshape(1, -1)
    result: Array = opdefs.reference(node.op, [a, b, bias, c], dict(node.attrs))[0]
    return result



