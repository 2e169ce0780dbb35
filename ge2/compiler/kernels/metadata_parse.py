"""Reads the TOML block of a kernel template into a KernelInfo; its vocabulary is closed.

The block stands in the first jinja comment of a `*.cu.j2` file, so it vanishes on render:

    {#--- toml
    name = "gemm_bias_act_f32_tiled"
    ...
    ---#}

Every error names file and line, and unknown keys get a "did you mean".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import Any

from ...contract import DTYPES, GE2_API_VERSION
from ...errors import ApiVersionMismatch, KernelSpecError, near_matches
from . import headers
from .metadata import (
    DIMS,
    FLAGS,
    LAYOUTS,
    DtypeRule,
    Guards,
    KernelInfo,
    Number,
    Params,
    ParamValue,
    evaluate,
    is_arch_pattern,
)

_BLOCK = re.compile(r"\A\s*\{#-{3}\s*toml[^\n]*\n(.*?)\n\s*-{3}#\}", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

KEYS = ("name", "op_type", "summary", "launch", "score", "numerics", "archs", "entries", "dtypes",
        "layouts", "flags", "params", "guards", "exclude", "api")
REQUIRED = ("name", "op_type", "launch", "dtypes")
GUARD_KEYS = tuple(f.name for f in fields(Guards))


@dataclass(frozen=True, slots=True)
class Where:
    """Finds the line of a metadata key for error messages.

    Attributes:
        path: template path, or "register()" for a dictionary.
        text: the template's text.
    """

    path: str
    text: str = ""

    def error(self, message: str, key: str = "", **kw: Any) -> KernelSpecError:
        """Return the error with the key's place in front."""
        return KernelSpecError(f"{self._place(key)}: {message}", **kw)

    def unknown(self, what: str, name: object, known: Iterable[str]) -> KernelSpecError:
        """Return the error for a name outside the vocabulary."""
        known = tuple(known)
        hint = near_matches(str(name), known) or "known: " + ", ".join(known)
        return self.error(f"unknown {what} {name!r}", str(name), hint=hint)

    def _place(self, key: str) -> str:
        block, first = split_block(self.text)
        if not first:
            return self.path
        word = re.compile(rf'(?<![\w]){re.escape(key)}(?![\w+])"?\s*(=|\.|\]|"|$)')
        lines = block.splitlines() if key else []
        hit = next((i for i, line in enumerate(lines) if word.search(line.split("#")[0])), 0)
        return f"{self.path}:{first + hit}"


def split_block(text: str) -> tuple[str, int]:
    """Return (TOML text, line of its first line) of a template; ("", 0) when it has no block."""
    match = _BLOCK.match(text)
    if not match:
        return "", 0
    return match[1], text.count("\n", 0, match.start(1)) + 1


def parse_block(text: str, path: str) -> dict[str, Any]:
    """Return the raw metadata table of a template; empty when it has none.

    Raises:
        KernelSpecError: the block is not TOML; names file and line.
    """
    block, first = split_block(text)
    if not first:
        return {}
    import tomllib  # here: no start-up with an index needs it

    try:
        return tomllib.loads(block)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = first + (int(found[1]) - 1 if found else 0)
        raise KernelSpecError(f"{path}:{line}: metadata is not valid TOML: {error}") from error


