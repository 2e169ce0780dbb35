"""Measured device profiles: what `ge2 probe` wrote, and what ships with ge2."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from .. import log, paths
from .device import DeviceProfile, profile_for
from .keys import device_key
from .records import EvidenceError

KEY = "ge2_probe"
SCHEMA = 1


def folder() -> Path:
    """Return where the profiles of this user are."""
    return paths.data_dir() / "profiles"


def file_name(key: str) -> str:
    """Return the file of a device's profile."""
    return re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-").lower() + ".json"


def write(document: dict[str, Any], path: Path | None = None) -> Path:
    """Write a profile where load() finds it, or to path, and return the file.

    Raises:
        EvidenceError: it cannot be written.
    """
    target = path or folder() / file_name(document["device"])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        paths.write_atomic(target, (json.dumps(document, indent=1) + "\n").encode())
    except OSError as error:
        raise EvidenceError(f"{target} cannot be written", found=error.strerror) from error
    return target


def read(path: Path) -> dict[str, Any]:
    """Return the profile in a file.

    Raises:
        EvidenceError: it cannot be read, is no profile, is cut, or comes from a newer ge2.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path} cannot be read", found=str(error)) from error
    version = document.get(KEY) if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise EvidenceError(f"{path} is no device profile", hint="ge2 probe writes such files")
    if version > SCHEMA:
        raise EvidenceError(f"{path} comes from a newer ge2", found=f"schema {version}",
                            wanted=f"at most {SCHEMA}", hint="Update ge2")
    for part in ("device", "summary", "sections"):
        if part not in document:
            raise EvidenceError(f"{path} lacks {part!r}")
    return dict(document)


def load(key: str) -> dict[str, Any] | None:
    """Return the newest profile of a device: this user's, else the shipped one; None without."""
    found = [d for d in (*_all(folder()), *shipped()) if d["device"] == key]
    return found[0] if found else None


@cache
def shipped() -> tuple[dict[str, Any], ...]:
    """Return the profiles that come with ge2."""
    return tuple(_all(Path(__file__).parent / "shipped"))


def _all(where: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(where.glob("*.json")) if where.is_dir() else ():
        try:
            found.append(read(path))
        except EvidenceError as error:
            log.topic("tune").warning("%s", error)
    return found


def of_key(key: str) -> DeviceProfile | None:
    """Return the profile of a device that evidence names, from its architecture's typical one.

    Args:
        key: as device_key() writes it; None for what is none, such as an emulated device's.
    """
    name, arch, count = (*key.split("|"), "", "")[:3]
    is_gpu = count.isdecimal() and re.fullmatch(r"sm_\d+[af]?", arch)
    if not is_gpu or name.startswith("emulated "):
        return None
    typical = profile_for(arch)
    if device_key(typical) == key:
        return typical
    share = int(count) / typical.sm_count
    return dataclasses.replace(
        typical, name=name, arch=arch, sm_count=int(count), copy_gbps=typical.copy_gbps,
        fp32_tflops=share * typical.fp32_tflops, tensor_tflops=share * typical.tensor_tflops)


def measured(device: DeviceProfile) -> DeviceProfile:
    """Return a device's profile with measured rates in place of a data sheet's, where known."""
    return with_rates(device, load(device_key(device)))


def with_rates(device: DeviceProfile, document: dict[str, Any] | None) -> DeviceProfile:
    """Return a device's profile with the rates of a probe's document, where there is one."""
    if document is None:
        return device
    figures = document["summary"]

    def figure(name: str, otherwise: float) -> float:
        return float(figures.get(name) or otherwise)

    return dataclasses.replace(
        device, copy_gbps=figure("copy_gbps", device.copy_gbps),
        fp32_tflops=figure("f32_tflops", device.fp32_tflops),
        tensor_tflops=figure("tensor_f16_tflops", device.tensor_tflops))
