"""A GEMM call with everything decided: only addresses and the stream are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import Invalid
from ..runtime import driver
from .gemm_call import Call, named, raw_stream
from .gemm_forward import ARGUMENTS, make_forward
from .gemm_types import GemmAttrs
from .operands import operand


class GemmPlan:
    """One forward call, prepared: `plan(stream)`, or `plan(stream, pointers)` for other buffers.

    Belongs to the thread that made it. The arrays that it was made from stay alive with it.

    Attributes:
        launches: number of kernels.
    """

    __slots__ = ("_index", "_move", "_owners", "_pointers", "_prepared", "launches")

    def __init__(self, call: Call, addresses: list[int], owners: Sequence[Any]) -> None:
        self._index = call.device.index
        self._owners = owners
        self._prepared = call.prepared
        slots = [slot for slot, address in enumerate(addresses) if address]
        self._pointers = len(slots)
        self._prepared.move(range(len(addresses)), addresses)
        self._move = self._prepared.mover(slots)
        self.launches = call.prepared.launches

    def __call__(self, stream: Any = 0, pointers: Sequence[int] | None = None) -> None:
        """Launch.

        Args:
            stream: as forward.
            pointers: addresses of A, B, Bias, C, Y, Z_out without the absent ones; each as
                aligned as the buffer that the plan was made with, and not checked.
        """
        if type(stream) is not int:
            stream = raw_stream(stream)
        if pointers is not None:
            if len(pointers) != self._pointers:
                raise Invalid("wrong number of pointers", argument="pointers",
                              found=len(pointers), wanted=self._pointers)
            self._move(pointers)
        previous = driver.settle(self._index)
        self._prepared.launch(stream)
        if previous is not None:
            driver.leave_device(previous)


def plan(A: Any, B: Any, Bias: Any, Y: Any, attrs: GemmAttrs, *, C: Any = None,
         Z_out: Any = None) -> GemmPlan:
    """Return a prepared forward call: kernels compiled and loaded, addresses checked.

    Raises:
        As forward.
    """
    operands = (A, B, Bias, C, Y, Z_out)
    call = make_forward(named(ARGUMENTS, operands), attrs)
    addresses = [operand(x)[1] for x in operands]
    call.check(addresses, operands)
    return GemmPlan(call, addresses, operands)
