"""The evidence database: what it keeps, and what it does with files that are no database of its."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ge2.evidence.exchange import merged
from ge2.evidence.record import Decision, Record
from ge2.evidence.records import EvidenceError, Store


def record(variant: str = "v", problem: str = "p", time_us: float = 1.0, date: float = 1.0,
           state: str = "ok", cubin: str = "c") -> Record:
    return Record(problem=problem, op_type="OP", shape="OP: f32[1]", variant=variant, device="d",
                  cubin=cubin, state=state, time_us=time_us, date=date)


def decision(variant: str = "v", date: float = 1.0) -> Decision:
    return Decision(problem="p", op_type="OP", shape="OP: f32[1]", device="d", variant=variant,
                    cubin="c", date=date)


def test_records_come_back_as_they_were_fastest_first(tmp_path: Path) -> None:
    with Store(tmp_path / "evidence.db") as store:
        items = [record("slow", time_us=9.5), record("fast", time_us=0.25),
                 record("bad", state="wrong", time_us=0.0)]
        store.put(*items, decision())
    with Store(tmp_path / "evidence.db") as store:
        assert [r.variant for r in store.records(problem="p")] == ["fast", "slow", "bad"]
        assert set(store.records()) == set(items)
        assert store.decisions() == [decision()]
        assert store.records(problem="other") == []


def test_the_newer_of_two_stays_whatever_comes_last() -> None:
    store = Store(None)
    store.put(record(time_us=2.0, date=5.0), decision("new", 5.0))
    store.put(record(time_us=1.0, date=4.0), decision("old", 4.0))
    assert [r.time_us for r in store.records()] == [2.0]
    assert [d.variant for d in store.decisions()] == ["new"]
    store.put(record(time_us=3.0, date=6.0))
    assert [r.time_us for r in store.records()] == [3.0]


def test_a_check_without_times_leaves_times_and_what_fails_does_not() -> None:
    store = Store(None)
    store.put(record(time_us=2.0, date=5.0))
    checked, failed = record(time_us=0.0, date=6.0), record(state="wrong", time_us=0.0, date=7.0)
    store.put(checked)
    assert [r.time_us for r in store.records()] == [2.0]
    assert [r.time_us for r in merged([store.records(), [checked]])] == [2.0]
    store.put(failed)
    assert [r.state for r in store.records()] == ["wrong"]
    store.put(record(time_us=3.0, date=8.0))
    assert [r.time_us for r in store.records()] == [3.0]


def test_other_kernels_of_a_variant_are_another_record() -> None:
    store = Store(None)
    store.put(record(cubin="a"), record(cubin="b"))
    assert len(store.records()) == 2


def test_forget_deletes_one_problem() -> None:
    store = Store(None)
    store.put(record(), record(problem="q"), decision())
    assert store.forget(problem="p") == 2
    assert [r.problem for r in store.records()] == ["q"]


@pytest.mark.parametrize("damage", ["garbage", "truncated", "foreign", "newer"])
def test_what_is_no_such_database_is_kept_aside(tmp_path: Path, damage: str,
                                                caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "evidence.db"
    if damage == "garbage":
        path.write_bytes(b"no database" * 1000)
    elif damage == "foreign":
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE bookmarks (url TEXT)")
    else:
        with Store(path) as store:
            store.put(*(record(f"v{i}") for i in range(500)))
        if damage == "newer":
            with sqlite3.connect(path) as db:
                db.execute("PRAGMA user_version = 99")
        else:
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING), Store(path) as store:
        assert store.records() == []
        store.put(record())
    aside = [p for p in tmp_path.iterdir() if ".aside-" in p.name and not p.name.endswith(
        ("-wal", "-shm"))]
    assert [p.read_bytes() for p in aside] == [before]
    assert len([r for r in caplog.records if "is not used" in r.message]) == 1
    caplog.clear()
    with Store(path) as store:
        assert len(store.records()) == 1
    assert not caplog.records


_WRITER = """
import sys
from pathlib import Path
from ge2.evidence.records import Store
from tests.unit.evidence.test_records import record
with Store(Path(sys.argv[1])) as store:
    print("open", flush=True)
    for i in range(int(sys.argv[3])):
        store.put(record(f"{sys.argv[2]}{i}"))
        print(i, flush=True)
"""


def _writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name, str(count)],
                            stdout=subprocess.PIPE, text=True)


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "evidence.db"
    writers = [_writer(path, name, 200) for name in "ab"]
    assert [w.communicate()[0].splitlines()[-1] for w in writers] == ["199", "199"]
    with Store(path) as store:
        assert len(store.records()) == 400


def test_a_killed_writer_leaves_what_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "evidence.db"
    writer = _writer(path, "k", 100_000)
    assert writer.stdout is not None
    while writer.stdout.readline().strip() != "50":
        pass
    time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    said = [int(line) for line in writer.communicate()[0].split()]
    with Store(path) as store:
        kept = len(store.records())
    assert kept >= max(said, default=50)


def test_without_shared_memory_a_rollback_journal_does(tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    class NoWal(sqlite3.Connection):
        def execute(self, sql: str, *args: object) -> sqlite3.Cursor:  # type: ignore[override]
            if "WAL" in sql:
                raise sqlite3.OperationalError("locking protocol")
            return super().execute(sql, *args)  # type: ignore[arg-type]

    path = tmp_path / "evidence.db"
    monkeypatch.setattr("ge2.evidence.records._connect",
                        lambda p: sqlite3.connect(p, isolation_level=None, factory=NoWal))
    with Store(path) as store:
        store.put(record())
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Store(path) as store:
        assert len(store.records()) == 1


def test_a_full_disk_is_an_error_that_says_so() -> None:
    store = Store(None)
    store.put(record())
    store._db.execute("PRAGMA max_page_count = 4")
    with pytest.raises(EvidenceError, match="full"):
        store.put(*(record(f"v{i}", problem="q" * 500) for i in range(1000)))
    assert [r.problem for r in store.records()] == ["p"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvidenceError, match="GE2_DATA_DIR"):
        Store(tmp_path / "file" / "evidence.db")
