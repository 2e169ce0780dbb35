"""Plain launchers: `ge2_launch_<name>(bufs, n, stream) -> int`.

A call looks up the params block's bytes and the alignment class of the addresses; on a hit the
addresses are patched into ready launches. All of a thread's launches are its own, so that two
threads never share an Args block.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import launch_table
from ..compiler.kernels import registry, selector
from ..compiler.kernels.metadata import KernelInfo, Variant
from ..compiler.opdefs.gemm_epilogue import epilogue_of
from ..contract import TRAILER_DTYPE, Status, status_of
from ..errors import (
    DeviceMismatch,
    DtypeMismatch,
    Ge2Error,
    Invalid,
    LaunchFailed,
    LayoutMismatch,
    NoKernelError,
    StrideMismatch,
    Unsupported,
)
from ..launch.check import check_pointers, check_problem
from ..launch.params import HEADER_BYTES, check_header, decode_params
from ..launch.record import LaunchRecord
from ..launch.schemas import kernel_op
from ..problem import Problem
from . import driver
from .device import Device, Unit, cuda_device, default_index
from .memory import SCRATCH

logger = logging.getLogger(__name__)

CALLS_KEPT = 1024
POINTERS_KEPT = 4096
_TRAILER = struct.Struct("<QQQ")
_HEADER = struct.Struct("<4I")
_NO_SCRATCH = bytes(TRAILER_DTYPE.itemsize)


@dataclass(slots=True)
class _Call:
    """A params block bound on one device for one alignment class."""

    units: list[Unit]
    workspace: int
    semaphores: int
    problem: Problem
    used: tuple[bool, ...]
    slots: tuple[int, ...] | None
    known: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _ThreadState:
    """What one thread keeps of a launcher.

    Attributes:
        calls: bound calls by block bytes, alignment, device and registry generation.
        views: address -> (header there, its bytes when checked, whole block there).
    """

    calls: OrderedDict[Any, _Call] = field(default_factory=OrderedDict)
    views: dict[int, tuple[memoryview, bytes, memoryview]] = field(default_factory=dict)

    def read(self, address: int, op_type: str, n_buffers: int) -> bytes:
        """Return the params block at an address.

        Views of addresses seen before save the ctypes call; the header is compared each time, so
        that no more is read than the block that is there now says it has.

        Raises:
            Invalid, ApiVersionMismatch: there is no block of the operator for n_buffers buffers.
        """
        known = self.views.get(address)
        if known is not None and known[0].tobytes() == known[1]:
            counts = _HEADER.unpack(known[1])
            if counts[2] + counts[3] == n_buffers:
                return known[2].tobytes()
        layout, _, _ = check_header(address, op_type, n_buffers)
        if len(self.views) >= POINTERS_KEPT:
            self.views.clear()
        header = memoryview((ctypes.c_char * HEADER_BYTES).from_address(address)).cast("B")
        body = memoryview((ctypes.c_char * layout.itemsize).from_address(address)).cast("B")
        self.views[address] = (header, header.tobytes(), body)
        return body.tobytes()


class PlainLauncher:
    """The launcher of one kernel; see launch_table.launcher."""

    def __init__(self, kernel: KernelInfo, device: Device | None = None) -> None:
        self.kernel = kernel
        self.__name__ = f"{launch_table.PREFIX}{kernel.name}"
        self._device = device
        self._thread = threading.local()

    def __call__(self, bufs: Sequence[int], n: int, stream: int = 0) -> int:
        """Launch; return 0 or a negative status, never raise."""
        try:
            self._launch(bufs, n, stream)
        except Ge2Error as error:
            launch_table.record_error(error)
            return int(status_of(error))
        except MemoryError as error:
            return _unexpected(error, Status.OUT_OF_MEMORY)
        except Exception as error:  # the contract: a bad call is a status, whatever it trips over
            logger.debug("unexpected failure in %s", self.__name__, exc_info=True)
            return _unexpected(error, Status.INVALID)
        launch_table.record_error(None)
        return 0

    def _launch(self, bufs: Sequence[int], n: int, stream: int) -> None:
        if len(bufs) != n or n < 2:
            raise Invalid("n does not count the buffers", argument="n", found=n,
                          wanted=f"{len(bufs)}: inputs, outputs and the params block")
        device = self._device
        inside = False  # a device given by the caller is made current for the launch
        if device is None:
            device, inside = _current_device()
        state = self._state()
        address = bufs[-1]
        block = state.read(address, self.kernel.op_type, n - 1)
        aligns = _aligns(bufs, n)
        key = (block[:-_TRAILER.size], aligns, device.index, registry.generation())
        calls = state.calls
        call = calls.get(key)
        if call is None:
            with device.active():
                call = self._bind(address, n, aligns, device)
            calls[key] = call
            if len(calls) > CALLS_KEPT:
                calls.popitem(last=False)
        elif len(calls) > CALLS_KEPT // 2:
            calls.move_to_end(key)
        if call.slots is not None:
            bufs = [bufs[slot] if slot >= 0 else 0 for slot in call.slots]
        _check_owner(call, bufs, device)
        if call.units:
            _run(call, bufs, block[-_TRAILER.size:], stream, device, inside)

    def _state(self) -> _ThreadState:
        state: _ThreadState | None = getattr(self._thread, "state", None)
        if state is None:
            state = self._thread.state = _ThreadState()
        return state

    def _bind(self, address: int, n: int, aligns: Sequence[int], device: Device) -> _Call:
        problem, _ = decode_params(address, self.kernel.op_type, n - 1, aligns)
        check_problem(problem)
        problem, slots = _padded(problem)
        problem = _complete(problem)
        variant = _choose(problem, self.kernel, device)
        records = launch_table.bind(problem, variant, device.profile)
        used = tuple(spec is not None and spec.size > 0 for spec in problem.tensors)
        return _Call(device.prepare(records) if records else [],
                     max((r.workspace for r in records), default=0),
                     _semaphore_words(records), problem, used, slots)


def _padded(problem: Problem) -> tuple[Problem, tuple[int, ...] | None]:
    """Return the problem with optional inputs that the call leaves out at the end as absent.

    Also the buffer of each slot (-1 for an absent one), or None where buffers and slots agree.
    """
    op = kernel_op(problem.op_type)
    have = len(problem.inputs)
    missing = sum(not name.endswith("*") for name in op.inputs) - have
    if missing <= 0:
        return problem, None
    slots = (*range(have), *(-1,) * missing, *range(have, have + len(problem.outputs)))
    return replace(problem, inputs=problem.inputs + (None,) * missing), slots


def _complete(problem: Problem) -> Problem:
    """Return the problem with the epilogue that its alpha, beta and act stand for."""
    attrs = problem.attr_map
    if problem.op_type != "GEMM_BIAS_ACT" or attrs["epilogue"] is not None:
        return problem
    dtypes = [None if spec is None else spec.dtype for spec in problem.inputs[2:4]]
    epilogue = epilogue_of(problem.outputs[0].dtype, dtypes, attrs)
    return replace(problem, attrs=tuple(sorted({**attrs, "epilogue": epilogue}.items())))


# The first word of a guard's reason -> what a launcher makes of it; the rest is UNSUPPORTED.
_GUARD_ERRORS: dict[str, type[Ge2Error]] = {
    "dtype": DtypeMismatch,
    "layout": LayoutMismatch,
    "contiguous": StrideMismatch,
    "inner_contiguous": StrideMismatch,
    "align": StrideMismatch,
}


def _choose(problem: Problem, kernel: KernelInfo, device: Device) -> Variant:
    """Return the kernel's best variant.

    Raises:
        DtypeMismatch, LayoutMismatch, StrideMismatch, Unsupported: what the guards refuse.
    """
    try:
        return selector.select(problem, device.profile, kernels=[kernel]).variant
    except NoKernelError as error:
        reports = selector.rank(problem, device.profile, kernels=[kernel])
        reasons = min((report.reasons for report in reports), key=len, default=("no variant",))
        guard, _, detail = reasons[0].partition(": ")
        kind = _GUARD_ERRORS.get(guard, Unsupported)
        raise kind(f"{kernel.name} does not take this problem: {reasons[0]}", argument=guard,
                   found=detail or None) from error


def _semaphore_words(records: Sequence[LaunchRecord]) -> int:
    """Return the semaphore words of one bind: its records share them."""
    return max((record.semaphores for record in records), default=0)


def _aligns(bufs: Sequence[int], n: int) -> tuple[int, ...]:
    """Return the largest power of two up to 16 that divides each address."""
    joined = 0
    for address in bufs[:n - 1]:
        joined |= address
    if not joined & 15:
        return (16,) * (n - 1)
    return tuple(min(16, address & -address) if address else 16 for address in bufs[:n - 1])


_by_context: dict[int, Device] = {}


def _current_device() -> tuple[Device, bool]:
    """Return the thread's current device and whether its primary context is the current one."""
    context = driver.current_context()
    device = _by_context.get(context)
    if device is not None:
        return device, True
    index = driver.current_device()
    device = cuda_device(default_index() if index is None else index)
    inside = context == int(driver.primary_context(device.index))
    if inside:
        _by_context[context] = device
    return device, inside


