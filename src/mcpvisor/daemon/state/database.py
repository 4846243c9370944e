"""Owns one open state file: what is read from it at the start, and how changes and events come into it. For one thread."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mcpvisor.daemon.state.checks import NotOurs, json_object, moment, text
from mcpvisor.daemon.state.faults import FaultKind, StoreFault, fault_of
from mcpvisor.daemon.state.kept import Limits, PastEvent
from mcpvisor.daemon.state.pending import Batch
from mcpvisor.daemon.state.schema import VERSION
from mcpvisor.daemon.state.tables import TABLES, Row, Table
from mcpvisor.supervisor.transports.codec import encode

_log = logging.getLogger(__name__)

EVENTS_PER_SERVER: Final = 100
"""Events of earlier runs that are read back, of each server."""

_EVENT_BYTES: Final = 1024 * 1024
JOURNAL: Final = ("journal", ("id", "at", "server", "kind", "event"))
"""The table of events, and its columns."""

_ADD_EVENT: Final = "INSERT INTO journal (at, server, kind, event) VALUES (?, ?, ?, ?)"
_NEWEST_EVENTS: Final = """
    SELECT at, server, kind, event
    FROM (SELECT *, row_number() OVER (PARTITION BY server ORDER BY id DESC) AS nth FROM journal)
    WHERE nth <= ? ORDER BY id
