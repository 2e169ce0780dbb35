"""Reading model.json: bytes to a typed ModelFile, with file and JSON path in every error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ModelError, near_matches
from .schema import FORMAT_VERSION, ModelFile

_MSGSPEC_ERROR = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?(?P<path>\$.*)`)?$", re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>.*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])")
_LONG_NUMBER = re.compile(r"[0-9]{4301,}")
_EXPECTED = re.compile(r"Expected `(?P<kind>[^`]*)`(?P<rule>.*?)(?:, got `.*`)?$", re.DOTALL)
# How an error names JSON's types, and what a pattern of the schema means.
_WORDS = {"int": "a whole number", "int | str": "a whole number or a name", "str": "a string",
          "float": "a number", "array": "a list", "object": "an object",
          "str | null": "a string", "str | array | null": "a string or a list"}
_RULES = (("matching regex '^[A-Za-z_]", " of letters, digits and _"),
          ("matching regex", " without control characters"),
          ("of length >= 1", " that is not empty"))
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


class _Doubled(dict[str, Any]):
    """A JSON object in which a key occurred twice."""

    key: str


def read_text(path: Path) -> str:
    """Return a text file's content.

    Raises:
        ModelError: the file is missing, a directory, unreadable, empty or not UTF-8.
    """
    if path.is_dir():
        inside = sorted(p.name for p in path.glob("*.json"))
        hint = f"It holds {', '.join(inside)}: name one of them" if inside else ""
        raise ModelError(f"{path} is a folder", wanted="a model file such as model.json", hint=hint)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist", hint=_siblings(path)) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not data.strip():
        raise ModelError(f"{path} is empty", wanted="a JSON object")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text: byte {error.start} is "
                         f"0x{data[error.start]:02x}", wanted="JSON text") from None


def parse_json(text: str, path: Path) -> Any:
    """Return parsed JSON.

    Raises:
        ModelError: not JSON (with line and column), NaN or Infinity, or a key given twice.
    """
    flagged: list[str] = []

    def constant(word: str) -> float:
        flagged.append(word)
        return math.nan

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) == len(pairs):
            return table
        seen: set[str] = set()
        doubled = _Doubled(table)
        doubled.key = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        flagged.append(doubled.key)
        return doubled

    try:
        document = json.loads(text, object_pairs_hook=build, parse_constant=constant)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text.splitlines() else ""
        raise ModelError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}",
                         found=repr(line.strip()[:80])) from None
    except RecursionError:
        raise ModelError(f"{path}: nested too deeply to be a model") from None
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise _long_number(text, path) from None
    if flagged:
        _raise_flagged(document, path)
    if _ESCAPED_SURROGATE.search(text):
        _refuse_surrogates(document, path)
    return document


def _long_number(text: str, path: Path) -> ModelError:
    match = _LONG_NUMBER.search(text)
    assert match is not None
    line, start = text.count("\n", 0, match.start()) + 1, text.rfind("\n", 0, match.start())
    return ModelError(f"{path}:{line}:{match.start() - start}: a number is too large",
                      found=f"{len(match[0])} digits")


def decode(document: Any, path: Path) -> ModelFile:
    """Return the typed form of a parsed model file.

    Raises:
        ModelError: wrong version, unknown or missing key, wrong type, with the JSON path.
    """
    if not isinstance(document, dict):
        raise ModelError(f"{path}: $", found=_kind(document), wanted="a JSON object")
    _check_version(document, path)
    try:
        return msgspec.convert(document, ModelFile)
    except msgspec.ValidationError as error:
        match = _MSGSPEC_ERROR.match(str(error))
        assert match is not None
        what, where = match["what"], match["path"] or "$"
        steps = locate(document, where, what)
        message, details = _say(what, _value_at(document, steps))
        raise ModelError(f"{path}: {json_path(steps)}{message}", **details,
                         hint=_field_hint(what, where)) from None


def read_model_file(path: Path) -> ModelFile:
    """Read and decode one model file.

    Raises:
        ModelError: see read_text, parse_json and decode.
    """
    return decode(parse_json(read_text(path), path), path)


def locate(document: dict[str, Any], where: str, what: str) -> list[str | int]:
    """Return msgspec's path with `[...]`, a key it does not name, replaced by the wrong key.

    The key is found by decoding the document again with one key at a time.
    """
    steps: list[str | int] = []
    for key, index, anonymous in _STEP.findall(where):
        if anonymous:
            steps.append(_culprit(document, steps, what))
        else:
            steps.append(key or int(index))
    return steps


def json_path(steps: list[str | int]) -> str:
    """Return a JSON path such as $.nodes[3].attrs["a b"]."""
    text = "$"
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.match(step):
            text += f".{step}"
        else:
            text += f"[{json.dumps(step)}]"
    return text


def _culprit(document: dict[str, Any], steps: list[str | int], what: str) -> str:
    container: Any = document
    for step in steps:
        container = container[step]
    for key, child in container.items():
        try:
            msgspec.convert(_with(document, steps, {key: child}), ModelFile)
        except msgspec.ValidationError as error:
            if str(error).startswith(what):
                return str(key)
    return "?"


def _with(document: Any, steps: list[str | int], value: Any) -> Any:
    """Return the document with the value at steps replaced."""
    if not steps:
        return value
    head, rest = steps[0], steps[1:]
    changed = _with(document[head], rest, value)
    if isinstance(document, list):
        return [changed if i == head else item for i, item in enumerate(document)]
    return {**document, head: changed}


def _children(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _raise_flagged(document: Any, path: Path) -> None:
    stack: list[tuple[list[str | int], Any]] = [([], document)]
    while stack:
        steps, value = stack.pop()
        if isinstance(value, _Doubled):
            raise ModelError(f"{path}: {json_path(steps)}: key {value.key!r} is given twice")
        if isinstance(value, float) and math.isnan(value):
            raise ModelError(f"{path}: {json_path(steps)}: NaN and Infinity are not JSON",
                             wanted='a number; a float attribute also takes "inf", "-inf", "nan"')
        stack.extend(([*steps, key], child) for key, child in _children(value))
    raise ModelError(f"{path}: NaN, Infinity or a key given twice")


def _refuse_surrogates(document: Any, path: Path) -> None:
    """Refuse halves of UTF-16 pairs, which are no characters; whole pairs are."""
    stack: list[tuple[list[str | int], Any]] = [([], document)]
    while stack:
        steps, value = stack.pop()
        keys = value if isinstance(value, dict) else ()
        for text in (value, *keys):
            if isinstance(text, str) and _SURROGATE.search(text):
                raise ModelError(f"{path}: {json_path(steps)}: half of a surrogate pair is no "
                                 "character", found=ascii(text))
        stack.extend(([*steps, key], child) for key, child in _children(value))


def _check_version(document: dict[str, Any], path: Path) -> None:
    if "ge2" not in document:
        raise ModelError(f"{path}: $.ge2: the format version is missing",
                         wanted=f'"ge2": {FORMAT_VERSION}',
                         hint="Is this a ge2 model file? See docs/model-format.md")
    version = document["ge2"]
    if not isinstance(version, int) or isinstance(version, bool) or version != FORMAT_VERSION:
        raise ModelError(f"{path}: $.ge2: unknown format version", found=json.dumps(version),
                         wanted=FORMAT_VERSION,
                         hint="A newer file needs a newer ge2: pip install -U ge2")


def _value_at(document: Any, steps: list[str | int]) -> Any:
    """Return what the file holds at a path; the path's end may be a key instead of a value."""
    value = document
    for step in steps:
        if not isinstance(value, dict | list) or (isinstance(value, dict) and step not in value):
            return step
        value = value[step]  # type: ignore[index] # an int where it is a list
    return value


