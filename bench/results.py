"""Writes result files: figures with commit, date, device and versions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ge2.paths import write_atomic

_PACKAGES = ("cupy-cuda13x", "cuda-bindings", "nvidia-cuda-nvrtc", "torch", "triton", "numpy")


def write_results(path: Path, figures: dict[str, Any],
                  targets: Sequence[dict[str, Any]] = ()) -> None:
    """Write figures to path as JSON beside what they were measured with.

    Args:
        path: of the file; it is replaced as a whole, so that a run cut short leaves a whole one.
        figures: by case.
        targets: verdicts as plain data; see bench.targets.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"environment": {"date": datetime.now(UTC).isoformat(timespec="seconds"),
                              **environment()},
              **({"targets": list(targets)} if targets else {}), "figures": figures}
    write_atomic(path, (json.dumps(record, indent=1) + "\n").encode())


@cache
def environment() -> dict[str, Any]:
    """Return commit, GPU, driver and package versions."""
    from ge2.runtime import driver

    return {
        "commit": _commit(),
        **(_gpu() if driver.is_available() else {"gpu": "none"}),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def _gpu() -> dict[str, Any]:
    from ge2.runtime.device import cuda_device, default_index
    from ge2.runtime.driver import api, check

    return {"gpu": cuda_device(default_index()).profile.name,
            "driver_cuda": check(api().cuDriverGetVersion())}


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
