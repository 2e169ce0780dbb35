"""The only reader of GE2_* environment variables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from .errors import Invalid, near_matches


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Attributes:
        name, default, doc: as listed by `ge2 env`.
        choices: allowed values; empty for any.
        pattern: what a value must match; empty for anything.
        form: that pattern in words.
    """

    name: str
    default: str
    choices: tuple[str, ...]
    doc: str
    pattern: str = ""
    form: str = ""


VARIABLES: dict[str, Variable] = {
    v.name: v
    for v in (
        Variable("GE2_CACHE_DIR", "", (), "folder of compiled kernels"),
        Variable("GE2_CACHE", "1", ("0", "1"), "0 keeps compiled kernels in memory only"),
        Variable("GE2_CACHE_MAX_SIZE", "2G", (), "size cap of the kernel cache",
                 r"\d+(\.\d+)?\s*[KMGTkmgt]?[Bb]?", "a size such as 512M or 2G"),
        Variable("GE2_KERNEL_PATH", "", (), "folders of own kernel templates, as PATH separates"),
        Variable("GE2_DATA_DIR", "", (), "folder of tuning evidence"),
        Variable("GE2_ALWAYS_COMPILE", "0", ("0", "1"), "1 ignores cached kernels"),
        Variable("GE2_LINEINFO", "0", ("0", "1"),
                 "1 compiles with -lineinfo, in lines of the templates, for profilers"),
        Variable("GE2_BACKEND", "", ("", "cuda", "cpu", "emulate"), "default backend"),
        Variable("GE2_DEVICE", "0", (), "default CUDA device index", r"\d+",
                 "the index of a GPU, such as 0"),
        Variable("GE2_F32", "ieee", ("ieee", "tf32", "x3"), "how f32 GEMMs are computed"),
        Variable("GE2_PREPARE", "1", ("0", "1"),
                 "0 brings weights into the form that kernels want in every call, to save memory"),
        Variable("GE2_SYNC", "0", ("0", "1"), "1 synchronises after every launch, names the node"),
        Variable("GE2_DEBUG", "0", ("0", "1", "2", "3", "4"), "detail; 1 shows tracebacks"),
        Variable("GE2_TUNE", "on", ("on", "off", "pinned"),
                 "whether runs use tuned kernels: on, off, or those of the model's lock file"),
        Variable("GE2_LOG", "", (), "comma list of cache, compile, select, fuse, tune"),
        Variable("GE2_JOBS", "", (), "compile worker processes; empty = number of cores",
                 r"[1-9]\d{0,3}", "a number of processes from 1"),
        Variable("GE2_CXX", "", (), "host C++ compiler of the emulate backend"),
    )
}


def get(name: str) -> str:
    """Return a variable's value; unset and empty mean the default.

    Raises:
        Invalid: the value is not one of the allowed ones.
    """
    variable = VARIABLES[name]
    value = os.environ.get(name, "") or variable.default
    if variable.choices and value not in variable.choices:
        allowed = ", ".join(c or "(empty)" for c in variable.choices)
        raise Invalid(f"{name} has a bad value", found=repr(value), wanted=allowed)
    if value and variable.pattern and not re.fullmatch(variable.pattern, value):
        raise Invalid(f"{name} has a bad value", found=repr(value), wanted=variable.form)
    return value


def unknown_variables() -> list[str]:
    """Return one warning for each GE2_* variable in the environment that ge2 does not know."""
    return [
        f"{name} is not a ge2 variable; {near_matches(name, VARIABLES) or 'see ge2 env'}"
        for name in sorted(os.environ)
        if name.startswith("GE2_") and name not in VARIABLES
    ]
