"""Owns what a wrong place in the configuration looks like: where it is, what is wrong and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypedDict

SHOWN: Final = 60
"""Characters that are shown of one word somebody has written."""


LAST_GOOD: Final = "the last good version keeps running"


class Rejection(TypedDict):
    """One thing in the configuration that was not accepted: `where` as `file:line`, `error` for people.

    `server` or `handler` is the entry that it is about, both empty where it is about a file or a setting. `keeps_running` is
    whether the last good version goes on, `keeps_servers` whether, of a whole file, servers do, and `meanwhile` says what runs.
    `since` is when that began, in wall-clock seconds; None where nobody applies what is written. `needs` is the file that an
    entry names and that has to be mended in its place; empty where the entry has.
    """

    where: str
    error: str
    server: str
    handler: str
    keeps_running: bool
    keeps_servers: bool
    meanwhile: str
    since: float | None
    needs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error or hint. `line` and `column` count from 1; None where the whole file, or no file, is meant.

    No field ever holds the offending input of a key that may carry a secret.
    """

    file: Path | None
    message: str
    line: int | None = None
    column: int | None = None
    key_path: str = ""
    expected: str = ""
    nearest: str = ""
    """The known word that is closest to the one that was written; empty when none is close."""
    server: str = ""
    """The entry that this is about; empty where it is about a file or a setting."""
    handler: str = ""
    """The handler that this is about; empty where it is about something else."""
    keeps_running: bool = False
    """Whether the last good version of what was rejected goes on as if nothing had been edited."""
    keeps_servers: bool = False
    """Whether, of a whole file, servers go on as they were before."""
    meanwhile: str = ""
    """What runs in place of what was rejected, in words; only a daemon knows."""
    version_of: str = ""
    """Of when that version is, for people, where it is from an earlier run of the daemon; else empty."""
    source: str = ""
    """Where the input came from when it was no file: `environment`, `credential`, `command line`."""
    needs: str = ""
    """The file beside the configuration that has to be mended, where the entry itself is right; else empty."""
    since: float | None = field(default=None, compare=False)
    """Since when it is not in force, in wall-clock seconds; only a daemon knows. It makes no other problem of it."""

    @property
    def where(self) -> str:
        """The place as `file:line:column`, as far as it is known."""
        if self.file is None:
            return self.source or "configuration"
        parts = [escaped(str(self.file))]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)

    @property
    def line_of_file(self) -> str:
        """The place as `file:line`, for one line of text."""
        return self.where if self.column is None else self.where.rpartition(":")[0]

    @property
    def error(self) -> str:
        """The problem in one line, without its place, and what runs meanwhile."""
        meanwhile = self.meanwhile or (LAST_GOOD if self.keeps_running else "")
        if self.keeps_running and self.version_of:
            meanwhile += f", as of {self.version_of}"
        return f"{self.fault} ({meanwhile})" if meanwhile else self.fault

    @property
    def fault(self) -> str:
        """The problem in one line, without its place."""
        text = f"{self.key_path}: {self.message}" if self.key_path else self.message
        if self.expected:
            text += f"; expected {self.expected}"
        if self.nearest:
            text += f'; did you mean "{self.nearest}"?'
        return escaped(text)

    def __str__(self) -> str:
        return f"{self.where}: {self.error}"

    def rejection(self) -> Rejection:
        """What is told of it while it is not in force."""
        return Rejection(
            where=self.where,
            error=self.error,
            server=self.server,
            handler=self.handler,
            keeps_running=self.keeps_running,
            keeps_servers=self.keeps_servers,
            meanwhile=self.meanwhile,
            since=self.since,
            needs=self.needs,
        )

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON values; fields are added over time, never changed."""
        return {
            "where": self.where,
            "file": str(self.file) if self.file is not None else None,
            "line": self.line,
            "column": self.column,
            "key": self.key_path,
            "server": self.server,
            "handler": self.handler,
            "error": self.error,
            "message": self.message,
            "expected": self.expected,
            "nearest": self.nearest,
            "keeps_running": self.keeps_running,
            "keeps_servers": self.keeps_servers,
            "meanwhile": self.meanwhile,
        }


class ConfigError(Exception):
    """A file, or an entry as a whole, cannot be used; `problem` says why and where, and `more` are further reasons."""

    def __init__(self, problem: Problem, more: Iterable[Problem] = ()) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.more = tuple(more)


@dataclass(slots=True)
class Findings:
    """What was found so far: problems reject something, hints do not."""

    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])


def escaped(text: str) -> str:
    """The text on one line: what a terminal or a log would not print as it stands, as in the name of a file, is written out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cut(text: str, most: int = SHOWN) -> str:
    """What is shown of a text that somebody has written: it must neither break its line nor fill the screen."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[:most] + "..."


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to the one written; empty when none is close enough to be meant."""
    if len(word) > SHOWN:
        return ""
    folded = {name.replace("_", "").replace("-", "").lower(): name for name in known}
    plain = word.replace("_", "").replace("-", "").lower()
    # Two letters in the wrong order are half of a short word.
    close = difflib.get_close_matches(plain, folded, n=1, cutoff=0.7 if len(plain) <= 5 else 0.77)
    return folded[close[0]] if close else ""
