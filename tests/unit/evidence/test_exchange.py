"""Evidence files: round trips, merging, and files that are refused whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ge2.evidence import exchange
from ge2.evidence.records import EvidenceError

from .test_records import decision, record


def test_a_file_reads_back(tmp_path: Path) -> None:
    items = [record("a"), record("b", state="wrong"), decision()]
    assert exchange.write_file(tmp_path / "e.jsonl", items) == 3
    assert exchange.read_file(tmp_path / "e.jsonl") == items


def _cut(lines: list[str]) -> list[str]:
    return lines[:-2]


def _cut_in_a_line(lines: list[str]) -> list[str]:
    return [*lines[:-2], lines[-2][:20]]


def _newer(lines: list[str]) -> list[str]:
    return [json.dumps({exchange.HEADER: 99}), *lines[1:]]


def _foreign(lines: list[str]) -> list[str]:
    return ['{"url": "x"}', *lines[1:]]


def _wrong_type(lines: list[str]) -> list[str]:
    return [lines[0], lines[1].replace('"time_us":1.0', '"time_us":"fast"'), *lines[2:]]


def _wrong_state(lines: list[str]) -> list[str]:
    return [lines[0], lines[1].replace('"state":"ok"', '"state":"splendid"'), *lines[2:]]


@pytest.mark.parametrize(("edit", "says"), [
    (_cut, "cut"), (_cut_in_a_line, "no JSON"), (_newer, "newer ge2"), (_foreign, "no evidence"),
    (_wrong_type, "time_us"), (_wrong_state, "unknown state"), (lambda lines: [], "no evidence"),
    (lambda lines: ["[1]"], "no JSON object"),
], ids=["cut", "cut_in_a_line", "newer", "foreign", "type", "state", "empty", "list"])
def test_a_bad_file_is_refused_whole(tmp_path: Path, edit: Callable[[list[str]], list[str]],
                                     says: str) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text("\n".join(edit(exchange.to_lines([record("a"), record("b")]))))
    with pytest.raises(EvidenceError, match=says):
        exchange.read_file(path)


def test_merging_keeps_the_newest_of_each_key() -> None:
    old, new, other = record(date=1.0), record(date=2.0, time_us=5.0), record("w")
    assert exchange.merged([[new], [old, other]]) == [new, other]
    assert exchange.merged([[old], [new]]) == [new]


def test_what_ships_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    exchange.shipped.cache_clear()
    exchange.shipped()
    assert not caplog.records
