"""Runs a kernel variant on a problem with NumPy arrays in and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import launch_table
from ...compiler.kernels import source as sources_of
from ...contract import DTYPES, numpy_dtype
from ...errors import NoKernelError, ShapeMismatch
from ...evidence.device import PROFILES, DeviceProfile, profile_for
from ...launch.record import SEMAPHORES, WORKSPACE, LaunchRecord
from ...problem import Problem, TensorSpec
from .launcher import DEFAULT_STEP_LIMIT, fill_args, launch
from .memory import Buffer, Memory
from .report import EmulationError, Finding, Report

if TYPE_CHECKING:
    from ...compiler.kernels.metadata import KernelInfo, Variant

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in emulated memory: its buffer and the address of element 0."""

    spec: TensorSpec
    buffer: Buffer
    address: int


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes to a kernel before it is built: what a mutation test makes.

    Attributes:
        text: rendered source -> source.
        record: launch record -> launch record.
        includes: folders searched for <ge2/...> instead of the usual ones.
    """

    text: Callable[[str], str] = str
    record: Callable[[LaunchRecord], LaunchRecord] = lambda record: record
    includes: tuple[Path, ...] = ()


def run_problem(kernel: Variant | str, problem: Problem, arrays: Sequence[Array | None], *,
                device: DeviceProfile | None = None, bank_conflicts: bool = False,
                step_limit: int = DEFAULT_STEP_LIMIT, seed: int = 0,
                reports: list[Report] | None = None, edit: Edit | None = None) -> list[Array]:
    """Run every launch record of a bound problem and return the outputs.

    Args:
        kernel: a variant, a variant id, or a kernel name (its first variant that the guards let
            through).
        problem: operator, specs and attributes; strides and alignment are laid out as it says.
        arrays: one per input, of the spec's shape; None where the problem has None.
        device: profile to bind for; default that of the first architecture the kernel supports
            (sm_90a where it does).
        bank_conflicts, step_limit, seed: see launch().
        reports: filled with one Report per launch.
        edit: changes to make before the kernel is built, to see whether they are caught.

    Raises:
        EmulationError: a detector saw a fault, an output element was not written, or semaphores
            were left non-zero.
        NoKernelError: no such kernel, or no variant serves the problem.
    """
    variant, profile = _resolve(kernel, problem, device)
    # As in a model whose weights are constant: what a launch reads early is, all else may have been
    # written by the launch before.
    records = launch_table.bind(problem, variant, profile, constant=range(len(problem.inputs)))
    edit = edit or Edit()
    records = [edit.record(record) for record in records]
    early = {slot for record in records for slot in record.early}
    memory = Memory()
    tensors = [_input(memory, i, spec, array, late=i not in early) for i, (spec, array)
               in enumerate(zip(problem.inputs, arrays, strict=True))]
    outputs = [_output(memory, i, spec) for i, spec in enumerate(problem.outputs)]
    workspace = memory.allocate(max((r.workspace for r in records), default=0), "workspace")
    words = max((r.semaphores for r in records), default=0)
    semaphores = memory.allocate(4 * words, "semaphores", initialised=True)
    memory.bytes_of(semaphores)[:] = 0
    slots: dict[int, int] = {WORKSPACE: workspace.address, SEMAPHORES: semaphores.address}
    slots |= {i: t.address if t else 0 for i, t in enumerate((*tensors, *outputs))}
    for record in records:
        report = launch(record, fill_args(record, slots.__getitem__), memory=memory,
                        source=edit.text(sources_of.render(record.kernel)), arch=profile.arch,
                        includes=edit.includes, bank_conflicts=bank_conflicts,
                        step_limit=step_limit, seed=seed)
        if reports is not None:
            reports.append(report)
    _check_semaphores(memory, semaphores, variant.kernel.name)
    return [_result(memory, t, i, variant.kernel.name) for i, t in enumerate(outputs)]


def _resolve(kernel: Variant | str, problem: Problem,
             device: DeviceProfile | None) -> tuple[Variant, DeviceProfile]:
    from ...compiler.kernels import registry, selector

    if not isinstance(kernel, str):
        return kernel, device or emulated_profile(kernel.kernel)
    info = registry.get(kernel.partition("[")[0].rpartition("/")[2])
    profile = device or emulated_profile(info)
    reports = selector.rank(problem, profile, kernels=[info])
    for report in reports:
        if report.score is not None and (report.variant_id == kernel or "[" not in kernel):
            return registry.variant(report.variant_id), profile
    refused = "; ".join(f"{r.variant_id}: {', '.join(r.reasons)}" for r in reports[:4])
    raise NoKernelError(f"no variant of {kernel} serves the problem ({refused})")


def emulated_profile(kernel: KernelInfo) -> DeviceProfile:
    """Return the profile that a kernel is emulated for: sm_90a, else the first that runs it."""
    archs = [arch for arch in ("sm_90a", *PROFILES) if kernel.runs_on(arch)]
    return profile_for(archs[0] if archs else "sm_90a")


def reach(spec: TensorSpec) -> tuple[int, int]:
    """Return the lowest and one past the highest element offset that an index reaches."""
    if spec.size == 0:
        return 0, 0
    steps = [(extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + 1


def _allocate(memory: Memory, spec: TensorSpec, name: str, *, writable: bool = False,
              late: bool = False) -> Tensor:
    low, high = reach(spec)
    itemsize = DTYPES[spec.dtype].itemsize
    # Element 0, not the lowest one, has the promised alignment and no better one.
    align = max(spec.align, itemsize)
    offset = (align if align < 16 else 0) + (low * itemsize) % 16
    buffer = memory.allocate((high - low) * itemsize, name, writable=writable, late=late,
                             offset=offset % 16)
    return Tensor(spec, buffer, buffer.address - low * itemsize)


def _view(memory: Memory, tensor: Tensor, raw: Array) -> Array:
    """Return raw bytes of the tensor's buffer (one per byte) as a strided array of elements."""
    dtype = numpy_dtype(tensor.spec.dtype)
    first = (tensor.address - tensor.buffer.address) // dtype.itemsize
    strides = tuple(s * dtype.itemsize for s in tensor.spec.strides)
    # As plain bits: NumPy has no strided views of some of ml_dtypes' types.
    flat = raw.view(f"u{dtype.itemsize}")[first:]
    return np.lib.stride_tricks.as_strided(flat, tensor.spec.shape, strides).view(dtype)


