"""Realizations of primitives: headers below include/ge2/prim, found by scanning.

One realization is one header with a TOML block in its leading comment. A kernel's param whose
choices are "prim/<primitive>/*" takes each of them, those in users' folders too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ... import paths
from ...errors import KernelSpecError, near_matches
from .metadata import Params, ParamValue, arch_matches

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from ...problem import Problem
    from .metadata import Variant

PARAM = "REALIZATION"
SCOPE = "SCOPE"
_BLOCK = re.compile(r"\A/\*-{3}\s*toml[^\n]*\n(.*?)\n\s*-{3}\*/", re.DOTALL)
_PATTERN = re.compile(r"prim/(\w+)/\*")
_KEYS = ("primitive", "summary", "numerics", "arch", "scopes", "extra_threads")


@dataclass(frozen=True, slots=True)
class Header:
    """What a realization says of itself.

    Attributes:
        name: file stem. primitive: folder: whose contract it keeps. path: the file.
        summary: one line. numerics: its order of accumulation.
        archs: patterns of architectures that run it; empty for all.
        scopes: who reduces together: "warp", "block", "cluster", "grid"; empty where that is no
            question.
        extra_threads: of a block beyond those that consume.
    """

    name: str
    primitive: str
    path: Path
    summary: str = ""
    numerics: str = ""
    archs: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    extra_threads: int = 0


def include_dirs() -> tuple[Path, ...]:
    """Return the folders that `#include <ge2/...>` is looked up in; ge2's own is the first."""
    own = paths.include_dir()
    users = (folder / "include" for folder in paths.user_kernel_dirs())
    return (own, *(folder for folder in users if folder.is_dir()))


def names_of(pattern: str) -> tuple[str, ...]:
    """Return the realizations that "prim/<primitive>/*" stands for; () for any other text."""
    match = _PATTERN.fullmatch(pattern)
    return tuple(sorted(_files(match[1]))) if match else ()


def realizations(primitive: str) -> dict[str, Header]:
    """Return the realizations of a primitive by name.

    Raises:
        KernelSpecError: a header's block is missing, no TOML, or has an unknown key.
    """
    return {name: _read(path, primitive) for name, path in sorted(_files(primitive).items())}


def _files(primitive: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in reversed(include_dirs()):
        found |= {p.stem: p for p in (folder / "ge2" / "prim" / primitive).glob("*.cuh")}
    return found


def _read(path: Path, primitive: str) -> Header:
    match = _BLOCK.match(path.read_text("utf-8"))
    if match is None:
        raise KernelSpecError(f"{path.name} says nothing of itself",
                              wanted="a leading /*--- toml block")
    try:
        raw = tomllib.loads(match[1])
    except tomllib.TOMLDecodeError as error:
        raise KernelSpecError(f"{path.name}: metadata is not valid TOML: {error}") from error
    for key in raw:
        if key not in _KEYS:
            raise KernelSpecError(f"{path.name}: unknown key {key!r}",
                                  hint=near_matches(key, _KEYS))
    if raw.get("primitive") != primitive:
        raise KernelSpecError(f"{path.name} lies in the folder of another primitive",
                              found=raw.get("primitive"), wanted=primitive)
    return Header(path.stem, primitive, path, raw.get("summary", ""), raw.get("numerics", ""),
                  tuple(raw.get("arch", ())), tuple(raw.get("scopes", ())),
                  int(raw.get("extra_threads", 0)))


def impossible(raw: Mapping[str, object], params: Mapping[str, tuple[ParamValue, ...]]
               ) -> list[Params]:
    """Return the combinations of realization and scope that no header is made for.

    Args:
        raw: the params of a template as written. params: their choices.
    """
    match = _PATTERN.fullmatch(str(raw.get(PARAM, "")))
    if match is None or SCOPE not in params:
        return []
    found = realizations(match[1])
    return [((PARAM, name), (SCOPE, scope)) for name in params[PARAM] for scope in params[SCOPE]
            if scope not in found[str(name)].scopes]


def header_of(variant: Variant) -> Header | None:
    """Return the realization that a variant is built from; None for kernels without such a param.

    Raises:
        KernelSpecError: the header is gone or its metadata is bad.
    """
    name = variant.param_map.get(PARAM)
    if name is None:
        return None
    primitive = variant.kernel.name.removeprefix("lab_")
    found = realizations(primitive)
    if name not in found:
        raise KernelSpecError(f"no realization of {primitive} is named {name!r}",
                              hint=near_matches(str(name), found))
    return found[str(name)]


def refuse_realization(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of lab kernels: the device runs the header, which reduces over the wanted scope."""
    header = header_of(variant)
    assert header is not None, variant.id
    if header.archs and not any(arch_matches(a, device.arch) for a in header.archs):
        return f"{header.name} needs {' or '.join(header.archs)}"
    scope = variant.param_map.get(SCOPE)
    if scope is not None and scope not in header.scopes:
        return f"{header.name} does not reduce over a {scope}"
    return ""
