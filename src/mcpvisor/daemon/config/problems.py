"""Owns what a wrong place in the configuration looks like: where it is, what is wrong and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    version_of: str = ""
    """Of when that version is, for people, where it is from an earlier run of the daemon; else empty."""
    source: str = ""
    """Where the input came from when it was no file: `environment`, `credential`, `command line`."""

    @property
    def where(self) -> str:
        """The place as `file:line:column`, as far as it is known."""
        if self.file is None:
            return self.source or "configuration"
        parts = [str(self.file)]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)

    @property
    def error(self) -> str:
        """The problem in one line, without its place."""
        text = f"{self.key_path}: {self.message}" if self.key_path else self.message
        if self.expected:
            text += f"; expected {self.expected}"
        if self.nearest:
            text += f'; did you mean "{self.nearest}"?'
        if self.keeps_running:
            version = f", that of {self.version_of}" if self.version_of else ""
            text += f" (the last good version keeps running{version})"
        return text

    def __str__(self) -> str:
        return f"{self.where}: {self.error}"

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
        }


class ConfigError(Exception):
    """A file, or an entry as a whole, cannot be used; `problem` says why and where."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(slots=True)
class Findings:
    """What was found so far: problems reject something, hints do not."""

    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word closest to the one written; empty when none is close enough to be meant."""
    folded = {name.replace("_", "").replace("-", "").lower(): name for name in known}
    plain = word.replace("_", "").replace("-", "").lower()
    # Two letters in the wrong order are half of a short word.
    close = difflib.get_close_matches(plain, folded, n=1, cutoff=0.7 if len(plain) <= 5 else 0.77)
    return folded[close[0]] if close else ""
