"""Owns the form of the state file: its tables, its version, and how an older one becomes the present one.

`PRAGMA user_version` is FORMAT * 1000 + step. Within a format a step only ever adds: tables, or columns that may be left out.
So a daemon of an older step works on a file of a newer one, and what it does not know stays as it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

FORMAT: Final = 1
_STEPS_OF_A_FORMAT: Final = 1000

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE servers (
            name TEXT PRIMARY KEY, target TEXT NOT NULL, era TEXT, skip_probe INTEGER NOT NULL DEFAULT 0,
            only_sse INTEGER NOT NULL DEFAULT 0, offer BLOB, seen_at REAL NOT NULL DEFAULT 0
        )
        """,
        """
        CREATE TABLE orders (
            server TEXT PRIMARY KEY, wanted TEXT NOT NULL, who TEXT NOT NULL, at REAL NOT NULL, seen_at REAL NOT NULL DEFAULT 0
        )
        """,
        "CREATE TABLE tokens (key TEXT PRIMARY KEY, value TEXT NOT NULL, expires_at REAL)",
        """
        CREATE TABLE journal (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, server TEXT NOT NULL, kind TEXT NOT NULL, event BLOB NOT NULL
        )
        """,
        "CREATE INDEX journal_by_server ON journal (server, id)",
    ),
    (
        """
        CREATE TABLE sessions (
            id_hash TEXT PRIMARY KEY, principal TEXT NOT NULL, view TEXT, opened_with BLOB NOT NULL, used_at REAL NOT NULL
        )
        """,
    ),
    ("ALTER TABLE sessions ADD COLUMN watched BLOB",),
    (
        """
        CREATE TABLE handler_events (
            key TEXT PRIMARY KEY, handler TEXT NOT NULL, event BLOB NOT NULL, accepted_at REAL NOT NULL,
            tries INTEGER NOT NULL DEFAULT 0, dead_at REAL, why TEXT NOT NULL DEFAULT ''
        )
        """,
    ),
    (
        """
        CREATE TABLE versions (
            key TEXT PRIMARY KEY, digest TEXT NOT NULL, sealed TEXT NOT NULL, good_at REAL NOT NULL,
            ready INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT ''
        )
        """,
    ),
)
"""The statements of each step, the first one included."""

VERSION: Final = FORMAT * _STEPS_OF_A_FORMAT + len(MIGRATIONS)


class Age(StrEnum):
    """What a file is, seen from this program."""

    FRESH = "fresh"
    OLDER = "older"
    CURRENT = "current"
    NEWER = "newer"
    """Of a later step of the same format: used as it is."""
    FOREIGN = "foreign"
    """Of another format, or of none: not touched."""


def age_of(version: int, *, is_empty: bool, current: int = VERSION) -> Age:
    """The age of a file with that `user_version`; `is_empty` is whether it has no table."""
    if version == 0:
        return Age.FRESH if is_empty else Age.FOREIGN
    if version // _STEPS_OF_A_FORMAT != current // _STEPS_OF_A_FORMAT:
        return Age.FOREIGN
    return Age.OLDER if version < current else Age.CURRENT if version == current else Age.NEWER


def statements_from(version: int) -> list[str]:
    """What brings a file of an older version (0: an empty one) up to the present one."""
    done = version % _STEPS_OF_A_FORMAT if version else 0
    return [statement for step in MIGRATIONS[done:] for statement in step]
