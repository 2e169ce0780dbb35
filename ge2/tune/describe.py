"""From what a candidate did to the record of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .. import __version__, launch_table
from ..compiler.kernels import source
from ..compiler.kernels.cost import axes_of
from ..compiler.kernels.work import bytes_of, flops_of, least_seconds
from ..errors import Ge2Error
from ..evidence import versions
from ..evidence.costmodel import CostAxes, raw_time
from ..evidence.device import DeviceProfile
from ..evidence.keys import device_key, problem_key, shape_text
from ..evidence.measure import Timing
from ..evidence.record import OK, Decision, Record
from ..launch.record import KernelSource
from ..problem import Problem
from ..runtime.digests import distinct_sources, source_digest
from .bench import Bind, Checked, Way
from .space import Space


class Describer:
    """Makes records of one device.

    Args:
        device: measured on. index: of the GPU; None where none is touched.
        emulated: whether the records are of the emulator; then they never count for a GPU.
        bind, axes: launches and costs of candidates that are no kernel variants.

    Attributes:
        key: what the records are filed under.
        driver, nvrtc: versions, "" where no GPU is touched.
    """

    def __init__(self, device: DeviceProfile, index: int | None = None, *,
                 emulated: bool = False, bind: Bind = launch_table.bind,
                 axes: Callable[[Problem, Any], CostAxes] = axes_of) -> None:
        self.device = device
        self._bind, self._axes = bind, axes
        self.key = f"emulated {device_key(device)}" if emulated else device_key(device)
        self.driver = versions.driver_version() if index is not None else ""
        self.nvrtc = _nvrtc() if index is not None else ""
        self._index = index
        self._digests: dict[tuple[str, str], str] = {}
        self._texts: dict[KernelSource, str] = {}

    def sources(self, problem: Problem, variant: Way) -> str:
        """Return the digest of the sources that a variant would run now; "" where it cannot."""
        key = problem_key(problem), variant.id
        if key not in self._digests:
            try:
                records = self._bind(problem, variant, self.device)
                self._digests[key] = source_digest(distinct_sources(records), self._text)
            except Ge2Error:
                self._digests[key] = ""
        return self._digests[key]

    def _text(self, kernel: KernelSource) -> str:
        """Return a rendered kernel: problems share most."""
        if kernel not in self._texts:
            self._texts[kernel] = source.render(kernel)
        return self._texts[kernel]

    def record(self, problem: Problem, variant: Way, found: Checked,
               timing: Timing | None) -> Record:
        """Return the record of a candidate that was checked and, where right, timed."""
        seconds = timing.median * 1e-6 if timing else 0.0
        clocks = versions.clocks(self._index) if timing and self._index is not None \
            else versions.Clocks()
        rates: dict[str, Any] = {}
        if timing:
            rates = {"time_us": timing.median, "spread": timing.spread, "n": timing.n,
                     "predicted_us": raw_time(self._axes(problem, variant), self.device),
                     "samples": tuple(round(s, 4) for s in timing.samples), "cold": timing.cold,
                     "gbps": bytes_of(problem) / seconds / 1e9,
                     "tflops": flops_of(problem) / seconds / 1e12,
                     "roofline": least_seconds(problem, self.device) / seconds}
        return Record(
            problem=problem_key(problem), op_type=problem.op_type, shape=shape_text(problem),
            variant=variant.id, device=self.key, cubin=found.cubin,
            state=found.state, numerics=variant.numerics,
            sources=found.sources or self.sources(problem, variant),
            reason=found.reason[:2000], registers=found.registers, smem=found.smem,
            spills=found.spills, occupancy=found.occupancy, max_abs=found.max_abs, ulp=found.ulp,
            driver=self.driver, nvrtc=self.nvrtc, ge2=__version__, sm_mhz=clocks.sm_mhz,
            mem_mhz=clocks.mem_mhz, throttle=clocks.throttle, compile_ms=found.compile_ms,
            date=time.time(), **rates)

    def checked(self, record: Record) -> Checked:
        """Return what a record says of its candidate, to be timed again."""
        return Checked(OK, "", record.max_abs, record.ulp, record.cubin, record.sources,
                       record.registers, record.smem, record.spills, record.occupancy,
                       record.compile_ms)

    def decision(self, space: Space, record: Record, **found: Any) -> Decision:
        """Return the decision for the variant of a record."""
        return Decision(
            problem=record.problem, op_type=record.op_type, shape=record.shape,
            device=record.device, variant=record.variant, cubin=record.cubin,
            sources=record.sources, numerics=record.numerics, default=space.default.variant.id,
            space=len(space.entries), driver=self.driver, nvrtc=self.nvrtc, ge2=__version__,
            date=time.time(), **found)


def _nvrtc() -> str:
    from ..runtime import nvrtc

    try:
        return ".".join(map(str, nvrtc.version()))
    except Ge2Error:
        return ""
