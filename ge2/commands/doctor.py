"""ge2 doctor: what this machine has, what is wrong, and the command that mends it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from .. import __version__, config, paths
from ..errors import Ge2Error
from ..model.backend import INSTALL_LINE, cuda_device_count, has_cupy
from .output import Report, bad, good, human_bytes, report_options, warn

OK, WARN, FAIL = "ok", "warn", "FAIL"
_LIBRARIES = ("numpy", "jinja2", "click", "msgspec", "ml_dtypes", "rich", "platformdirs",
              "filelock", "safetensors")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        name: what was looked at.
        status: ok, warn or FAIL.
        text: what was found.
        fix: the command or step that mends it; "" where nothing is wrong.
    """

    name: str
    status: str
    text: str
    fix: str = ""


@click.command()
@report_options
def doctor(json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Examine versions, GPU, driver, compiler and cache; say what to mend.

    The output is made to be pasted into a bug report. Exit code 4 when a line fails.
    """
    report = Report(json_target, quiet=quiet, verbose=verbose)
    findings = [finding for check in CHECKS for finding in check()]
    color = {OK: good, WARN: warn, FAIL: bad}
    width = max(len(f.name) for f in findings)
    for finding in findings:
        report.line(f"{color[finding.status](f'{finding.status:4}')}  "
                    f"{finding.name:{width}}  {finding.text}")
        if finding.fix:
            report.line(f"{'':{width + 8}}-> {finding.fix}")
    failed = [f for f in findings if f.status == FAIL]
    report.data = {"findings": [asdict(f) for f in findings], "ok": not failed}
    report.message(f"{len(failed)} of {len(findings)} lines fail" if failed else "nothing fails")
    report.finish()
    return 4 if failed else 0


def versions() -> Iterator[Finding]:
    """Report ge2, Python and the libraries that ge2 imports."""
    where = Path(__file__).resolve().parent.parent
    yield Finding("ge2", OK, f"{__version__} in {where}")
    yield Finding("python", OK, f"{platform.python_version()} ({sys.executable}), "
                  f"{platform.system()} {platform.machine()}")
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, FAIL, "not installed", f"pip install {name}")
    yield Finding("libraries", OK, ", ".join(found))


def installs() -> Iterator[Finding]:
    """Report stale or duplicate installs of ge2."""
    own = Path(__file__).resolve().parent.parent
    seen: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(name="ge2"):
        seen[str(Path(str(distribution.locate_file(""))).resolve())] = distribution.version
    if len(seen) > 1:
        places = ", ".join(f"{version} in {place}" for place, version in seen.items())
        yield Finding("installs", FAIL, f"ge2 is installed more than once: {places}",
                      "pip uninstall -y ge2, until it says so, then install once")
    for place, version in seen.items():
        if version != __version__:
            yield Finding("installs", WARN, f"metadata in {place} says {version}, the code in "
                          f"{own} says {__version__}", "pip install --force-reinstall --no-deps .")


def cupy_wheels() -> Iterator[Finding]:
    """Report the cupy wheel, or the wheels, and the CUDA bindings."""
    wheels = sorted({
        f"{name} {d.version}" for d in importlib.metadata.distributions()
        if (name := (d.metadata["Name"] or "").lower()) == "cupy" or name.startswith("cupy-cuda")})
    if len(wheels) > 1:
        names = " ".join(wheel.split()[0] for wheel in wheels)
        yield Finding("cupy", FAIL, f"several wheels share one folder: {', '.join(wheels)}",
                      f"pip uninstall -y {names} && {INSTALL_LINE}")
    elif not wheels:
        status = FAIL if cuda_device_count()[0] else WARN
        yield Finding("cupy", status, "not installed: no cuda backend", INSTALL_LINE)
    else:
        version = wheels[0].split()[1]
        fine = version.split(".")[0] == "14"
        yield Finding("cupy", OK if fine else WARN, wheels[0],
                      "" if fine else f"ge2 is tested with cupy 14: {INSTALL_LINE}")
    try:
        bindings = importlib.metadata.version("cuda-bindings")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("cuda-bindings", WARN, "not installed: no cuda backend", INSTALL_LINE)
        return
    major = bindings.split(".")[0]
    wheel = wheels[0].split()[0] if len(wheels) == 1 else ""
    if wheel.startswith("cupy-cuda") and wheel[9:11] != major:
        yield Finding("cuda-bindings", FAIL, f"{bindings} beside {wheel}",
                      f"pip install 'cuda-bindings=={wheel[9:11]}.*'")
    else:
        yield Finding("cuda-bindings", OK, bindings)


def gpus() -> Iterator[Finding]:
    """Report driver and GPUs without cupy."""
    count, why = cuda_device_count()
    if not count:
        yield Finding("gpu", WARN, f"none: {why}", "models run on the cpu backend; for a GPU "
                      "install its driver, then look at nvidia-smi")
        return
    driver = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    yield driver_finding((version.value // 1000, version.value % 1000 // 10), _nvrtc_version())
    for index in range(count):
        name = ctypes.create_string_buffer(128)
        driver.cuDeviceGetName(name, 128, index)
        major, minor = ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, index)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, index)
        yield gpu_finding(index, name.value.decode(), (major.value, minor.value), _nvrtc_archs())


def driver_finding(driver: tuple[int, int], compiler: tuple[int, int] | None) -> Finding:
    """Judge a driver by the CUDA versions of it and of NVRTC (None: there is none).

    A driver loads what compilers of its own and of older major versions make.
    """
    text = f"supports CUDA {driver[0]}.{driver[1]}"
    if compiler is None or compiler[0] <= driver[0]:
        return Finding("driver", OK, text)
    extra = f"pip install 'ge2[cuda{driver[0]}]'" if driver[0] >= 12 else "a newer driver"
    return Finding("driver", FAIL, f"{text}, but NVRTC is {compiler[0]}.{compiler[1]}: it cannot "
                   "load what that compiles", f"update the driver, or: pip uninstall -y "
                   f"cupy-cuda{compiler[0]}x && {extra}")


def gpu_finding(index: int, name: str, capability: tuple[int, int], archs: tuple[int, ...]
                ) -> Finding:
    """Judge a GPU by its compute capability and what NVRTC compiles for (empty: there is none)."""
    number = 10 * capability[0] + capability[1]
    text = f"{name}, compute capability {capability[0]}.{capability[1]}"
    label = f"gpu {index}"
    if number < 75:
        return Finding(label, FAIL, text, "ge2 needs compute capability 7.5 or newer")
    if archs and number not in archs:
        return Finding(label, WARN, f"{text}: newer than NVRTC, which goes to sm_{archs[-1]}; "
                       "kernels are PTX, without this GPU's own instructions",
                       "pip install -U nvidia-cuda-nvrtc")
    return Finding(label, OK, text)


def _nvrtc_version() -> tuple[int, int] | None:
    from ..runtime import nvrtc

    try:
        return nvrtc.version() if has_cupy() else None
    except Ge2Error:
        return None


def _nvrtc_archs() -> tuple[int, ...]:
    from ..runtime import nvrtc

    return nvrtc.supported_archs() if _nvrtc_version() else ()


def headers() -> Iterator[Finding]:
    """Report the headers that kernels include: ge2's own, and none of the toolkit's."""
    folder = paths.include_dir()
    count = sum(1 for _ in folder.rglob("*.cuh"))
    if count:
        yield Finding("headers", OK, f"{count} in {folder}; kernels include no CUDA headers")
    else:
        yield Finding("headers", FAIL, f"none in {folder}",
                      "pip install --force-reinstall --no-deps ge2")


def compiler() -> Iterator[Finding]:
    """Report NVRTC and compile one line with it."""
    from ..runtime import nvrtc

    if not has_cupy():
        yield Finding("nvrtc", WARN, "needs cupy", INSTALL_LINE)
        return
    try:
        version = nvrtc.version()
        archs = nvrtc.supported_archs()
        yield Finding("nvrtc", OK, f"{version[0]}.{version[1]}, compiles for sm_{archs[0]} to "
                      f"sm_{archs[-1]}")
        target = nvrtc.target_for("sm_90a")
        text = '#include <ge2/types.cuh>\nextern "C" __global__ void one(ge2::f16* x) { *x = {}; }'
        binary = nvrtc.compile_text(text, "doctor.cu", target, [str(paths.include_dir())])
        yield Finding("compile test", OK, f"one f16 kernel in {binary.compile_ms:.0f} ms")
    except (Ge2Error, nvrtc.NvrtcRefused) as error:
        yield Finding("compile test", FAIL, str(error).strip().splitlines()[0],
                      f"{INSTALL_LINE} --force-reinstall")
    for path in _loaded("libnvrtc"):
        yield Finding("loaded", OK, path)


def host_compiler() -> Iterator[Finding]:
    """Report the C++ compiler of the emulate backend."""
    name = config.get("GE2_CXX") or "g++"
    found = shutil.which(name)
    if found is None:
        yield Finding("c++", WARN, f"{name} not found: no emulate backend",
                      "apt install g++, or set GE2_CXX")
        return
    result = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    first = result.stdout.splitlines()[0] if result.stdout else f"exit code {result.returncode}"
    yield Finding("c++", OK if result.returncode == 0 else WARN, first)


def cache_state() -> Iterator[Finding]:
    """Report the cache of compiled kernels."""
    from ..runtime import disk_cache

    if config.get("GE2_CACHE") == "0":
        yield Finding("cache", WARN, "off (GE2_CACHE=0): every process compiles again",
                      "unset GE2_CACHE")
        return
    folder = paths.cache_dir()
    reason = paths.unusable_cache(folder)
    if not reason and not os.access(folder, os.W_OK):
        reason = f"{folder} is not writable"
    if reason:
        yield Finding("cache", FAIL, reason, "set GE2_CACHE_DIR to a folder of your own")
        return
    usage = disk_cache.default_cache().usage()
    size = sum(size for _, size, _ in usage)
    free = shutil.disk_usage(folder).free
    status = WARN if free < 256 << 20 else OK
    yield Finding("cache", status, f"{folder}: {len(usage)} kernels, {human_bytes(size)}; "
                  f"{human_bytes(free)} free on the disk",
                  "" if status == OK else "ge2 cache clear, or free some space")


def environment() -> Iterator[Finding]:
    """Report the GE2_* variables that are set."""
    for text in config.unknown_variables():
        name, _, reason = text.partition(" ")
        yield Finding(name, WARN, reason, f"unset {name}")
    given = [f"{name}={os.environ[name]}" for name in config.VARIABLES if os.environ.get(name)]
    yield Finding("environment", OK, ", ".join(given) or "no GE2_* variable is set")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    versions, installs, cupy_wheels, gpus, compiler, headers, host_compiler, cache_state,
    environment)


def _loaded(stem: str) -> list[str]:
    """Return the files of loaded shared libraries whose name starts with stem."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    files = {line.split(maxsplit=5)[5] for line in lines if line.count(" ") > 4 and "/" in line}
    return sorted(f for f in files if Path(f).name.startswith(stem))
