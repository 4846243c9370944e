"""Owns parsed documents: the values of a file, and for each key path the line and column where it is written."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.problems import ConfigError, Problem

KeyPath = tuple[str | int, ...]
"""The way from the root of a document to a value: keys of tables and indexes of lists."""

MAX_DEPTH: Final = 32
"""How deep tables and lists may nest; far more than any entry needs."""

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text, both counted from 1."""

    line: int
    column: int


class LineIndex:
    """Turns offsets of one text into positions. Lines end with a line feed, as both formats have it."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, offset: int) -> Position:
        """The position of an offset."""
        line = bisect.bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


@dataclass(slots=True)
class Places:
    """Where keys are written. `repeated` are keys written twice: the path, the first and the second place."""

    found: dict[KeyPath, Position] = field(default_factory=dict[KeyPath, Position])
    repeated: list[tuple[KeyPath, Position, Position]] = field(default_factory=list[tuple[KeyPath, Position, Position]])

    def note(self, path: KeyPath, position: Position, *, may_repeat: bool = False) -> None:
        """Remember the first place of a path; a later one is a repetition unless the format allows it."""
        first = self.found.setdefault(path, position)
        if first != position and not may_repeat:
            self.repeated.append((path, first, position))


@dataclass(frozen=True, slots=True)
class Document:
    """The values of one file and the places of their keys."""

    file: Path
    data: dict[str, Any] = field(repr=False)
    places: Mapping[KeyPath, Position]

    def at(self, path: KeyPath) -> Position | None:
        """The place of a key path, or of the nearest thing around it; None for the whole file."""
        for length in range(len(path), 0, -1):
            position = self.places.get(path[:length])
            if position is not None:
                return position
        return None

    def problem(self, path: KeyPath, message: str, *, expected: str = "", near: str = "", server: str = "") -> Problem:
        """A problem at a key path of this document."""
        position = self.at(path)
        return Problem(
            file=self.file,
            line=position.line if position else None,
            column=position.column if position else None,
            key_path=show_path(path),
            message=message,
            expected=expected,
            nearest=near,
            server=server,
        )


def show_path(path: Iterable[str | int]) -> str:
    """A key path as TOML would write it: `servers.docs.args[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            # A key of somebody else's file may hold anything; it must not break the line it is printed on.
            name = part if _BARE.fullmatch(part) else '"' + "".join(c if c.isprintable() else "?" for c in part) + '"'
            text += f".{name}" if text else name
    return text


def check_depth(file: Path, data: Any) -> None:
    """Raise ConfigError when tables and lists nest deeper than MAX_DEPTH."""
    layer: list[tuple[KeyPath, Any]] = [((), data)]
    for _ in range(MAX_DEPTH):
        layer = [
            ((*path, key), value)
            for path, holder in layer
            for key, value in (holder.items() if isinstance(holder, dict) else enumerate(holder))
            if isinstance(value, dict | list)
        ]
        if not layer:
            return
    path = show_path(layer[0][0][:4])
    raise ConfigError(Problem(file=file, key_path=path, message=f"nested deeper than {MAX_DEPTH} levels"))
