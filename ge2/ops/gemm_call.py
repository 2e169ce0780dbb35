"""Direct GEMM calls: what to launch for given tensors, prepared once and kept."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ..errors import DeviceMismatch
from ..problem import TensorSpec
from ..runtime import driver
from ..runtime.device import Device, cuda_device
from . import gemm_check as check
from .gemm_types import Tensor, as_tensor
from .prepared import Prepared

CALLS_KEPT = 512
POINTERS_KEPT = 8192


class Call:
    """A prepared call with the addresses that it was checked for.

    Attributes:
        prepared: the launches.
        device: where.
        checked: the address tuples of recent calls that passed all address checks.
    """

    __slots__ = ("checked", "device", "inputs", "outputs", "prepared")

    def __init__(self, prepared: Prepared, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.prepared = prepared
        self.device = prepared.device
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.checked: set[tuple[int, ...]] = set()

    def run(self, addresses: list[int], operands: Sequence[Any], stream: Any) -> None:
        """Check the addresses if they are new, and launch.

        Args:
            addresses: of the operands, 0 for an absent one.
            operands: what the caller gave, in the order of the arguments.

        Raises:
            DeviceMismatch: memory of the host or of another GPU. Invalid: an output overlaps.
        """
        handle = 0 if stream is None else stream if type(stream) is int else raw_stream(stream)
        prepared = self.prepared
        previous = driver.settle(self.device.index) if self.device.kind == "cuda" else None
        try:
            if addresses != prepared.addresses and tuple(addresses) not in self.checked:
                self.check(addresses, operands)
            prepared.run(addresses, handle)
        finally:
            if previous is not None:
                driver.leave_device(previous)

    def check(self, addresses: list[int], operands: Sequence[Any]) -> None:
        """Check where the operands' memory is and that no output overlaps; remember the result."""
        tensors = named(self.prepared.arguments, operands)
        for name, tensor in tensors.items():
            if tensor is not None:
                _check_owner(name, tensor, self.device)
        check.overlaps({name: tensors[name] for name in self.outputs},
                       {name: tensors[name] for name in self.inputs})
        if len(self.checked) >= POINTERS_KEPT:
            self.checked.clear()
        self.checked.add(tuple(addresses))


def named(names: Sequence[str], operands: Sequence[Any]) -> dict[str, Tensor | None]:
    """Return the operands as tensors by argument name."""
    return {name: None if x is None else as_tensor(x)
            for name, x in zip(names, operands, strict=True)}


def _check_owner(name: str, tensor: Tensor, device: Device) -> None:
    if tensor.desc.extent_bytes == 0:
        return
    if tensor.ptr == 0 or not device.owns(tensor.ptr):
        where = driver.pointer_device(tensor.ptr) if tensor.ptr and device.kind == "cuda" else None
        raise DeviceMismatch(f"{name} is not memory of GPU {device.index}", argument=name,
                             found=f"{tensor.ptr:#x}, " + (
                                 "host memory" if where is None else f"memory of GPU {where}"),
                             wanted=f"device memory of GPU {device.index}")


class _Calls(threading.local):
    """A thread's prepared calls: Args blocks are patched in place, so threads do not share them.

    Compiled kernels are shared.
    """

    def __init__(self) -> None:
        self.by_key: OrderedDict[Any, Call] = OrderedDict()


CALLS = _Calls()


def remember(key: Any, call: Call) -> Call:
    """Keep a call for this thread; the oldest goes when there are many."""
    calls = CALLS.by_key
    calls[key] = call
    if len(calls) > CALLS_KEPT:
        calls.popitem(last=False)
    return call


def device_for(index: int) -> Device:
    """Return the device that a call's tensors live on.

    Raises:
        DeviceMismatch: there is no such GPU.
    """
    from ..errors import EnvironmentUnusable

    try:
        return cuda_device(index)
    except EnvironmentUnusable as error:
        if driver.is_available():
            raise DeviceMismatch("there is no such GPU", argument="device_index", found=index,
                                 wanted=f"0 to {driver.device_count() - 1}") from error
        raise


def raw_stream(stream: Any) -> int:
    """Return a raw stream handle: None is the default stream; int, c_void_p, CuPy or torch."""
    if stream is None:
        return 0
    if type(stream) is int:
        return stream
    if isinstance(stream, ctypes.c_void_p):
        return stream.value or 0
    from ..runtime.arrays import raw_stream as handle_of

    return handle_of(stream)


def spec_of(tensor: Tensor, shape: tuple[int, ...] | None = None) -> TensorSpec:
    """Return a tensor's spec, viewed with another shape of the same rank or one axis more."""
    desc = tensor.desc
    strides = desc.strides
    if shape is not None and len(shape) > len(desc.shape):
        strides = (max(desc.shape[0], 1) * desc.strides[0], *strides)
    from ..contract import DTYPE_NAMES

    return TensorSpec(DTYPE_NAMES[desc.dtype], shape or desc.shape, strides, tensor.align)
