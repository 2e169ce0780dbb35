"""Two kernels on one problem, timed against each other on a GPU."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import Invalid
from ..problem import Problem
from .kernel_lookup import describe, find_kernel, fitting_problems

_RESAMPLES = 2000


class Workload:
    """One variant bound to an example problem, with random inputs on a GPU.

    Args:
        name: a variant, or a kernel (its first variant that serves an example).
        example: number of the example problem, unless a problem is given.
        problem: what to run.
    """

    def __init__(self, name: str, *, example: int = 0, device: int = 0,
                 problem: Problem | None = None) -> None:
        from .. import launch_table
        from ..runtime.device import cuda_device
        from ..runtime.problem_reference import random_inputs

        self._device = cuda_device(device)
        arch = self._device.profile.arch
        variants = [v for v in find_kernel(name)[1]
                    if problem or any(True for _ in fitting_problems(v, arch))]
        if not variants:
            raise Invalid(f"{name} serves no example problem on {arch}")
        self.variant = variants[0]
        self.problem = problem or list(fitting_problems(self.variant, arch))[example]
        records = launch_table.bind(self.problem, self.variant, self._device.profile)
        inputs = random_inputs(self.problem, 0)
        workspace = max((r.workspace for r in records), default=0)
        words = max((r.semaphores for r in records), default=0)
        with self._device.active():
            self._memory = [None if s is None else self._device.allocate(_extent(s))
                            for s in self.problem.tensors]
            self._scratch = self._device.allocate(max(workspace, 1))
            self._semaphores = self._device.allocate(4 * max(words, 1), zero=True)
            self._units = self._device.prepare(records)
            for memory, array, spec in zip(self._memory, inputs, self.problem.inputs, strict=False):
                if memory is not None and array is not None and spec is not None:
                    self._upload(memory.address, _laid_out(array, spec.strides))
        addresses = [0 if m is None else m.address for m in self._memory]
        for unit in self._units:
            unit.args.patch(addresses, self._scratch.address, self._semaphores.address)

    def launch(self, stream: int) -> None:
        """Enqueue the kernel's launches on a raw stream."""
        for unit in self._units:
            unit(stream)

    def synchronize(self) -> None:
        """Wait for what was launched on the default stream."""
        with self._device.active():
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
    two = Workload(second, device=device, problem=one.problem)
    timings = measure({"first": one.launch, "second": two.launch}, cold=False, rounds=rounds)
    a, b = timings["first"].samples, timings["second"].samples
    interval = ratio_interval(a, b)
    return Comparison(describe(one.problem), one.variant.id, two.variant.id,
                      statistics.median(a), statistics.median(b),
                      statistics.median(b) / statistics.median(a), interval,
                      verdict(interval, same_within))


def ratio_interval(first: Sequence[float], second: Sequence[float], seed: int = 0
                   ) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of median(second) / median(first)."""
    draw = random.Random(seed)
    ratios = sorted(
        statistics.median(draw.choices(second, k=len(second)))
        / statistics.median(draw.choices(first, k=len(first)))
        for _ in range(_RESAMPLES))
    return ratios[int(0.025 * _RESAMPLES)], ratios[int(0.975 * _RESAMPLES)]


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
    view = np.lib.stride_tricks.as_strided(
        flat, array.shape, tuple(s * array.itemsize for s in strides))
    view[...] = array
    return flat
