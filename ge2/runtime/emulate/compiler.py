"""Builds kernels and the emulator's C++ runtime with the host compiler, cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ... import config, log, paths
from ...compiler.kernels import headers
from ...compiler.kernels import source as sources_of
from ...errors import CompileFailed, EnvironmentUnusable

NATIVE = Path(__file__).resolve().parent / "native"
TWINS = NATIVE / "include"

_RUNTIME_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fno-omit-frame-pointer", "-w")
_KERNEL_FLAGS = (
    "-x", "c++", "-std=c++17", "-O1", "-g1", "-fPIC", "-w", "-fno-exceptions", "-fno-rtti",
    "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls", "-fsanitize=thread,alignment,bounds,integer-divide-by-zero",
)
# Without scalar replacement vector accesses stay whole, and padding is copied with its struct.
_GCC_FLAGS = (
    "-fsanitize-coverage=trace-pc", "-fno-tree-sra", "--param", "tsan-distinguish-volatile=1",
    "--param", "tsan-instrument-func-entry-exit=0",
)
# Every basic block is counted, so that an endless loop is seen whatever it does.
_CLANG_FLAGS = (
    "-fsanitize-coverage=bb,no-prune,trace-pc", "-fno-finite-loops", "-mllvm",
    "-tsan-distinguish-volatile=1", "-mllvm", "-tsan-instrument-func-entry-exit=0",
)
_PATTERN_FLAG = "-ftrivial-auto-var-init=pattern"
_PTX_INCLUDE = re.compile(r'#\s*include\s*<(ge2/ptx/[\w./]+)>')
_UNKNOWN = (
    re.compile(r"'(\w+)' is not a member of 'ge2::ptx'"),
    re.compile(r"no member named '(\w+)' in namespace 'ge2::ptx'"),
    re.compile(r"'(\w+)' was not declared in this scope"),
    re.compile(r"use of undeclared identifier '(\w+)'"),
    re.compile(r"'(__\w+__)' does not name a type"),
)
_INSTALL = ("install g++ (apt install g++, dnf install gcc-c++) or clang++, "
            "or name one in GE2_CXX")

# clang copies structs by memcpy, which its instrumentation leaves to an interceptor.
_ENTRY = """
#ifdef __clang__
#define GE2_OWN extern "C" __attribute__((visibility("hidden"), no_sanitize("thread")))
extern "C" void ge2emu_copy(void* to, const void* from, unsigned long n, void* pc);
extern "C" void ge2emu_fill(void* to, int value, unsigned long n, void* pc);
GE2_OWN void* memcpy(void* to, const void* from, unsigned long n) {
  ge2emu_copy(to, from, n, __builtin_return_address(0));
  return to;
}
GE2_OWN void* memmove(void* to, const void* from, unsigned long n) {
  ge2emu_copy(to, from, n, __builtin_return_address(0));
  return to;
}
GE2_OWN void* memset(void* to, int value, unsigned long n) {
  ge2emu_fill(to, value, n, __builtin_return_address(0));
  return to;
}
#endif
namespace {
template <class A>
__attribute__((no_sanitize("thread", "undefined"))) void call(void (*f)(A), const void* p) {
  f(*static_cast<const A*>(p));
}
template <class A>
constexpr unsigned long size_of(void (*)(A)) { return sizeof(A); }
}
extern "C" __attribute__((no_sanitize("thread", "undefined")))
void ge2emu_entry(const void* p) { call(&ENTRY, p); }
extern "C" unsigned long ge2emu_args_size() { return size_of(&ENTRY); }
extern "C" unsigned long ge2emu_most_threads() { return BOUNDS; }
"""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a kernel text is built.

    Attributes:
        entry: name of its extern "C" function.
        arch: the GPU architecture that it pretends to run on; decides __CUDA_ARCH__.
        includes: folders searched for <ge2/...> after the twins; default: ge2's own and the users'.
    """

    entry: str
    arch: str = "sm_90a"
    includes: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiler:
    """A host C++ compiler.

    Attributes:
        path: of the program.
        version: what it says about itself.
        is_clang: or else it is gcc.
        flags: for kernels, as far as it knows them.
    """

    path: str
    version: str
    is_clang: bool
    flags: tuple[str, ...]


