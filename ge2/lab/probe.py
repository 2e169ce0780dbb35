"""The device probe: how a GPU answers, as one JSON document.

Every number comes from evidence/measure.py. The document's summary is what the cost model reads
instead of a data sheet; its sections are the response curves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from .. import __version__
from ..evidence.keys import device_key
from ..evidence.measure import Candidate, Timer, Timing, measure
from ..evidence.versions import clocks, driver_version
from ..runtime.device import Allocation, Device, Unit
from .probe_cases import SOURCE, Case, Sizes, cases

SCHEMA = 1
ROUNDS = 9
SAMPLE_US = 600.0
WARM_UP_US = 20_000.0
_BLOCK = 64 << 20
_LINE_WORDS = 32  # of 128 bytes: what one miss fetches


def probe(device: Device, *, sizes: Sizes | None = None, timer: Timer | None = None,
          rounds: int = ROUNDS, progress: Callable[[str], None] = lambda _: None
          ) -> dict[str, Any]:
    """Measure a device and return the document.

    Args:
        device: the GPU; the emulator with a timer in tests.
        sizes: how much each launch does.
        timer: stands in for the GPU's events.
        rounds: samples per point.
        progress: told the name of each curve.

    Raises:
        Ge2Error: a kernel does not compile or launch.
    """
    sizes = sizes or Sizes()
    started = time.monotonic()
    points = list(cases(device.profile, sizes))
    with device.active():
        _prepare_all(device, points)
        buffers = _Buffers(device, sizes)
        sections: dict[str, list[dict[str, Any]]] = {}
        for section, group in groupby(points, key=lambda c: c.section):
            progress(section)
            found = _measure(device, buffers, list(group), timer, rounds)
            sections.setdefault(section, []).extend(found)
    now = clocks(device.index)
    return {
        "ge2_probe": SCHEMA, "device": device_key(device.profile), "name": device.profile.name,
        "arch": device.profile.arch, "sm_count": device.profile.sm_count,
        "l2_bytes": device.profile.l2_bytes, "smem_per_sm": device.profile.smem_per_sm,
        "driver": driver_version(), "ge2": __version__, "sm_mhz": now.sm_mhz,
        "mem_mhz": now.mem_mhz, "throttle": now.throttle, "date": time.time(),
        "seconds": round(time.monotonic() - started, 2), "summary": summary(sections),
        "sections": sections,
    }


def _prepare_all(device: Device, points: Sequence[Case]) -> None:
    """Compile every kernel in one go: workers then share the work."""
    device.prepare([case.record for case in points])


class _Buffers:
    """Source and target of the walks, and chains of addresses for the latency."""

    def __init__(self, device: Device, sizes: Sizes) -> None:
        self._device = device
        self._memory = [device.allocate(sizes.large), device.allocate(sizes.large)]
        self._chains: dict[int, Allocation] = {}
        # Random bits whose AND is never all ones: the kernels' condition for keeping reads.
        block = np.random.default_rng(0).integers(0, 1 << 31, min(_BLOCK, sizes.large) // 4,
                                                  dtype=np.uint32)
        for start in range(0, sizes.large, block.nbytes):
            size = min(block.nbytes, sizes.large - start)
            device.copy(self._memory[SOURCE].address + start, block.ctypes.data, size, 0)
        device.synchronize(0)

    def addresses(self, case: Case) -> list[int]:
        """Return the addresses of the case's slots."""
        found = [memory.address for memory in self._memory]
        if case.chain:
            found[SOURCE] = self._chain(case.chain).address
        return found

    def _chain(self, nbytes: int) -> Allocation:
        if nbytes not in self._chains:
            words = chain(nbytes // 4 // _LINE_WORDS)
            memory = self._device.allocate(words.nbytes)
            self._device.copy(memory.address, words.ctypes.data, words.nbytes, 0)
            self._device.synchronize(0)
            self._chains[nbytes] = memory
        return self._chains[nbytes]


def chain(lines: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return words of which the first of each line holds the place of the next: one random cycle.
    """
    order = np.random.default_rng(1).permutation(lines).astype(np.uint32)
    start = int(np.argmax(order == 0))
    order = np.roll(order, -start)
    words = np.zeros((lines, _LINE_WORDS), np.uint32)
    words[order, 0] = np.roll(order, -1) * _LINE_WORDS
    return words.reshape(-1)


def _measure(device: Device, buffers: _Buffers, group: Sequence[Case], timer: Timer | None,
             rounds: int) -> list[dict[str, Any]]:
    units = dict(zip([c.name for c in group], device.prepare([c.record for c in group]),
                     strict=True))
    for case in group:
        units[case.name].args.patch(buffers.addresses(case))
    candidates = {c.name: Candidate([_call(units[c.name])], capture=c.capture) for c in group}
    found = measure(candidates, cold=False, rounds=rounds, timer=timer,
                    warm_up_us=WARM_UP_US if timer is None else 0.0, sample_us=SAMPLE_US)
    return [_point(case, found[case.name]) for case in group]


def _call(unit: Unit) -> Callable[[int], object]:
    return unit


def _point(case: Case, timing: Timing) -> dict[str, Any]:
    return {**dict(case.params), "time_us": round(timing.median, 4),
            "spread": round(timing.spread, 4), "value": _rounded(case.value(timing.median)),
            "value_unit": case.unit}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def summary(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Return the figures that stand for a device: the best of each curve, latencies, costs."""
    def best(section: str, pick: Callable[..., float] = max, **where: object) -> float:
        values = [p["value"] for p in sections.get(section, ())
                  if all(p.get(k) == v for k, v in where.items())]
        return float(pick(values)) if values else 0.0

    def rate(dtype: str, *units: str) -> float:
        return max(best("rate", dtype=dtype, unit=unit) for unit in units)

    largest = max((p["bytes"] for p in sections.get("size", ())), default=0)
    return {
        **{f"{mode}_gbps": best("size", mode=mode, bytes=largest)
           for mode in ("copy", "read", "write")},
        "l2_read_gbps": best("l2"),
        **{f"{level.lower()}_latency_ns": best("latency", min, level=level)
           for level in ("L1", "L2", "memory")},
        "shared_gbps": best("shared"),
        **{f"{dtype}_tflops": rate(dtype, "fma") for dtype in ("f32", "f64", "i32")},
        **{f"tensor_{dtype}_tflops": rate(dtype, "mma", "wgmma")
           for dtype in ("f16", "bf16", "tf32")},
        "launch_us": best("launch", min, kind="launch"),
        "graph_node_us": best("launch", min, kind="graph node"),
        "block_barrier_ns": best("barrier", min, kind="block", threads=256),
        "cluster_barrier_ns": best("barrier", min, kind="cluster", blocks=8),
    }
