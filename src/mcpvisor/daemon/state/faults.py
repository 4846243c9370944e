"""Owns what a failure of the state file means: which kind it is, said in one reason that an operator can act on."""

from __future__ import annotations

import errno
import os
import sqlite3
from enum import StrEnum
from pathlib import Path
from typing import Final


class FaultKind(StrEnum):
    """What is to be done about a failure."""

    FULL = "full"
    """Make room, then try again."""
    READ_ONLY = "read_only"
    CORRUPT = "corrupt"
    """The file is moved aside, and a fresh one is begun."""
    LOCKED = "locked"
    REFUSED = "refused"
    """Not used as it is: another format, or an unfit place."""
    BROKEN = "broken"
    """Whatever else the system says."""


class StoreFault(Exception):
    """The state file cannot be used now; the text is the reason, for people."""

    def __init__(self, kind: FaultKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


_PRIMARY: Final = 0xFF
"""The part of SQLite's extended result codes that names the kind."""

_KINDS: Final = {
    sqlite3.SQLITE_FULL: FaultKind.FULL,
    sqlite3.SQLITE_READONLY: FaultKind.READ_ONLY,
    sqlite3.SQLITE_CORRUPT: FaultKind.CORRUPT,
    sqlite3.SQLITE_NOTADB: FaultKind.CORRUPT,
    sqlite3.SQLITE_BUSY: FaultKind.LOCKED,
    sqlite3.SQLITE_LOCKED: FaultKind.LOCKED,
}
_KINDS_OF_ERRNO: Final = {
    errno.ENOSPC: FaultKind.FULL,
    errno.EDQUOT: FaultKind.FULL,
    errno.EROFS: FaultKind.READ_ONLY,
    errno.ELOOP: FaultKind.REFUSED,
}
_OF_THE_DISK: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""Codes behind which a full disk, or one that is read-only, may hide."""

_LEAST_FREE: Final = 64 * 1024
"""Bytes that have to be free for SQLite's own files; with fewer, it is the want of room that fails."""

_REASONS: Final = {
    FaultKind.FULL: "there is no room left for it",
    FaultKind.READ_ONLY: "it is read-only",
    FaultKind.CORRUPT: "it is damaged",
    FaultKind.LOCKED: "another program holds its lock",
}


def kind_of(code: int, *, free: int, read_only: bool) -> FaultKind:
    """The kind of a result code of SQLite, on a disk with so many free bytes that is mounted read-only or not."""
    primary = code & _PRIMARY
    if primary in _OF_THE_DISK:
        return FaultKind.READ_ONLY if read_only else FaultKind.FULL if free < _LEAST_FREE else FaultKind.BROKEN
    return _KINDS.get(primary, FaultKind.BROKEN)


def fault_of(error: sqlite3.Error | OSError, path: Path) -> StoreFault:
    """The fault behind an error at the state file `path`."""
    if isinstance(error, OSError):
        kind = _KINDS_OF_ERRNO.get(error.errno or 0, FaultKind.BROKEN)
        return StoreFault(kind, f"{path}: {error.strerror or error}")
    free, read_only = _disk(path.parent)
    kind = kind_of(getattr(error, "sqlite_errorcode", 0), free=free, read_only=read_only)
    return StoreFault(kind, f"{path}: {_REASONS.get(kind, '')}{': ' if kind in _REASONS else ''}{error}")


def _disk(folder: Path) -> tuple[int, bool]:
    try:
        told = os.statvfs(folder)
    except OSError:  # the error that led here says more
        return _LEAST_FREE, False
    return told.f_bavail * told.f_frsize, bool(told.f_flag & os.ST_RDONLY)