def _check_owner(call: _Call, bufs: Sequence[int], device: Device) -> None:
    known = call.known
    for slot, used in enumerate(call.used):
        address = bufs[slot]
        if not used or address in known:
            continue
        check_pointers(call.problem, bufs[:len(call.used)])
        if not device.owns(address):
            raise DeviceMismatch(f"buffer {slot} is not memory of GPU {device.index}",
                                 argument=f"bufs[{slot}]", found=hex(address),
                                 wanted=f"device memory of {device.profile.name}")
        if len(known) >= POINTERS_KEPT:
            known.clear()
        known.add(address)


def _run(call: _Call, bufs: Sequence[int], trailer: bytes, stream: int, device: Device,
         inside: bool) -> None:
    if not inside:
        with device.active():
            _run(call, bufs, trailer, stream, device, True)
        return
    workspace, semaphores = 0, 0
    if call.workspace or call.semaphores:
        workspace, semaphores = _scratch(call, trailer, stream, device)
    try:
        for unit in call.units:
            unit.args.patch(bufs, workspace, semaphores)
            unit(stream)
    except LaunchFailed:
        SCRATCH.forget(device, stream)
        raise


def _scratch(call: _Call, trailer: bytes, stream: int, device: Device) -> tuple[int, int]:
    """Return workspace and semaphore addresses: the caller's where given, else ge2's."""
    workspace, size, semaphores = (0, 0, 0) if trailer == _NO_SCRATCH else _TRAILER.unpack(trailer)
    if workspace and size < call.workspace:
        raise Invalid("the workspace is too small", argument="workspace_size", found=size,
                      wanted=call.workspace)
    own_workspace, own_semaphores = SCRATCH.get(
        device, stream, 0 if workspace else call.workspace, 0 if semaphores else call.semaphores)
    return workspace or own_workspace, semaphores or own_semaphores


def _unexpected(error: Exception, status: Status) -> int:
    from ..contract import STATUS_EXCEPTIONS

    wrapped = STATUS_EXCEPTIONS[status](f"bad call: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    launch_table.record_error(wrapped)
    return int(status)