def build(raw: Mapping[str, Any], template: str, where: Where) -> KernelInfo:
    """Check a raw table (TOML, or the dictionary of register()) and return its KernelInfo.

    Raises:
        KernelSpecError: a key is unknown, missing or has a wrong value; names file and line.
        ApiVersionMismatch: `api` names another contract version than this ge2's.
    """
    for key in raw:
        if key not in KEYS:
            raise where.unknown("key", key, KEYS)
    for key in REQUIRED:
        if key not in raw:
            raise where.error(f"metadata lacks {key!r}", hint=f"needed: {', '.join(REQUIRED)}")
    if raw.get("api", GE2_API_VERSION) != GE2_API_VERSION:
        raise ApiVersionMismatch(f"{where.path} is written for another GE2_API_VERSION",
                                 argument="api", found=raw["api"], wanted=GE2_API_VERSION,
                                 hint="docs/contract.md tells how to migrate")
    name = _text(raw, "name", where)
    stem = PurePath(template).name.removesuffix(".cu.j2")
    if name != stem:
        raise where.error("name differs from the file's", "name", found=name, wanted=stem)
    flags, min_mnk = _flags(raw.get("flags", {}), where)
    params = _params(raw.get("params", {}), where)
    realized = headers.primitives_of(raw.get("params", {}))
    guards = raw.get("guards", {})
    per_arch = {k: v for k, v in guards.items() if isinstance(v, Mapping) and is_arch_pattern(k)}
    common = {k: v for k, v in guards.items() if k not in per_arch}
    info = KernelInfo(
        name=name,
        op_type=_text(raw, "op_type", where),
        template=template,
        launch=_text(raw, "launch", where),
        summary=_text(raw, "summary", where),
        score=_typed(raw.get("score", 50), int, "score", where),
        numerics=_text(raw, "numerics", where) or name,
        archs=_names(raw.get("archs", ["sm_75+"]), "archs", is_arch_pattern, where),
        entries=_names(raw.get("entries", [name]), "entries", _is_identifier, where),
        dtypes=_dtypes(raw["dtypes"], where),
        layouts=_layouts(raw.get("layouts", {}), where),
        flags=flags,
        min_mnk=min_mnk,
        params=params,
        guards=_guards(common, where),
        arch_guards=tuple((arch, _guards({**common, **own}, where))
                          for arch, own in per_arch.items()),
        exclude=(*_exclude(raw.get("exclude", []), dict(params), where),
                 *headers.impossible(realized, dict(params))),
        realized=realized,
    )
    _check_variants(info, where)
    return info


def _typed(value: Any, kind: type | tuple[type, ...], key: str, where: Where) -> Any:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(k.__name__ for k in kinds)
        raise where.error(f"{key} has a wrong type", key, found=repr(value), wanted=wanted)
    return value


def _text(raw: Mapping[str, Any], key: str, where: Where) -> str:
    value: str = _typed(raw.get(key, ""), str, key, where)
    return value


def _is_identifier(name: str) -> bool:
    return bool(_IDENTIFIER.fullmatch(name))


def _names(value: Any, key: str, accept: Callable[[str], bool], where: Where) -> tuple[str, ...]:
    names = tuple(_typed(value, (list, tuple), key, where))
    for name in names:
        if not isinstance(name, str) or not accept(name):
            raise where.error(f"{key} holds a wrong name", key, found=repr(name))
    if not names:
        raise where.error(f"{key} is empty", key)
    return names


def _dtypes(value: Any, where: Where) -> tuple[DtypeRule, ...]:
    rows = [value] if isinstance(value, Mapping) else _typed(value, (list, tuple), "dtypes", where)
    if not rows:
        raise where.error("dtypes is empty", "dtypes")
    return tuple(_dtype_rule(_typed(row, (dict,), "dtypes", where), where) for row in rows)


def _dtype_rule(row: Mapping[str, Any], where: Where) -> DtypeRule:
    for key in row:
        if key not in ("in", "out"):
            raise where.unknown("key of dtypes", key, ("in", "out"))
    inputs, output = row.get("in", ["*"]), row.get("out", "*")
    for name in (*_typed(inputs, (list, tuple), "dtypes", where), output):
        if name != "*" and name not in DTYPES:
            raise where.unknown("dtype", name, (*DTYPES, "*"))
    return DtypeRule(tuple(inputs), output)


def _layouts(value: Any, where: Where) -> tuple[tuple[str, tuple[str, ...]], ...]:
    result = []
    for operand, choices in _typed(value, dict, "layouts", where).items():
        choices = (choices,) if isinstance(choices, str) else choices
        for choice in _typed(choices, (list, tuple), operand, where):
            if choice not in LAYOUTS:
                raise where.unknown("layout", choice, LAYOUTS)
        result.append((operand, tuple(choices)))
    return tuple(result)


