"""The evidence database of this user: SQLite in the data folder.

Write-ahead logging, so that readers never wait and a killed process loses at most the record that
it was writing; a rollback journal where the file system has no shared memory. A file that is not
such a database is kept aside under another name, with one warning, and a new one is begun.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import filelock
import msgspec

from .. import log, paths
from ..errors import Ge2Error
from .record import SCHEMA, Decision, Item, Record

FILE = "evidence.db"
APPLICATION_ID = 0x67653265  # "ge2e"
BUSY_SECONDS = 30.0

_TABLES = """
CREATE TABLE IF NOT EXISTS records (
    problem TEXT, variant TEXT, device TEXT, cubin TEXT, state TEXT, time_us REAL, date REAL,
    body TEXT NOT NULL, PRIMARY KEY (problem, variant, device, cubin)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (
    problem TEXT, device TEXT, date REAL, body TEXT NOT NULL,
    PRIMARY KEY (problem, device)) WITHOUT ROWID;
"""
# A newer measurement replaces an older one; an import never replaces what is newer here, and a
# check without times no times: as record.replaces() says.
_PUT_RECORD = """
INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET state = excluded.state, time_us = excluded.time_us,
    date = excluded.date, body = excluded.body WHERE excluded.date >= records.date
    AND NOT (excluded.state = 'ok' AND excluded.time_us = 0 AND records.time_us > 0)
"""
_PUT_DECISION = """
INSERT INTO decisions VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET date = excluded.date, body = excluded.body
    WHERE excluded.date >= decisions.date
"""

_T = TypeVar("_T", Record, Decision)


class EvidenceError(Ge2Error, OSError):
    """The evidence database cannot be written, or a file of evidence cannot be taken."""

    exit_code = 3


def default_path() -> Path:
    """Return where the database of this user is."""
    return paths.data_dir() / FILE


class Store:
    """The database. One object per thread; any number of processes.

    Args:
        path: the file; made with its folder where missing. None: in memory.

    Attributes:
        path: the file, None in memory.

    Raises:
        EvidenceError: it cannot be made or opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        try:
            if path is None:
                self._db = _configure(sqlite3.connect(":memory:"))
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(f"{path}.lock", timeout=BUSY_SECONDS):
                reason = why_unusable(path)
                if reason:
                    _keep_aside(path, reason)
                self._db = _configure(_connect(path))
        except (OSError, sqlite3.Error, filelock.Timeout) as error:
            raise EvidenceError(f"the evidence database {path} cannot be opened",
                                found=str(error),
                                hint="Set GE2_DATA_DIR to a folder that can be written") from error

    def put(self, *items: Item) -> None:
        """Write records and decisions in one transaction; each replaces an older one of its key.

        Raises:
            EvidenceError: the disk is full or gone; nothing of this call is written.
        """
        try:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for item in items:
                    self._put(item)
        except sqlite3.Error as error:
            raise EvidenceError("evidence cannot be written", found=str(error),
                                hint=f"Is the disk of {self.path} full?") from error

    def _put(self, item: Item) -> None:
        body = msgspec.json.encode(item).decode()
        if isinstance(item, Record):
            self._db.execute(_PUT_RECORD, (*item.key, item.state, item.time_us, item.date, body))
        else:
            self._db.execute(_PUT_DECISION, (*item.key, item.date, body))

    def records(self, *, problem: str | None = None, device: str | None = None) -> list[Record]:
        """Return records, fastest first, those that failed last."""
        where, values = _where(problem=problem, device=device)
        rows = self._db.execute(f"SELECT body FROM records{where} "
                                "ORDER BY problem, state != 'ok', time_us, variant", values)
        return list(_decode(rows, Record))

    def decisions(self, *, problem: str | None = None, device: str | None = None
                  ) -> list[Decision]:
        """Return decisions, oldest first."""
        where, values = _where(problem=problem, device=device)
        rows = self._db.execute(f"SELECT body FROM decisions{where} ORDER BY date, problem", values)
        return list(_decode(rows, Decision))

    def forget(self, *, problem: str | None = None, device: str | None = None) -> int:
        """Delete records and decisions; return how many."""
        where, values = _where(problem=problem, device=device)
        with self._db:
            return sum(self._db.execute(f"DELETE FROM {table}{where}", values).rowcount
                       for table in ("records", "decisions"))

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _where(**conditions: str | None) -> tuple[str, tuple[str, ...]]:
    given = {name: value for name, value in conditions.items() if value is not None}
    text = " AND ".join(f"{name} = ?" for name in given)
    return (f" WHERE {text}" if text else ""), tuple(given.values())


def _decode(rows: Iterable[tuple[str]], kind: type[_T]) -> Iterator[_T]:
    for (body,) in rows:
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            yield msgspec.json.decode(body, type=kind)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


def _configure(db: sqlite3.Connection) -> sqlite3.Connection:
    """Choose the journal and make the tables."""
    try:
        db.execute("PRAGMA journal_mode = WAL").fetchone()
        db.executescript(_TABLES)
    except sqlite3.OperationalError:  # a network file system, most likely
        db.execute("PRAGMA journal_mode = DELETE").fetchone()
        db.executescript(_TABLES)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.isolation_level = None
    return db


def why_unusable(path: Path) -> str:
    """Return why a file is no evidence database of this version; "" where it is one or is empty."""
    if not path.exists() or path.stat().st_size == 0:
        return ""
    try:
        with contextlib.closing(_connect(path)) as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                return "it is a database of something else"
            if version > SCHEMA:
                return f"it has schema {version}, this ge2 knows {SCHEMA}"
            (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
            return "" if state == "ok" else f"it is damaged: {state}"
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            return ""
        return f"it is damaged: {error}"
    except sqlite3.DatabaseError as error:
        return f"it is damaged: {error}"


def _keep_aside(path: Path, reason: str) -> None:
    target = path.with_name(f"{path.name}.aside-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns()}")
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(target.with_name(target.name + suffix))
    log.topic("tune").warning("evidence database %s is not used: %s; it is kept as %s", path,
                              reason, target.name)


def open_default() -> Store | None:
    """Return the user's database, or None where there is none yet or it cannot be opened."""
    path = default_path()
    if not path.exists():
        return None
    try:
        return Store(path)
    except EvidenceError as error:
        log.topic("tune").warning("%s", error)
        return None