def find_compiler() -> Compiler:
    """Return the host C++ compiler: GE2_CXX, else g++, clang++ or c++ on the PATH.

    Raises:
        EnvironmentUnusable: there is none, or GE2_CXX names none; says what to install.
    """
    wanted = config.get("GE2_CXX")
    for name in (wanted,) if wanted else ("g++", "clang++", "c++"):
        path = shutil.which(name)
        if path:
            return _probe(path)
    if wanted:
        raise EnvironmentUnusable("GE2_CXX names no program", found=repr(wanted), hint=_INSTALL)
    raise EnvironmentUnusable("the emulate backend needs a host C++ compiler and found none",
                              hint=_INSTALL)


@cache
def _probe(path: str) -> Compiler:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EnvironmentUnusable(f"{path} --version failed: {error}", hint=_INSTALL) from error
    version = done.stdout.splitlines()[0] if done.stdout else ""
    is_clang = "clang" in done.stdout
    flags = _CLANG_FLAGS if is_clang else _GCC_FLAGS
    if not _knows(path, flags):
        raise EnvironmentUnusable(f"{path} is too old for the emulate backend", found=version,
                                  wanted="g++ 11 or clang++ 14, or newer", hint=_INSTALL)
    # An uninitialised local variable then gives the same absurd values in every run.
    extra = (_PATTERN_FLAG,) if _knows(path, (_PATTERN_FLAG,)) else ()
    return Compiler(path, version, is_clang, (*flags, *extra))


def _knows(path: str, flags: tuple[str, ...]) -> bool:
    """Return whether a compiler takes these flags; it compiles nothing for that."""
    command = [path, *flags, "-x", "c++", "-S", "-o", os.devnull, os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@cache
def _private_dir() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ge2-emulate-")


def cache_folder() -> Path:
    """Return where built kernels are kept; a temporary one when GE2_CACHE is 0 or none serves."""
    folder = paths.cache_dir()
    if config.get("GE2_CACHE") == "0" or _refused(folder):
        return Path(_private_dir().name)
    return folder / "emulate"


@cache
def _refused(folder: Path) -> bool:
    """Return whether built kernels cannot be kept in folder; says so once."""
    reason = paths.unusable_cache(folder)
    if not reason:
        try:
            (folder / "emulate").mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder / "emulate", prefix="tmp-"):
                return False
        except OSError as error:
            reason = f"kernel cache {folder} cannot be written ({error.strerror or error})"
    log.topic("cache").warning("%s; kernels of the emulator are built again in each process",
                               reason)
    return True


def _digest(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:32]


@cache
def _native_digest() -> str:
    files = sorted(p for p in NATIVE.rglob("*") if p.is_file())
    return _digest(*(x for p in files for x in (p.relative_to(NATIVE).as_posix(), p.read_bytes())))


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a compiler in folder; return its log, empty on success."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                          env=environment)
    return "" if done.returncode == 0 else done.stderr or f"exit status {done.returncode}"


def _publish(work: Path, target: Path) -> None:
    """Move a finished folder to its place; a twin that was faster stays."""
    try:
        work.replace(target)
    except OSError:
        if not target.is_dir():
            raise


def runtime_library() -> Path:
    """Return the emulator's C++ runtime as a shared library, built on first use.

    Raises:
        EnvironmentUnusable: no compiler, or it cannot build the runtime.
    """
    compiler = find_compiler()
    name = _digest(_native_digest(), compiler.version, *_RUNTIME_FLAGS)
    target = cache_folder() / f"runtime-{name}"
    library = target / "libge2emu.so"
    if library.is_file():
        return library
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="tmp-") as temporary:
        work = Path(temporary) / "out"
        work.mkdir()
        units = sorted((NATIVE / "runtime").glob("*.cpp"))
        unit = "".join(f'#include "{path}"\n' for path in units)
        (work / "all.cpp").write_text(unit, "utf-8")
        log = _run([compiler.path, *_RUNTIME_FLAGS, "-o", library.name, "all.cpp"], work)
        if log:
            raise EnvironmentUnusable(f"{compiler.path} cannot build the emulator: {log[:2000]}",
                                      hint=_INSTALL)
        _publish(work, target)
    return library


