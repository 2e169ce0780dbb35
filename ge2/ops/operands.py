"""Operands of direct calls as two integers: a number for the description, and the address.

This is the hot path of every call with arrays: attribute reads and one look-up, no objects made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .gemm_types import Tensor, as_tensor

ABSENT = (-1, 0)
KEYS_KEPT = 65536
_keys: dict[Any, int] = {}

Reader = Callable[[Any], tuple[int, int]]


def operand(x: Any) -> tuple[int, int]:
    """Return (key, address) of a Tensor, a torch tensor, a CuPy array or None.

    Operands with one key have one description (shape, strides, element type, GPU) and alignment.

    Raises:
        As as_tensor, for an array with a description not seen before.
    """
    reader = _READERS.get(type(x)) or _reader(x)
    return reader(x)


def _of_tensor(x: Tensor) -> tuple[int, int]:
    return x.key, x.ptr


def _of_torch(x: Any) -> tuple[int, int]:
    address = x.data_ptr()
    key = (x.shape, x.stride(), x.dtype, x.get_device(), address & 15)
    number = _keys.get(key)
    return (_remember(key, x) if number is None else number), address


def _of_cupy(x: Any) -> tuple[int, int]:
    memory = x.data
    address = memory.ptr
    key = (x.shape, x.strides, x.dtype, memory.device_id, address & 15)
    number = _keys.get(key)
    return (_remember(key, x) if number is None else number), address


def _of_other(x: Any) -> tuple[int, int]:
    return _of_tensor(as_tensor(x))


def _remember(key: Any, x: Any) -> int:
    if len(_keys) >= KEYS_KEPT:
        _keys.clear()
    number = _keys[key] = as_tensor(x).key
    return number


_READERS: dict[type, Reader] = {Tensor: _of_tensor, type(None): lambda _: ABSENT}
_BY_MODULE: dict[str, Reader] = {"torch": _of_torch, "cupy": _of_cupy}


def _reader(x: Any) -> Reader:
    """Choose and remember the reader of a type."""
    root = type(x).__module__.partition(".")[0]
    return _READERS.setdefault(type(x), _BY_MODULE.get(root, _of_other))
