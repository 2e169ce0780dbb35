"""The launch table: kernel name -> launcher, capability scores, binding, last error.

`ge2_launch_<name>(bufs, n, stream) -> int` is an attribute of this module for every registered
kernel. Registry name == launch-table key. Nothing here knows of graphs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .compiler.kernels import registry
from .contract import Status, status_of
from .errors import Ge2Error, Unsupported, near_matches
from .evidence.device import DeviceProfile
from .launch.check import check_problem
from .launch.params import decode_params, encode_params
from .launch.prepare import place
from .launch.record import LaunchRecord
from .launch.rule import LAUNCH_RULES, PreparingRule
from .problem import Problem

if TYPE_CHECKING:
    from .compiler.kernels.metadata import Variant
    from .runtime.device import Device

Launcher = Callable[[Sequence[int], int, int], int]

PREFIX = "ge2_launch_"
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS = 1024

_thread = threading.local()


@dataclass(frozen=True, slots=True)
class LastError:
    """Why the calling thread's last launcher call failed.

    Attributes:
        status: what the launcher returned.
        message: the whole sentence.
        argument, found, wanted: what was wrong, what was given, what would do.
    """

    status: Status
    message: str
    argument: str
    found: object
    wanted: object


def last_error() -> LastError | None:
    """Return why this thread's last launcher call failed; None after a success."""
    error: Ge2Error | None = getattr(_thread, "error", None)
    if error is None:
        return None
    return LastError(status_of(error), str(error), error.argument, error.found, error.wanted)


def record_error(error: Ge2Error | None) -> None:
    """Set what last_error() tells; for launchers."""
    _thread.error = error


def raise_for_status(status: int) -> None:
    """Raise the exception behind a launcher's status; nothing for 0.

    Raises:
        Ge2Error: the subclass that the status maps to.
    """
    if status == Status.OK:
        return
    error: Ge2Error | None = getattr(_thread, "error", None)
    if error is None:
        from .contract import STATUS_EXCEPTIONS

        raise STATUS_EXCEPTIONS[Status(status)]("a launcher failed in another thread")
    raise error


# -- capability -----------------------------------------------------------------------------------


def query_capability(key: str, device: DeviceProfile | None = None) -> int:
    """Return the score of "<OPTYPE>__<KERNEL_NAME>"; 0 for what the device cannot run.

    Args:
        key: operator type and kernel name.
        device: the device in question; None means the current GPU, or on a machine without one
            the declared score, since the emulator runs every kernel.
    """
    op_type, _, name = key.partition("__")
    try:
        kernel = registry.get(name)
    except Ge2Error:
        return 0
    if kernel.op_type != op_type:
        return 0
    profile = device or _current_profile()
    if profile is not None and not kernel.runs_on(profile.arch):
        return 0
    return registry.capability(kernel)


def set_capability(key: str, score: int) -> None:
    """Change a score for this process; the kernel's metadata holds the lasting one.

    Raises:
        KernelSpecError: the key names no registered kernel.
    """
    registry.set_capability(key, score)


def _current_profile() -> DeviceProfile | None:
    from .runtime import driver

    if not driver.is_available():
        return None
    from .runtime.device import default_index, probe

    return probe(driver.current_device() or default_index())


# -- binding --------------------------------------------------------------------------------------


def bind(problem: Problem, variant: Variant, device: DeviceProfile, *,
         constant: Collection[int] = (), prepare: bool = False) -> list[LaunchRecord]:
    """Return the launches that solve a problem with a kernel variant; [] for empty outputs.

    Args:
        problem, variant, device: what to compute, how and where.
        constant: slots of inputs that no launch before these writes, such as a model's weights: a
            kernel may fetch them while the launch before it still runs.
        prepare: leave launches that write another form of the problem's constant inputs to the
            caller, to run once. They say so (LaunchRecord.prepares) and take two buffers, the input
            and its other form; the first of these is the buffer behind the outputs to all other
            launches, and so on. Else all launches are of every call, and such forms lie in the
            workspace.

    Raises:
        MissingInput, ShapeMismatch, StrideMismatch, DtypeMismatch: the problem is not well formed.
        Unsupported: the launch exceeds what the device takes.
    """
    check_problem(problem)
    if all(output.size == 0 for output in problem.outputs):
        return []
    records = LAUNCH_RULES[variant.kernel.launch].bind(problem, variant, device)
    for record in records:
        _check_limits(record, variant, device)
    records = place(records, problem.constant if prepare else (), len(problem.tensors))
    return [_overlapped(record, constant, device) for record in records if all(record.grid)]