def _touched(tensor: Tensor) -> Array:
    """Return, for each byte of the buffer, whether the tensor's elements cover it."""
    itemsize = DTYPES[tensor.spec.dtype].itemsize
    low, high = reach(tensor.spec)
    offsets = np.zeros(tensor.spec.shape, np.int64)
    for axis, (extent, stride) in enumerate(
            zip(tensor.spec.shape, tensor.spec.strides, strict=True)):
        steps = np.arange(extent, dtype=np.int64) * stride
        offsets = offsets + steps.reshape([-1 if a == axis else 1 for a in
                                           range(len(tensor.spec.shape))])
    covered = np.zeros(high - low, bool)
    covered[(offsets - low).ravel()] = True
    return np.repeat(covered, itemsize)


def _input(memory: Memory, index: int, spec: TensorSpec | None, array: Array | None, *,
           late: bool) -> Tensor | None:
    if spec is None:
        return None
    if array is None or array.shape != spec.shape:
        raise ShapeMismatch(f"input {index} has the wrong shape", argument=f"input {index}",
                            found=None if array is None else array.shape, wanted=spec.shape)
    tensor = _allocate(memory, spec, f"input {index}", late=late)
    if spec.size:
        _view(memory, tensor, memory.bytes_of(tensor.buffer))[...] = array
        memory.set_written(tensor.buffer, _touched(tensor))
    return tensor


def _output(memory: Memory, index: int, spec: TensorSpec) -> Tensor:
    return _allocate(memory, spec, f"output {index}", writable=True)


def _result(memory: Memory, tensor: Tensor, index: int, kernel: str) -> Array:
    if tensor.spec.size == 0:
        return np.zeros(tensor.spec.shape, numpy_dtype(tensor.spec.dtype))
    missing = _touched(tensor) & ~memory.written(tensor.buffer)
    if missing.any():
        first = int(np.argmax(missing))
        raise EmulationError(Report(kernel, (Finding(
            "output not written", f"{int(missing.sum())} bytes of output {index} were never "
            f"written, the first at byte {first}", kernel,
            address=tensor.buffer.address + first),)))
    return _view(memory, tensor, memory.bytes_of(tensor.buffer)).copy()


def _check_semaphores(memory: Memory, semaphores: Buffer, kernel: str) -> None:
    words = memory.bytes_of(semaphores).view(np.uint32)
    if words.any():
        first = int(np.argmax(words != 0))
        raise EmulationError(Report(kernel, (Finding(
            "semaphores left non-zero", f"{int(np.count_nonzero(words))} of {words.size} words; "
            f"word {first} is {int(words[first])}", kernel,
            address=semaphores.address + 4 * first),)))