def compile(text: str, options: CompileOptions) -> Path:
    """Build CUDA C++ text for the host and return the shared library, from the cache if there.

    Args:
        text: a rendered kernel source (or hand-written text in the kernel language).
        options: entry name, architecture, include folders.

    Raises:
        CompileFailed: the text does not compile, or uses an instruction without a host twin, which
            the message names; carries the log and the path of the saved source.
        EnvironmentUnusable: no compiler.
    """
    compiler = find_compiler()
    includes = options.includes or headers.include_dirs()
    closure = sources_of.Headers(includes).closure(text, options.entry)
    flags = (*_KERNEL_FLAGS, *compiler.flags,
             f"-D__CUDA_ARCH__={_arch_number(options.arch)}0")
    name = _digest(text, options.entry, _native_digest(), compiler.version, *flags,
                   *(x for n, c in closure.items() for x in (n, c)))
    target = cache_folder() / name[:2] / name
    library = target / "kernel.so"
    if library.is_file():
        return library
    _need_twins(text, closure, options.entry)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="tmp-") as temporary:
        work = Path(temporary) / "out"
        work.mkdir()
        _build(work, text, options, (compiler.path, *flags), includes)
        _publish(work, target)
    return library


def _build(work: Path, text: str, options: CompileOptions, command: tuple[str, ...],
           includes: Sequence[Path]) -> None:
    source = f"{options.entry}.cu"
    (work / source).write_text(text, "utf-8")
    bounds = _launch_bounds(text, options.entry)
    entry = f'#include "{source}"\n' + _ENTRY.replace("ENTRY", options.entry).replace(
        "BOUNDS", bounds)
    (work / "entry.cpp").write_text(entry, "utf-8")
    folders = [f for path in (TWINS, *includes) for f in ("-I", str(path))]
    log = _run([*command, "-include", str(NATIVE / "prelude.h"), *folders, "-c", "entry.cpp",
                "-o", "kernel.o"], work)
    if log:
        raise _compile_error(log, text, options)
    log = _run([command[0], "-shared", "kernel.o", "-o", "kernel.so", "-lm"], work)
    if log:
        raise _compile_error(log, text, options)
    (work / "kernel.o").unlink()


def _launch_bounds(text: str, entry: str) -> str:
    """Return the first argument of the entry's __launch_bounds__ as C++ text, "0" without."""
    found = re.search(r"__launch_bounds__\s*\(([^(),]*)[^()]*\)\s*" + entry + r"\s*\(", text)
    return found[1].strip() if found else "0"


def _arch_number(arch: str) -> str:
    return re.sub(r"\D", "", arch)


def _need_twins(text: str, closure: dict[str, bytes], entry: str) -> None:
    """Refuse instruction headers that no host twin replaces, before their asm confuses anyone."""
    # Headers that twins replace are not followed: what they include is the twin's affair.
    names = {n for n in closure if n.startswith("ge2/ptx/")} | set(_PTX_INCLUDE.findall(text))
    missing = sorted(n for n in names if not (TWINS / n).is_file())
    if missing:
        raise CompileFailed(
            f"{entry}: the emulate backend has no host twin of <{missing[0]}>",
            hint=f"write {TWINS.name}/{missing[0]} with the same functions")


def _compile_error(log: str, text: str, options: CompileOptions) -> CompileFailed:
    saved = cache_folder() / "failed" / f"{_digest(text)}.cu"
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text(text, "utf-8")
    clean = log.replace("‘", "'").replace("’", "'")
    # Only the first error: an unknown name behind another mistake may be that one's consequence.
    first = next((line for line in clean.splitlines() if "error" in line), clean[:300])
    for pattern in _UNKNOWN:
        match = pattern.search(first)
        if match:
            return CompileFailed(
                f"{options.entry}: the emulate backend has no host twin of {match[1]}",
                log=clean, source_path=str(saved),
                hint="add it to ge2/runtime/emulate/native")
    return CompileFailed(f"{options.entry} does not compile for the host: {first}", log=clean,
                         source_path=str(saved))