def preparable(problem: Problem, slot: int, device: DeviceProfile) -> bool:
    """Whether a kernel for a problem writes another form of an input, in a launch of its own."""
    rules = _preparing_rules(problem.op_type, device.arch, registry.generation())
    return any(rule.prepares(problem, slot) for rule in rules)


@lru_cache(maxsize=256)
def _preparing_rules(op_type: str, arch: str, _generation: int) -> tuple[PreparingRule, ...]:
    names = dict.fromkeys(kernel.launch for kernel in registry.kernels_for(op_type)
                          if "workspace" in kernel.flags and kernel.runs_on(arch))
    rules = map(LAUNCH_RULES.__getitem__, names)
    return tuple(rule for rule in rules if isinstance(rule, PreparingRule))


def _overlapped(record: LaunchRecord, constant: Collection[int],
                device: DeviceProfile) -> LaunchRecord:
    """Return the record without pdl where the device has none, or where the kernel reads early what
    may still be written."""
    if record.pdl and not (device.caps.get("pdl", False) and set(record.early) <= set(constant)):
        return replace(record, pdl=False)
    return record


def _check_limits(record: LaunchRecord, variant: Variant, device: DeviceProfile) -> None:
    threads = record.block[0] * record.block[1] * record.block[2]
    if not 0 < threads <= MAX_THREADS:
        raise Unsupported(f"{variant.id} asks for a bad block", argument="block",
                          found=record.block, wanted=f"at most {MAX_THREADS} threads")
    if any(extent > limit for extent, limit in zip(record.grid, MAX_GRID, strict=True)):
        raise Unsupported(f"{variant.id} needs a larger grid than there is", argument="grid",
                          found=record.grid, wanted=f"at most {MAX_GRID}")
    if record.smem > device.smem_per_block:
        raise Unsupported(f"{variant.id} needs more shared memory than {device.name} has",
                          argument="smem", found=record.smem,
                          wanted=f"at most {device.smem_per_block}")


# -- launchers ------------------------------------------------------------------------------------


def launcher(name: str, device: Device | None = None) -> Launcher:
    """Return ge2_launch_<name>.

    The launcher takes (bufs, n, stream): n integers (device addresses of inputs and outputs, then
    the host address of the params block) and a raw cudaStream_t (0 = default). It returns 0 or a
    negative Status and never raises; last_error() tells more. It launches on the calling thread's
    current device, GE2_DEVICE where there is none.

    Args:
        name: registry name of the kernel.
        device: where to launch instead (an EmulatedDevice takes host addresses).

    Raises:
        Unsupported: no such kernel.
    """
    from .runtime.launcher import PlainLauncher

    return PlainLauncher(registry.get(name), device)


def names() -> list[str]:
    """Return the keys of the table."""
    return [kernel.name for kernel in registry.all_kernels()]


_launchers: dict[tuple[str, Any], Launcher] = {}


def __getattr__(attribute: str) -> Launcher:
    name = attribute.removeprefix(PREFIX)
    if name == attribute:
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    try:
        kernel = registry.get(name)
    except Ge2Error:
        near = near_matches(name, names())
        raise AttributeError(f"no kernel {name!r} in the launch table; {near}") from None
    key = (name, kernel)
    if key not in _launchers:
        _launchers[key] = launcher(name)
    return _launchers[key]


__all__ = ["LastError", "bind", "decode_params", "encode_params", "last_error",
           "launcher", "names", "preparable", "query_capability", "raise_for_status",
           "record_error", "set_capability"]
