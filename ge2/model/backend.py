"""Which backend runs a model when the user names none."""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import dataclass

from .. import config

INSTALL_LINE = "pip install 'ge2[cuda13]'"


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A backend and, where it is not the obvious one, why.

    Attributes:
        name: cuda, cpu or emulate.
        note: a sentence for the user; "" when there is nothing to say.
    """

    name: str
    note: str = ""


def cuda_device_count() -> tuple[int, str]:
    """Return the number of GPUs that the driver shows, and why there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no NVIDIA driver: libcuda.so.1 not found"
    code = driver.cuInit(0)
    if code:
        return 0, f"cuInit failed with CUDA error {code}"
    count = ctypes.c_int()
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return 0, f"cuDeviceGetCount failed with CUDA error {code}"
    return count.value, "" if count.value else "the driver shows no GPU"


def has_cupy() -> bool:
    """Return whether cupy is installed (it is not imported)."""
    return importlib.util.find_spec("cupy") is not None


def choose_backend(requested: str | None = None) -> BackendChoice:
    """Return the requested backend, else GE2_BACKEND, else cuda where a GPU and cupy are."""
    wanted = requested or config.get("GE2_BACKEND")
    if wanted:
        return BackendChoice(wanted)
    count, _ = cuda_device_count()
    if not count:
        return BackendChoice("cpu")
    if not has_cupy():
        return BackendChoice("cpu", "a GPU is here but cupy is not installed: using the cpu "
                             f"backend. To use the GPU: {INSTALL_LINE}")
    return BackendChoice("cuda")
