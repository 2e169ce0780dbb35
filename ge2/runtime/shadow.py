"""What the emulator knows of a call's memory, kept from one launch to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.plan import Plan, Step
from ..errors import LaunchFailed

if TYPE_CHECKING:
    from .emulate import Buffer, Memory

Written = np.ndarray[Any, np.dtype[np.bool_]]


class Shadow:
    """Which bytes of a plan's roots hold values during one call.

    A launch may touch the roots of its own step only, write those of its outputs and its workspace,
    and read what was there before the call or what a launch of the call has written.

    Args:
        plan: what is run.
        written: which bytes of prepared roots hold values.

    Attributes:
        written: of each root that launches have touched, which bytes hold values.
    """

    def __init__(self, plan: Plan, written: Mapping[int, Written] | None = None) -> None:
        self._plan = plan
        self.written: dict[int, Written] = dict(written or {})
        self._buffers: list[tuple[int, Buffer]] = []
        self._semaphores: Buffer | None = None
        self._memory: Memory | None = None

    def before(self, step: Step, bases: list[int], nbytes: tuple[int, ...],
               semaphores: tuple[int, int]) -> Memory:
        """Return the memory of a launch.

        Args:
            step: what is launched.
            bases, nbytes: address and bytes of each root.
            semaphores: address and bytes of the step's semaphores.
        """
        from .emulate import Buffer, Memory

        memory, self._buffers = Memory(), []
        for root in {ref.root for ref in (*step.buffers, step.workspace) if ref is not None}:
            kind, name = self._plan.roots[root].kind, self._plan.roots[root].name
            buffer = memory.add(Buffer(bases[root], nbytes[root], f"{kind} {name!r}",
                                       root in step.written, kind in ("input", "constant"),
                                       late=kind != "constant"))
            if root in self.written:
                memory.set_written(buffer, self.written[root])
            self._buffers.append((root, buffer))
        self._semaphores = None
        if semaphores[1]:
            self._semaphores = memory.add(Buffer(*semaphores, "semaphores"))
        self._memory = memory
        return memory

    def after(self) -> None:
        """Remember what the launch wrote.

        Raises:
            LaunchFailed: it left semaphores that are not zero for the next launch.
        """
        assert self._memory is not None
        for root, buffer in self._buffers:
            self.written[root] = self._memory.written(buffer)
        if self._semaphores is not None:
            words = self._memory.bytes_of(self._semaphores).view(np.uint32)
            if words.any():
                raise LaunchFailed("semaphores are not zero after the launch",
                                   found=f"{int(words[words != 0][0])} in word "
                                         f"{int(np.flatnonzero(words)[0])}")
