"""Realizations of primitives: headers below include/ge2/prim, found by scanning.

One realization is one header with a TOML block in its leading comment. A kernel's param whose
choices are "prim/<primitive>/*" takes each of them, those in users' folders too. The registry keeps
the parsed blocks in its index and hands them to remember(), so that a start-up parses none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import paths
from ...errors import KernelSpecError, near_matches
from .metadata import Params, ParamValue, arch_matches

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from ...problem import Problem
    from .metadata import Variant

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


def texts() -> dict[str, str]:
    """Return the text of every realization's header by path: what an index of them stands on."""
    return {path.as_posix(): path.read_text("utf-8") for folder in include_dirs()
            for path in sorted((folder / "ge2" / "prim").glob("*/*.cuh"))}


def parsed(found: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the block of each header that has a valid one, by its text."""
    blocks = {}
    for path, text in found.items():
        try:
            blocks[text] = _block(text, path)
        except KernelSpecError:
            continue  # whoever asks for it gets the reason
    return blocks


def remember(blocks: Mapping[str, dict[str, Any]]) -> None:
    """Take blocks by header text that were parsed before, in place of those known so far."""
    _parsed.clear()
    _parsed.update(blocks)


_parsed: dict[str, dict[str, Any]] = {}


def _files(primitive: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in reversed(include_dirs()):
        found |= {p.stem: p for p in (folder / "ge2" / "prim" / primitive).glob("*.cuh")}
    return found


def _block(text: str, name: str) -> dict[str, Any]:
    if text in _parsed:
        return _parsed[text]
    import tomllib  # here: no start-up with an index needs it

    match = _BLOCK.match(text)
    if match is None:
        raise KernelSpecError(f"{name} says nothing of itself",
                              wanted="a leading /*--- toml block")
    try:
        return tomllib.loads(match[1])
    except tomllib.TOMLDecodeError as error:
        raise KernelSpecError(f"{name}: metadata is not valid TOML: {error}") from error


def _read(path: Path, primitive: str) -> Header:
    raw = _block(path.read_text("utf-8"), path.name)
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


def primitives_of(raw: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return which params of a template, as written, are realizations, and of which primitive."""
    return tuple(_primitives(raw))


def _primitives(raw: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, choices in raw.items():
        match = _PATTERN.fullmatch(choices) if isinstance(choices, str) else None
        if match is not None:
            yield name, match[1]


def impossible(realized: tuple[tuple[str, str], ...],
               params: Mapping[str, tuple[ParamValue, ...]]) -> list[Params]:
    """Return the combinations of realization and scope that no header is made for.

    Args:
        realized: as primitives_of() returns it. params: name -> choices.
    """
    dropped: list[Params] = []
    for name, primitive in realized if SCOPE in params else ():
        for one in realizations(primitive).values():
            dropped += [((name, one.name), (SCOPE, scope)) for scope in params[SCOPE]
                        if one.scopes and scope not in one.scopes]
    return dropped


def headers_of(variant: Variant) -> dict[str, Header]:
    """Return the realizations that a variant is built from, by param.

    Raises:
        KernelSpecError: a header is gone or its metadata is bad.
    """
    found = {}
    for param, primitive in variant.kernel.realized:
        name = str(variant.param(param))
        places = [folder / "ge2" / "prim" / primitive / f"{name}.cuh"
                  for folder in include_dirs()]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise KernelSpecError(f"no realization of {primitive} is named {name!r}",
                                  hint=near_matches(name, _files(primitive)))
        found[param] = _read(path, primitive)
    return found


def refuse_realization(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of lab kernels: the device runs the headers, which reduce over the wanted scope."""
    scope = variant.param_map.get(SCOPE)
    for header in headers_of(variant).values():
        if header.archs and not any(arch_matches(a, device.arch) for a in header.archs):
            return f"{header.name} needs {' or '.join(header.archs)}"
        if scope is not None and header.scopes and scope not in header.scopes:
            return f"{header.name} does not reduce over a {scope}"
    return ""
