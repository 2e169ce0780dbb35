"""Writes result files: figures with commit, date, device and versions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("cupy-cuda13x", "cuda-bindings", "nvidia-cuda-nvrtc", "torch", "triton", "numpy")


def write_results(path: Path, figures: dict[str, Any]) -> None:
    """Write figures to path as JSON beside what they were measured with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"environment": environment(), "figures": figures}
    path.write_text(json.dumps(record, indent=1) + "\n")


def environment() -> dict[str, Any]:
    """Return commit, date, GPU, driver and package versions."""
    from ge2.runtime.device import cuda_device, default_index
    from ge2.runtime.driver import api, check

    return {
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": cuda_device(default_index()).profile.name,
        "driver_cuda": check(api().cuDriverGetVersion()),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def _commit() -> str:
    """Return COMMIT from the environment (for a copy without .git), else what git says."""
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True,
                           cwd=Path(__file__).parent, check=False)
    return found.stdout.strip() or "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
