"""A GEMM call with everything decided: only addresses and the stream are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runtime import driver
from . import gemm_check as check
from .gemm_call import Call, raw_stream
from .gemm_forward import ARGUMENTS, make_forward
from .gemm_types import GemmAttrs, as_tensor


class GemmPlan:
    """One forward call, prepared: `plan(stream)`, or `plan(stream, pointers)` for other buffers.

    Belongs to the thread that made it. The tensors that it was made from stay alive with it.

    Attributes:
        launches: number of kernels.
    """

    __slots__ = ("_addresses", "_call", "_owners", "_slots", "launches")

    def __init__(self, call: Call, addresses: tuple[int, ...], owners: Sequence[Any]) -> None:
        self._call = call
        self._addresses = addresses
        self._owners = owners
        self._slots = [i for i, address in enumerate(addresses) if address]
        self.launches = call.prepared.launches

    def __call__(self, stream: Any = None, pointers: Sequence[int] | None = None) -> None:
        """Launch.

        Args:
            stream: as forward.
            pointers: addresses of A, B, Bias, C, Y, Z_out without the absent ones; each as
                aligned as the buffer that the plan was made with, and not checked.
        """
        handle = stream if type(stream) is int else raw_stream(stream)
        if pointers is not None:
            addresses = list(self._addresses)
            for slot, pointer in zip(self._slots, pointers, strict=True):
                addresses[slot] = pointer
            self._addresses = tuple(addresses)
        previous = driver.enter_device(self._call.device.index)
        self._call.prepared.run(self._addresses, handle)
        if previous is not None:
            driver.leave_device(previous)


def plan(A: Any, B: Any, Bias: Any, Y: Any, attrs: GemmAttrs, *, C: Any = None,
         Z_out: Any = None) -> GemmPlan:
    """Return a prepared forward call: kernels compiled and loaded, addresses checked.

    Raises:
        As forward.
    """
    given = [None if x is None else as_tensor(x) for x in (A, B, Bias, C, Y, Z_out)]
    for name, tensor in zip(ARGUMENTS, given, strict=True):
        if tensor is None and name in ("A", "B", "Y"):
            check.missing(name)
    a, b, bias, c, y, z = given
    assert a is not None and b is not None and y is not None
    call = make_forward(a, b, bias, y, c, z, attrs)
    addresses = tuple(0 if tensor is None else tensor.ptr for tensor in given)
    call.check(addresses, dict(zip(ARGUMENTS, given, strict=True)))
    return GemmPlan(call, addresses, given)
