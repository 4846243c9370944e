"""Owns what a check of the doctor says: how it is, about what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How it is. `unknown` is what could not be looked at from where the doctor ran."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line. `server` is empty for what is not of one entry; `remedy` is empty where there is nothing to do."""

    level: Level
    check: str
    """A word of a closed set: what was looked at."""
    text: str
    remedy: str = ""
    server: str = ""

    def as_json(self) -> dict[str, Any]:
        """The finding as plain values; fields are added, never changed."""
        return {
            "level": self.level.value,
            "server": self.server,
            "check": self.check,
            "text": self.text,
            "remedy": self.remedy,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Finding:
        """A finding of a daemon, which may be of another version."""
        level = value["level"] if value["level"] in set(Level) else Level.UNKNOWN
        return cls(level=Level(level), check=value["check"], text=value["text"], remedy=value["remedy"], server=value["server"])


class Findings:
    """Findings as checks make them, of one subject."""

    def __init__(self, server: str = "") -> None:
        self.found: list[Finding] = []
        self._server = server

    def ok(self, check: str, text: str) -> None:
        """All is well."""
        self._add(Level.OK, check, text, "")

    def unknown(self, check: str, text: str, remedy: str = "") -> None:
        """It could not be looked at."""
        self._add(Level.UNKNOWN, check, text, remedy)

    def warning(self, check: str, text: str, remedy: str = "") -> None:
        """It works, and may not for long."""
        self._add(Level.WARNING, check, text, remedy)

    def error(self, check: str, text: str, remedy: str = "") -> None:
        """It does not work."""
        self._add(Level.ERROR, check, text, remedy)

    def _add(self, level: Level, check: str, text: str, remedy: str) -> None:
        self.found.append(Finding(level=level, check=check, text=text, remedy=remedy, server=self._server))


def exit_says_no(findings: Iterable[Finding]) -> bool:
    """Whether anything does not work; warnings and what is unknown change nothing."""
    return any(finding.level is Level.ERROR for finding in findings)