"""
_CUT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_SHORT_READ})
"""What SQLite says of a file, or of its log, that ends before it should."""

_FREED_PAGES: Final = 4096
"""Pages that are given back to the file system at a time."""


@dataclass(slots=True)
class Loaded:
    """What a state file holds; `unread` are rows that could not be understood, and are left where they are."""

    values: dict[Table, dict[str, Any]] = field(default_factory=dict[Table, dict[str, Any]])
    events: list[PastEvent] = field(default_factory=list[PastEvent])
    unread: int = 0


class Database:
    """An open state file of the present form. Every method raises StoreFault where it cannot do its work."""

    def __init__(self, connection: sqlite3.Connection, path: Path, limits: Limits, *, is_fresh: bool) -> None:
        self.is_fresh = is_fresh
        """Whether it held nothing when it was opened."""
        self._connection = connection
        self._path = path
        self._limits = limits
        self._reserve = reserve_of(path)
        self._log = path.with_name(path.name + "-wal")
        with self._mapped():
            size = int(self._connection.execute("PRAGMA page_size").fetchone()[0])
        self._inodes = {one: _inode(one) for one in (path, self._log) if one.exists()}
        self._pages = limits.total // size
        self._reserved_pages = limits.reserve // size
        self._limit(self._pages - self._reserved_pages)
        self._keep_reserve()
        self._sizes = self._measured()

    @property
    def was_cut(self) -> bool:
        """Whether the file or its log is shorter than we have left it: it was truncated, or another program has tidied it."""
        return any(size < former for size, former in zip(self._measured(), self._sizes, strict=True))

    def examine(self) -> None:
        """Look at the file with nobody's memory of it, after `was_cut`. Raises StoreFault where it is not whole any more."""
        with self._mapped(), closing(sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True)) as other:
            try:
                version = int(other.execute("PRAGMA user_version").fetchone()[0])
                is_whole = version == VERSION and other.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode not in _CUT:
                    raise
                is_whole = False
        if not is_whole:
            raise StoreFault(FaultKind.CORRUPT, f"{self._path}: it is damaged: it was truncated while it was in use")
        self._sizes = self._measured()

    def _measured(self) -> tuple[int, int]:
        return _size(self._path), _size(self._log)

    @property
    def is_in_place(self) -> bool:
        """Whether the file and its log are still those at their paths: whoever removed one, or put another there, is noticed.

        What is written to a log that nobody can find any more is lost with this process.
        """
        return all(_inode(path) == inode for path, inode in self._inodes.items())

    @property
    def is_at_cap(self) -> bool:
        """Whether it is the limit of ours that leaves no room, and not the disk."""
        with self._mapped():
            used = self._connection.execute("PRAGMA page_count").fetchone()[0]
            free = self._connection.execute("PRAGMA freelist_count").fetchone()[0]
        return bool(used - free >= self._pages - 2 * self._reserved_pages)

    # Reading

    def load(self) -> Loaded:
        """Everything that is kept in memory too."""
        with self._mapped():
            return load(self._connection)

    # Writing

    def write(self, batch: Batch) -> None:
        """Write a batch; what has reached the disk is taken out of it, also when the rest fails."""
        self._guard_log()
        durable = {table: changes for table, changes in batch.changes.items() if table.durable}
        if durable or batch.events:
            with self._transaction("FULL"):
                self._write_changes(durable)
                self._connection.executemany(_ADD_EVENT, _event_rows(batch.events))
        batch.events.clear()
        for table in durable:
            del batch.changes[table]
        for table in [table for table in TABLES if table in batch.changes]:
            with self._transaction("NORMAL"):
                self._write_changes({table: batch.changes[table]})
            del batch.changes[table]

    def _write_changes(self, changes: Mapping[Table, Mapping[str, Any]]) -> None:
        for table, values in changes.items():
            self._connection.executemany(table.delete, [(key,) for key, value in values.items() if value is None])
            self._connection.executemany(table.upsert, _rows(table, values))

    def _guard_log(self) -> None:
        """Do not let the write-ahead log grow for ever while another program reads, and never ends."""
        with suppress(FileNotFoundError):
            if self._log.stat().st_size <= self._limits.log:
                return
            with self._mapped():
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if self._log.stat().st_size > self._limits.log:
                reason = f"{self._path}: another program reads it and does not end, so that its log cannot be taken in"
                raise StoreFault(FaultKind.LOCKED, reason)

    def tidy(self, now: float) -> None:
        """Keep the journal within its rows and its age; `now` in wall-clock seconds. Give free pages back."""
        with self._transaction("NORMAL"):
            self._connection.execute("DELETE FROM journal WHERE at < ?", (now - self._limits.journal_seconds,))
            newest = self._connection.execute("SELECT max(id) FROM journal").fetchone()[0] or 0
            self._connection.execute("DELETE FROM journal WHERE id <= ?", (newest - self._limits.journal_rows,))
        with self._mapped():
            self._connection.execute(f"PRAGMA incremental_vacuum({_FREED_PAGES})").fetchall()
        self._sizes = self._measured()
        self._keep_reserve()

    def make_room(self) -> None:
        """Delete the older half of the journal, by means of what was held in reserve."""
        self._reserve.unlink(missing_ok=True)
        with suppress(sqlite3.Error):  # what can be taken in from the log makes room in it; the rest is tried all the same
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._limit(self._pages)
        try:
            with self._transaction("NORMAL"):
                first, last = self._connection.execute("SELECT min(id), max(id) FROM journal").fetchone()
                if first is not None:
                    self._connection.execute("DELETE FROM journal WHERE id <= ?", ((first + last) // 2,))
        finally:
            self._limit(self._pages - self._reserved_pages)

    def _limit(self, pages: int) -> None:
        with self._mapped():
            self._connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    def _keep_reserve(self) -> None:
        """Hold some room on the disk. Where there is none now, it is tried again at the next tidying."""
        with suppress(OSError):
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._limits.reserve)
            except OSError:
                self._reserve.unlink(missing_ok=True)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Take the log in, and let go of the file."""
        with self._mapped():
            self._connection.close()

    @contextmanager
    def _transaction(self, synchronous: str) -> Generator[None]:
        with self._mapped():
            self._connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite has rolled back by itself where the disk failed
                    self._connection.execute("ROLLBACK")
                raise
        self._sizes = self._measured()

    @contextmanager
    def _mapped(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise fault_of(error, self._path) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def reserve_of(path: Path) -> Path:
    """The file that holds room on the disk for a state file."""
    return path.with_suffix(".reserve")


def load(connection: sqlite3.Connection) -> Loaded:
    """Everything in a state file that is kept in memory too; tables that it does not have yet are empty."""
    loaded = Loaded()
    connection.text_factory = _any_text
    try:
        _load(connection, loaded)
    finally:
        connection.text_factory = str
    if loaded.unread:
        _log.warning("rows of the state file that make no sense, and are left where they are: %d", loaded.unread)
    return loaded


def _any_text(data: bytes) -> str:
    """A text that is no UTF-8 costs its row, which is checked, and not the file."""
    return data.decode("utf-8", "surrogateescape")


def _load(connection: sqlite3.Connection, loaded: Loaded) -> None:
    held = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in TABLES:
        values = loaded.values[table] = {}
        for row in connection.execute(table.select) if table.name in held else ():
            try:
                values[row[0]] = table.from_row(row)
            except (ValueError, TypeError, KeyError):
                loaded.unread += 1
    for row in connection.execute(_NEWEST_EVENTS, (EVENTS_PER_SERVER,)) if "journal" in held else ():
        try:
            loaded.events.append(_event_from(row))
        except (ValueError, TypeError, KeyError):
            loaded.unread += 1


def _event_from(row: Row) -> PastEvent:
    at, server, kind, data = row
    view = json_object(data, _EVENT_BYTES)
    moment(view["at"])
    if (text(view["kind"]), text(view.get("server", ""))) != (kind, server):
        raise NotOurs("an event of another kind, or of another server")
    return PastEvent(at=moment(at), server=text(server), kind=text(kind), view=view)


def _rows(table: Table, values: Mapping[str, Any]) -> Iterable[Row]:
    for key, value in values.items():
        if value is None:
            continue
        try:
            yield table.to_row(key, value)
        except (ValueError, TypeError):  # a value that JSON cannot say, from a server; all others are kept
            _log.exception("the state store cannot keep %s of %s", table.name, key)


def _event_rows(events: Iterable[PastEvent]) -> Iterable[Row]:
    for event in events:
        try:
            yield (event.at, event.server, event.kind, encode(event.view))
        except (ValueError, TypeError):
            _log.exception("the state store cannot keep an event %s of %s", event.kind, event.server)