def _flags(value: Any, where: Where) -> tuple[frozenset[str], tuple[int, int, int]]:
    table = dict(_typed(value, dict, "flags", where))
    minimum = tuple(_typed(table.pop("min_mnk", (0, 0, 0)), (list, tuple), "min_mnk", where))
    if len(minimum) != 3 or not all(type(v) is int for v in minimum):
        raise where.error("min_mnk is not three integers", "min_mnk", found=minimum)
    for name, on in table.items():
        if name not in FLAGS:
            raise where.unknown("flag", name, (*FLAGS, "min_mnk"))
        _typed(on, bool, name, where)
    return frozenset(name for name, on in table.items() if on), minimum


def _params(value: Any, where: Where) -> tuple[tuple[str, tuple[ParamValue, ...]], ...]:
    result = []
    for name, choices in _typed(value, dict, "params", where).items():
        if not _is_identifier(name):
            raise where.error("a param name is no identifier", "params", found=repr(name))
        choices = choices if isinstance(choices, (list, tuple)) else (choices,)
        if len(choices) == 1 and isinstance(choices[0], str):
            choices = headers.names_of(choices[0]) or choices
        for choice in choices:
            _typed(choice, (int, str), name, where)
        if not choices or len(set(choices)) != len(choices):
            raise where.error(f"param {name} needs distinct choices", name, found=list(choices))
        result.append((name, tuple(choices)))
    return tuple(result)


def _guards(value: Any, where: Where) -> Guards:
    checked: dict[str, Any] = {}
    for key, found in _typed(value, dict, "guards", where).items():
        if key not in GUARD_KEYS:
            raise where.unknown("guard", key, GUARD_KEYS)
        if key in ("multiple_of", "max", "min"):
            checked[key] = _bounds(found, key, where)
        elif key in ("contiguous", "inner_contiguous", "index32"):
            checked[key] = _typed(found, bool, key, where)
        else:
            checked[key] = _typed(found, str if key == "custom" else (int, str), key, where)
    return Guards(**checked)


def _bounds(value: Any, key: str, where: Where) -> tuple[tuple[str, Number], ...]:
    for dim, number in _typed(value, dict, key, where).items():
        if dim not in DIMS:
            raise where.unknown(f"dimension in {key}", dim, DIMS)
        _typed(number, (int, str), key, where)
    return tuple(value.items())


def _exclude(value: Any, params: Mapping[str, tuple[ParamValue, ...]],
             where: Where) -> tuple[Params, ...]:
    for row in _typed(value, (list, tuple), "exclude", where):
        for name, choice in _typed(row, dict, "exclude", where).items():
            if name not in params:
                raise where.unknown("param in exclude", name, params)
            if choice not in params[name]:
                raise where.error(f"exclude names no choice of {name}", "exclude", found=choice,
                                  wanted=list(params[name]))
    return tuple(tuple(row.items()) for row in value)


def _check_variants(info: KernelInfo, where: Where) -> None:
    """Refuse a kernel without variants and guards whose expressions do not evaluate."""
    if not info.variants:
        raise where.error("exclude drops every variant", "exclude")
    params = info.variants[0].param_map
    for guards in (info.guards, *(own for _, own in info.arch_guards)):
        numbers = [("align", guards.align), ("max_rank", guards.max_rank),
                   ("smem_max", guards.smem_max)]
        bounds = (*guards.multiple_of, *guards.max, *guards.min)
        for key, number in (*numbers, *bounds):
            try:
                evaluate(number, params)
            except KernelSpecError as error:
                raise where.error(str(error), key) from error
    try:
        info.variants[0].numerics  # noqa: B018 - formatting checks the param names in it
    except (KeyError, IndexError, ValueError) as error:
        raise where.error("numerics names no param", "numerics", found=repr(info.numerics),
                          ) from error
