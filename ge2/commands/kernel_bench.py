"""Two kernels on one problem, timed against each other on a GPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..compiler.kernels import selector
from ..compiler.kernels.metadata import Variant
from ..errors import Invalid
from ..evidence.device import profile_for
from ..problem import Problem
from ..runtime.device import Allocation, cuda_device
from .kernel_lookup import choose_example, describe, find_kernel

SESSIONS = 6
_STUDENT_T = 2.571  # 95 %, two-sided, SESSIONS - 1 degrees of freedom


class Workload:
    """One variant bound to an example problem, with random inputs on a GPU.

    Args:
        name: a variant, or a kernel (its first variant that serves an example).
        example: number of the example problem.
        twin: solve this workload's problem, in its buffers, instead.
    """

    def __init__(self, name: str, *, example: int = 0, device: int = 0,
                 twin: Workload | None = None) -> None:
        from .. import launch_table
        from ..runtime.problem_reference import random_inputs

        self._device = cuda_device(device)
        arch = self._device.profile.arch
        self.variant, self.problem = _choose(name, arch, example, twin)
        records = launch_table.bind(self.problem, self.variant, self._device.profile)
        inputs = random_inputs(self.problem, 0)
        workspace = max((r.workspace for r in records), default=0)
        words = max((r.semaphores for r in records), default=0)
        with self._device.active():
            self._memory: list[Allocation | None] = twin._memory if twin else [
                None if s is None else self._device.allocate(_extent(s))
                for s in self.problem.tensors]
            self._scratch = self._device.allocate(max(workspace, 1))
            self._semaphores = self._device.allocate(4 * max(words, 1), zero=True)
            self._units = self._device.prepare(records)
            for memory, array, spec in zip(self._memory, inputs, self.problem.inputs, strict=False):
                if not twin and memory is not None and array is not None and spec is not None:
                    self._upload(memory.address, _laid_out(array, spec.strides))
        addresses = [0 if m is None else m.address for m in self._memory]
        for unit in self._units:
            unit.args.patch(addresses, self._scratch.address, self._semaphores.address)

    def launch(self, stream: int) -> None:
        """Enqueue the kernel's launches on a raw stream."""
        for unit in self._units:
            unit(stream)

    def run(self) -> None:
        """Launch on the default stream and wait."""
        with self._device.active():
            self.launch(0)
            self._device.synchronize(0)

    def _upload(self, address: int, array: np.ndarray[Any, Any]) -> None:
        self._device.copy(address, array.ctypes.data, array.nbytes, 0)
        self._device.synchronize(0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second kernel's time over the first's."""

    problem: str
    first: str
    second: str
    first_us: float
    second_us: float
    ratio: float
    interval: tuple[float, float]
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def compare_kernels(first: str, second: str, *, example: int, device: int, rounds: int,
                    same_within: float) -> Comparison:
    """Time two kernels on the first one's example problem; see `ge2 kernels bench`."""
    from ..evidence.measure import measure

    one = Workload(first, example=example, device=device)
    two = Workload(second, device=device, twin=one)
    times: dict[str, list[float]] = {"first": [], "second": []}
    for session in range(SESSIONS):
        timings = measure({"first": one.launch, "second": two.launch}, cold=False,
                          rounds=max(rounds // SESSIONS, 2), seed=session)
        for name, values in times.items():
            values.append(timings[name].median)
    ratios = [b / a for a, b in zip(times["first"], times["second"], strict=True)]
    interval = mean_interval(ratios)
    return Comparison(describe(one.problem), one.variant.id, two.variant.id,
                      statistics.median(times["first"]), statistics.median(times["second"]),
                      statistics.fmean(ratios), interval, verdict(interval, same_within))


def mean_interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of SESSIONS values, by Student's t.

    One value per session: samples within one share clock and placement, so that an interval over
    them would be too narrow.
    """
    middle = statistics.fmean(ratios)
    reach = _STUDENT_T * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return middle - reach, middle + reach


def verdict(interval: tuple[float, float], same_within: float) -> str:
    """Return FAST, SLOW, SAME or UNDECIDED for an interval of second / first."""
    low, high = interval
    if low >= 1 - same_within and high <= 1 + same_within:
        return "SAME"
    if high < 1:
        return "FAST"
    if low > 1:
        return "SLOW"
    return "UNDECIDED"


def _choose(name: str, arch: str, example: int, twin: Workload | None
            ) -> tuple[Variant, Problem]:
    if twin is None:
        return choose_example(find_kernel(name)[1], arch, example)
    ranked = selector.select(twin.problem, profile_for(arch), kernels=[find_kernel(name)[0]])
    allowed = {v.id: v for v in find_kernel(name)[1]}
    for report in ranked.reports:
        if report.variant_id in allowed and not report.reasons:
            return allowed[report.variant_id], twin.problem
    raise Invalid(f"{name} does not serve {describe(twin.problem)}")


def _extent(spec: Any) -> int:
    """Return the bytes from a tensor's first element to its last."""
    from ..contract import DTYPES

    return max(int(spec.max_offset + 1) * DTYPES[spec.dtype].itemsize, 16)


def _laid_out(array: np.ndarray[Any, Any], strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a flat array that holds the elements at the given strides."""
    if any(s < 0 for s in strides):
        raise Invalid("an example with negative strides cannot be timed")
    last = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    flat = np.zeros(1 + max(last, 0), array.dtype)
    bits = f"u{array.itemsize}"  # NumPy has no strided views of some of ml_dtypes' types
    view = np.lib.stride_tricks.as_strided(
        flat.view(bits), array.shape, tuple(s * array.itemsize for s in strides))
    view[...] = array.view(bits)
    return flat
