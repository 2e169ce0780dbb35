"""Evidence as files: JSON lines between machines, and what ships with ge2.

The first line names the schema, the last one counts the lines between, so that a file that was cut
is recognised. A file is taken whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from .. import log, paths
from .record import SCHEMA, STATES, Decision, Item, Record, replaces
from .records import EvidenceError

HEADER, END = "ge2_evidence", "end"
_KINDS: dict[str, type[Record] | type[Decision]] = {"record": Record, "decision": Decision}


def to_lines(items: Iterable[Item]) -> list[str]:
    """Return the lines of an evidence file."""
    body = []
    for item in items:
        kind = "record" if isinstance(item, Record) else "decision"
        body.append(msgspec.json.encode({kind: item}).decode())
    return [json.dumps({HEADER: SCHEMA}), *body, json.dumps({END: len(body)})]


def write_file(path: Path, items: Iterable[Item]) -> int:
    """Write an evidence file and return how many items it holds.

    Raises:
        EvidenceError: the file cannot be written.
    """
    lines = to_lines(items)
    try:
        paths.write_atomic(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise EvidenceError(f"{path} cannot be written", found=error.strerror) from error
    return len(lines) - 2


def read_file(path: Path) -> list[Item]:
    """Return everything in an evidence file.

    Raises:
        EvidenceError: it cannot be read, is no evidence, is cut, is newer, or one line is bad; then
            nothing of it counts.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{path} cannot be read", found=str(error)) from error
    return from_lines(lines, str(path))


def from_lines(lines: Sequence[str], name: str) -> list[Item]:
    """Return the items of an evidence file's lines; errors as read_file."""
    head = _object(lines[0], name, 1) if lines else {}
    version = head.get(HEADER)
    if not isinstance(version, int):
        raise EvidenceError(f"{name} is no evidence file of ge2",
                            hint="ge2 tune export writes such files")
    if version > SCHEMA:
        raise EvidenceError(f"{name} comes from a newer ge2", found=f"schema {version}",
                            wanted=f"at most {SCHEMA}", hint="Update ge2")
    last = _object(lines[-1], name, len(lines))
    if last.get(END) != len(lines) - 2:
        raise EvidenceError(f"{name} is cut", found=f"{len(lines)} lines",
                            wanted='a last line {"end": count} with the count of the others')
    return [_item(_object(line, name, number), name, number)
            for number, line in enumerate(lines[1:-1], start=2)]


def _object(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise EvidenceError(f"{name}:{number} is no JSON", found=str(error)) from None
    if not isinstance(value, dict):
        raise EvidenceError(f"{name}:{number} is no JSON object", found=line[:60])
    return value


def _item(value: dict[str, Any], name: str, number: int) -> Item:
    (kind, body), *more = value.items() if value else (("nothing", None),)
    if kind not in _KINDS or more:
        raise EvidenceError(f"{name}:{number} is neither record nor decision", found=kind)
    try:
        item = msgspec.convert(body, _KINDS[kind], strict=True)
    except msgspec.ValidationError as error:
        raise EvidenceError(f"{name}:{number}: {error}") from None
    if isinstance(item, Record) and item.state not in STATES:
        raise EvidenceError(f"{name}:{number}: unknown state", found=item.state,
                            wanted=", ".join(STATES))
    return item


@cache
def shipped() -> tuple[Item, ...]:
    """Return the evidence that comes with ge2; a file that is bad is left out with a warning."""
    found: list[Item] = []
    for path in sorted((Path(__file__).parent / "shipped").glob("*.jsonl")):
        try:
            found += read_file(path)
        except EvidenceError as error:
            log.topic("tune").warning("%s", error)
    return tuple(found)


def merged(groups: Iterable[Iterable[Item]]) -> list[Item]:
    """Return the newest item of each key."""
    best: dict[tuple[str, ...], Item] = {}
    for group in groups:
        for item in group:
            known = best.get(item.key)
            if known is None or replaces(item, known):
                best[item.key] = item
    return list(best.values())
