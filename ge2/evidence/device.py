"""What ge2 knows of a GPU before and without touching it: one profile per architecture.

A profile is what guards, scores and launch rules ask. runtime/device.py makes one from a real
device; the table here stands in where there is no device (compiling, explaining, emulating).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import Invalid, Unsupported


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One GPU, or the typical GPU of an architecture.

    Attributes:
        name: as the driver reports it ("NVIDIA H200").
        arch: compile target with its suffix ("sm_90a").
        sm_count: multiprocessors.
        smem_per_block: largest shared memory of one block (opt-in), bytes.
        smem_per_sm: shared memory of one multiprocessor, bytes.
        l2_bytes: L2 cache, bytes.
        registers_per_sm: 32-bit registers.
        copy_gbps: device-to-device copy, bytes read plus written, in GB/s.
        fp32_tflops: f32 FMA peak outside tensor cores.
        tensor_tflops: dense f16 peak with f32 accumulation.
        caps: named abilities; see capabilities().
    """

    name: str
    arch: str
    sm_count: int
    smem_per_block: int
    smem_per_sm: int
    l2_bytes: int
    registers_per_sm: int
    copy_gbps: float
    fp32_tflops: float
    tensor_tflops: float
    caps: Mapping[str, bool] = field(default_factory=dict, hash=False)


def arch_number(arch: str) -> int:
    """Return 90 for "sm_90a".

    Raises:
        Unsupported: the text names no architecture.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is None:
        raise Unsupported("not an architecture", argument="arch", found=repr(arch),
                          wanted="such as sm_80 or sm_90a")
    return int(match.group(1))


def arch_of(major: int, minor: int) -> str:
    """Return the compile target of a compute capability; "a" from 9.0 on for its own features."""
    number = 10 * major + minor
    return f"sm_{number}a" if number >= 90 else f"sm_{number}"


def capabilities(arch: str) -> dict[str, bool]:
    """Return the abilities of an architecture.

    tensor_core: f16 mma.sync; bf16: bf16 and tf32 mma.sync; fp8: mma.sync of 8-bit floats;
    async_copy: cp.async; cluster: thread block clusters; tma: bulk tensor copies; pdl:
    programmatic dependent launch; wgmma: sm_90a only.
    """
    number = arch_number(arch)
    return {
        "tensor_core": number >= 75,
        "bf16": number >= 80,
        "async_copy": number >= 80,
        "fp8": number >= 89,
        "cluster": number >= 90,
        "tma": number >= 90,
        "pdl": number >= 90,
        "wgmma": arch == "sm_90a",
    }


def _profile(name: str, arch: str, sms: int, smem_kib: tuple[int, int], l2_mib: int,
             rates: tuple[float, float, float]) -> DeviceProfile:
    return DeviceProfile(name, arch, sms, smem_kib[0] << 10, smem_kib[1] << 10, l2_mib << 20,
                         65536, *rates, caps=capabilities(arch))


# Data sheets, except the H200's copy rate, which is measured; other copy rates are 90 % of peak.
PROFILES: dict[str, DeviceProfile] = {
    p.arch: p
    for p in (
        _profile("Tesla T4", "sm_75", 40, (64, 64), 4, (288, 8.1, 65)),
        _profile("NVIDIA A100-SXM4-80GB", "sm_80", 108, (163, 164), 40, (1835, 19.5, 312)),
        _profile("NVIDIA GeForce RTX 3090", "sm_86", 82, (99, 100), 6, (842, 35.6, 71)),
        _profile("NVIDIA GeForce RTX 4090", "sm_89", 128, (99, 100), 72, (907, 82.6, 165)),
        _profile("NVIDIA H200", "sm_90a", 132, (227, 228), 60, (4300, 66.9, 989)),
        _profile("NVIDIA B200", "sm_100a", 148, (227, 228), 126, (7200, 80, 2250)),
        _profile("NVIDIA GeForce RTX 5090", "sm_120a", 170, (99, 100), 96, (1613, 104.8, 209)),
    )
}


def profile_for(arch: str) -> DeviceProfile:
    """Return the profile of an architecture; "sm_90" also finds "sm_90a".

    An architecture without a profile of its own takes the newest older one under its own name.

    Raises:
        Unsupported: older than sm_75, or no architecture at all.
    """
    if arch in PROFILES:
        return PROFILES[arch]
    number = arch_number(arch)
    older = [p for p in PROFILES.values() if arch_number(p.arch) <= number]
    if not older:
        raise Unsupported("ge2 needs sm_75 or newer", argument="arch", found=arch, wanted="sm_75")
    best = older[-1]
    if arch_number(best.arch) == number:
        return best
    return DeviceProfile(f"{arch} (as {best.name})", arch, best.sm_count, best.smem_per_block,
                         best.smem_per_sm, best.l2_bytes, best.registers_per_sm, best.copy_gbps,
                         best.fp32_tflops, best.tensor_tflops, caps=capabilities(arch))


def find_profile(name: str) -> DeviceProfile:
    """Return the profile of a GPU by architecture or by a part of its name.

    Raises:
        Invalid: no profile or several match.
    """
    if re.fullmatch(r"sm_\d+[af]?", name):
        return profile_for(name)
    found = [p for p in PROFILES.values() if name.lower() in p.name.lower()]
    if len(found) == 1:
        return found[0]
    names = [p.name for p in PROFILES.values()]
    raise Invalid("no such device profile" if not found else "several profiles match",
                  argument="--device", found=repr(name),
                  wanted=", ".join(p.name for p in found) or ", ".join(names))
