"""Owns how a state file is opened: whose it is, in which form it is, and what is saved of one that cannot be used."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from mcpvisor.daemon.state.database import JOURNAL, Database, Loaded, load, reserve_of
from mcpvisor.daemon.state.faults import FaultKind, StoreFault, fault_of
from mcpvisor.daemon.state.filesystem import magic_of, why_unfit
from mcpvisor.daemon.state.kept import KeptVersion, Limits
from mcpvisor.daemon.state.schema import VERSION, Age, age_of, statements_from
from mcpvisor.daemon.state.tables import TABLES, VERSIONS

_PAGE: Final = 4096
_LOG_PAGES: Final = 1000
_KEPT_ASIDE: Final = 2
"""Damaged files, and copies made before a migration, that are kept; older ones go."""


def open_database(path: Path, limits: Limits) -> Database:
    """The state file at `path`, made (0600) where it is missing, and brought to the present form. Raises StoreFault."""
    try:
        unfit = why_unfit(magic_of(path.parent))
        if unfit:
            raise StoreFault(FaultKind.REFUSED, f"{path} is not used: {unfit}")
        _make(path)
        connection = sqlite3.connect(path, timeout=limits.lock_wait, isolation_level=None)
    except (sqlite3.Error, OSError) as error:
        raise fault_of(error, path) from error
    try:
        is_fresh = _prepare(connection, path)
        return Database(connection, path, limits, is_fresh=is_fresh)
    except (sqlite3.Error, OSError) as error:
        connection.close()
        raise fault_of(error, path) from error
    except StoreFault:
        connection.close()
        raise


def _make(path: Path) -> None:
    """The file, and nobody else's eyes on it; one that is a link is refused by the system."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _prepare(connection: sqlite3.Connection, path: Path) -> bool:
    """Check the file and bring it to the present form; returns whether it held nothing."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    age = age_of(version, is_empty=is_empty)
    if age is Age.FOREIGN:
        raise StoreFault(
            FaultKind.REFUSED,
            f"{path} is not used: its form ({version}) is that of another mcpvisor, this one reads {VERSION}; "
            "move it away to begin a new one",
        )
    if age is Age.FRESH:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    elif (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise StoreFault(FaultKind.CORRUPT, f"{path}: it is damaged: {found}")
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}").fetchone()
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_PAGES * _PAGE}").fetchone()
    if age is Age.OLDER:
        _copy(connection, _aside(path, f"before-{VERSION}"))
    if age in (Age.FRESH, Age.OLDER):
        _migrate(connection, version)
    if lacking := _lacking(connection):
        raise StoreFault(FaultKind.CORRUPT, f"{path}: it is damaged: it has no {lacking}")
    return age is Age.FRESH


def _lacking(connection: sqlite3.Connection) -> str:
    """What is missing of the present form; empty where nothing is."""
    for name, columns in [*((table.name, table.columns) for table in TABLES), JOURNAL]:
        held = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
        if missing := set(columns) - held:
            return f"{name}.{min(missing)}"
    return ""


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements_from(version):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):  # SQLite has rolled back by itself where the disk failed
            connection.execute("ROLLBACK")
        raise


def _make_anew(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise fault_of(error, path) from error


def _copy(connection: sqlite3.Connection, to: Path) -> None:
    _make_anew(to)
    with closing(sqlite3.connect(to)) as copy:
        connection.backup(copy)


def load_read_only(path: Path) -> Loaded:
    """What a file holds that cannot be written, as far as it can be read at all: nothing where it cannot."""
    for how in ("mode=ro", "mode=ro&immutable=1"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if age_of(version, is_empty=False) is not Age.FOREIGN:
                return load(connection)
    return Loaded()


def read_versions(path: Path) -> dict[str, KeptVersion]:
    """The versions of the configuration in a state file, read without changing it; none where it cannot be read."""
    for how in ("mode=ro", "mode=ro&immutable=1"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)) as connection:
            return _versions_in(connection)
    return {}


def _versions_in(connection: sqlite3.Connection) -> dict[str, KeptVersion]:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    held = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (VERSIONS.name,)).fetchone()[0]
    found: dict[str, KeptVersion] = {}
    if held and age_of(version, is_empty=False) is not Age.FOREIGN:
        for row in connection.execute(VERSIONS.select):
            with suppress(ValueError, TypeError, KeyError):  # a row that makes no sense is told of when the file is opened
                found[row[0]] = VERSIONS.from_row(row)
    return found


def is_empty(path: Path) -> bool:
    """Whether the file is there, and it and its log hold not a byte: we leave none like that."""
    try:
        if path.stat().st_size:
            return False
    except OSError:
        return False
    try:
        return path.with_name(path.name + "-wal").stat().st_size == 0
    except OSError:
        return True


def release_reserve(path: Path) -> None:
    """Give up the room that was held on the disk. Raises StoreFault."""
    try:
        reserve_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise fault_of(error, path) from error


def move_aside(path: Path) -> Path:
    """Give a damaged file, and its log, a name that says since when; returns it. Raises StoreFault."""
    to = _aside(path, "damaged")
    try:
        for suffix in ("", "-wal"):
            one = path.with_name(path.name + suffix)
            if one.exists():
                one.rename(to.with_name(to.name + suffix))
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
    except OSError as error:
        raise fault_of(error, path) from error
    return to


def _aside(path: Path, why: str) -> Path:
    """A new name beside the file, of which there are a few at the most."""
    former = sorted(one for one in path.parent.glob(f"{path.name}.{why}-*") if not one.name.endswith("-wal"))
    for one in former[: max(0, len(former) - _KEPT_ASIDE + 1)]:
        one.unlink(missing_ok=True)
        one.with_name(one.name + "-wal").unlink(missing_ok=True)
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return path.with_name(f"{path.name}.{why}-{moment}")


def copy_of(path: Path, to: Path) -> None:
    """A consistent copy of a state file that may be in use: one file, 0600, that must not exist yet. Raises StoreFault."""
    _make_anew(to)
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(to, isolation_level=None)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchone()
    except (sqlite3.Error, OSError) as error:
        to.unlink(missing_ok=True)
        raise fault_of(error, to) from error
