"""Versions and clocks that a measurement was made with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Clocks:
    """Current clocks in MHz and the reasons for which they are held down; zeros where unknown."""

    sm_mhz: int = 0
    mem_mhz: int = 0
    throttle: str = ""


@cache
def driver_version() -> str:
    """Return the NVIDIA driver's version ("580.65.06"), "" where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return match[1] if match else ""


def clocks(index: int) -> Clocks:
    """Return a GPU's clocks and throttle reasons, through nvidia-ml-py where it is installed."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        held = [name for name, bit in _REASONS if reasons & bit]
        return Clocks(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                      pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                      ", ".join(held))
    except Exception:  # no package, no library, or a GPU that does not tell
        return Clocks()


# Bits of nvmlClocksThrottleReason*, in the library's own numbering.
_REASONS = (("power cap", 0x4), ("slowdown", 0x8), ("sync boost", 0x10), ("thermal", 0x20),
            ("hardware thermal", 0x40), ("power brake", 0x80))
