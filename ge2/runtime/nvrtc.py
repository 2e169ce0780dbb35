"""One NVRTC call: source text in, cubin (or PTX) and what ptxas said of it out; needs no GPU.

cupy's own RawModule compile is not used: it targets sm_90 without the `a`, forces -ftz=true, and
its cache does not see edited headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from .. import paths
from ..errors import EnvironmentUnusable, Unsupported
from . import elf

# f32 means IEEE f32: denormals kept, exact division and square root; FMA contraction stays on.
OPTIONS = (
    "-std=c++17",
    "--device-as-default-execution-space",
    "-ftz=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-fmad=true",
)
_REPORT_OPTIONS = ("--ptxas-options=-v",)

_ARCH = re.compile(r"sm_(\d+)([af]?)")
_NOISE = re.compile(r"ptxas\s+(info|\.)\s*[:.]? *(\d+ bytes gmem.*|Compiling entry function .*"
                    r"|Function properties for .*|Used \d+ registers.*|Compile time = .*"
                    r"|\d+ bytes stack frame.*|Overriding .*)|")
INSTALL_HINT = 'Install it with: pip install "ge2[cuda13]" (or ge2[cuda12]).'


class NvrtcRefused(Exception):
    """NVRTC did not accept a source or an option.

    Attributes:
        log: everything that the compiler said.
    """

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


@dataclass(frozen=True, slots=True)
class Target:
    """What a GPU's kernels are compiled to.

    Attributes:
        arch: the -arch value, "sm_90a", or "compute_121" where NVRTC is older than the GPU.
        is_ptx: the driver compiles the result further when it loads it.
    """

    arch: str
    is_ptx: bool


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas reports of one compiled kernel (all zero for PTX).

    Attributes:
        registers: per thread, the largest of all entries.
        spill_stores, spill_loads, local_bytes: bytes of local memory per thread.
        static_smem: bytes of statically declared shared memory.
        warnings: lines in which ptxas complains ("setmaxnreg ignored", ...).
    """

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    local_bytes: int = 0
    static_smem: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """The result of one compile."""

    code: bytes
    is_ptx: bool
    resources: Resources
    log: str
    compile_ms: float


@cache
def _library() -> Any:
    """Return cupy's NVRTC binding; it loads without a GPU.

    Raises:
        EnvironmentUnusable: cupy or the NVRTC library is not installed.
    """
    paths.let_cupy_start()
    try:
        from cupy_backends.cuda.libs import nvrtc
    except ImportError as error:
        raise EnvironmentUnusable("compiling kernels needs cupy and NVRTC", found=str(error),
                                  hint=INSTALL_HINT) from error
    return nvrtc


@cache
def version() -> tuple[int, int]:
    """Return NVRTC's (major, minor).

    Raises:
        EnvironmentUnusable: cupy or the NVRTC library is not installed.
    """
    try:
        major, minor = _library().getVersion()
    except EnvironmentUnusable:
        raise
    except (RuntimeError, OSError, ImportError) as error:
        raise EnvironmentUnusable("the NVRTC library does not load", found=str(error),
                                  hint=INSTALL_HINT) from error
    return int(major), int(minor)


@cache
def supported_archs() -> tuple[int, ...]:
    """Return the compute capabilities that this NVRTC knows, ascending: (75, 80, ...)."""
    version()
    return tuple(sorted(int(number) for number in _library().getSupportedArchs()))


def target_for(arch: str) -> Target:
    """Return how to compile for a GPU: its own cubin, or PTX where NVRTC is older than it.

    Raises:
        Unsupported: NVRTC knows only newer GPUs, or the text names no architecture.
    """
    match = _ARCH.fullmatch(arch)
    if not match:
        raise Unsupported("not an architecture", argument="arch", found=repr(arch),
                          wanted="such as sm_80 or sm_90a")
    number, known = int(match[1]), supported_archs()
    if number in known:
        return Target(arch, False)
    older = [n for n in known if n < number]
    if not older:
        major, minor = version()
        raise Unsupported(
            f"this GPU is too old for the installed compiler (NVRTC {major}.{minor})",
            argument="arch", found=arch, wanted=f"sm_{known[0]} or newer",
            hint="CUDA 12 still compiles for sm_50 to sm_72; ge2 itself needs sm_75.")
    return Target(f"compute_{older[-1]}", True)


def compile_text(text: str, name: str, target: Target, include_dirs: Sequence[str],
                 options: Sequence[str] = OPTIONS) -> Binary:
    """Compile one source.

    Args:
        text: CUDA C++ source.
        name: what the log calls the file.
        target: from target_for().
        include_dirs: folders of headers, first wins.
        options: NVRTC options without -arch and -I.

    Raises:
        NvrtcRefused: with the compiler's log.
    """
    nvrtc = _library()
    version()
    flags = (*options, f"-arch={target.arch}", *(f"-I{folder}" for folder in include_dirs),
             *(() if target.is_ptx else _REPORT_OPTIONS))
    start = time.perf_counter()
    program = nvrtc.createProgram(text, name, (), ())
    try:
        try:
            nvrtc.compileProgram(program, flags)
        except nvrtc.NVRTCError as error:
            raise NvrtcRefused(_log(program) or str(error)) from error
        log = _log(program)
        code = _ptx(program) if target.is_ptx else _cubin(program)
    finally:
        nvrtc.destroyProgram(program)
    elapsed = 1e3 * (time.perf_counter() - start)
    return Binary(code, target.is_ptx, parse_log(log), log, elapsed)


def _log(program: int) -> str:
    return str(_library().getProgramLog(program)).rstrip("\0\n ")


def _ptx(program: int) -> bytes:
    text = _library().getPTX(program)
    return text if isinstance(text, bytes) else text.encode()


def _cubin(program: int) -> bytes:
    """Return the whole cubin; the binding cuts the last byte off, which is padding."""
    code: bytes = _library().getCUBIN(program)
    missing = elf.file_size(code) - len(code)
    if missing not in (0, 1):
        raise NvrtcRefused(f"NVRTC returned {len(code)} bytes of a cubin of "
                           f"{elf.file_size(code)} bytes")
    return code + b"\0" * missing


def parse_log(log: str) -> Resources:
    """Return the resources in a log made with `ptxas -v`; the worst of all functions in it."""

    def worst(pattern: str) -> int:
        return max((int(n) for n in re.findall(pattern, log)), default=0)

    warnings = [line.strip() for line in log.splitlines()
                if line.startswith("ptxas") and not _NOISE.fullmatch(line.strip())]
    return Resources(
        registers=worst(r"Used (\d+) registers"),
        spill_stores=worst(r"(\d+) bytes spill stores"),
        spill_loads=worst(r"(\d+) bytes spill loads"),
        local_bytes=worst(r"(\d+) bytes stack frame"),
        static_smem=worst(r"(\d+) bytes smem"),
        warnings=tuple(warnings),
    )