def _say(what: str, value: Any) -> tuple[str, dict[str, str]]:
    """Return msgspec's message for who wrote the file, and what was found and wanted."""
    match = _EXPECTED.match(what)
    if match is None:
        return f": {what.replace('Object', 'object').replace('`', chr(39))}", {}
    rule = next((text for part, text in _RULES if part in match["rule"]), match["rule"])
    found = json.dumps(value, ensure_ascii=False)
    return ": a wrong value", {"found": found if len(found) <= 60 else f"{found[:57]}...",
                "wanted": _WORDS.get(match["kind"], match["kind"]) + rule}


def _field_hint(what: str, where: str) -> str:
    match = _UNKNOWN_FIELD.search(what)
    if match is None:
        return ""
    known = _fields_at(where)
    return near_matches(match["name"], known) or f"Known keys: {', '.join(known)}"


def _fields_at(where: str) -> list[str]:
    from . import schema

    table: dict[str, Any] = {"$.nodes": schema.NodeDecl, "$.inputs": schema.InputDecl,
                             "$.state": schema.StateDecl, "$.sample": schema.SampleDecl}
    for prefix, kind in table.items():
        if where.startswith(prefix):
            return [field.name for field in msgspec.structs.fields(kind)]
    return [field.name for field in msgspec.structs.fields(ModelFile)]


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _siblings(path: Path) -> str:
    if path.name == "-":
        return ("A model's weights and sample lie beside it: it is read from a file, not from "
                "standard input")
    try:
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:
        names = []
    if not path.parent.is_dir():
        return f"The folder {path.parent} does not exist either"
    return near_matches(path.name, names)
