"""Owns parsed documents: the values of a file, and for each key path the line and column where it is written."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.problems import Problem, cut, nearest

KeyPath = tuple[str | int, ...]
"""The way from the root of a document to a value: keys of tables and indexes of lists."""

MAX_DEPTH: Final = 32
"""How deep tables and lists may nest; far more than any entry needs."""

MAX_VALUES: Final = 100_000
"""How many keys and elements of lists one file may hold; a larger one would take the daemon's memory, and a reload its time."""

MAX_NUMBER: Final = 100
"""How many characters a number may have. Longer ones are nobody's, and not every program can read or even print them."""

MAX_GROWN: Final = 32 * 1024 * 1024
"""Characters that all texts of one file with variables in them may become: a short file can name a long one many times."""

TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
TOO_MANY: Final = f"more than {MAX_VALUES} keys and values in one file"
TOO_LONG: Final = f"a number of more than {MAX_NUMBER} characters"

_ASKED_IN_FILE: Final = 200
"""Of how many unknown words of one file it is looked what was meant: it takes time, and more errors are not told."""

_ASKED_OF: Final = 500
"""With how many known words one is compared: names of handlers may be as many as there is room for."""

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


class TooLarge(Exception):
    """A document is nested too deeply, or holds too much, to be read with the time and memory that a file may take."""

    def __init__(self, message: str, position: Position, path: KeyPath = ()) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.path = path

    def problem(self, file: Path) -> Problem:
        """The same as a problem of a file."""
        place = self.position
        return Problem(file=file, line=place.line, column=place.column, key_path=show_path(self.path[:4]), message=self.message)


@dataclass(slots=True)
class Places:
    """Where keys are written. `repeated` are keys written twice: the path, the first and the second place."""

    found: dict[KeyPath, Position] = field(default_factory=dict[KeyPath, Position])
    repeated: list[tuple[KeyPath, Position, Position]] = field(default_factory=list[tuple[KeyPath, Position, Position]])
    _passing: set[KeyPath] = field(default_factory=set[KeyPath])
    """Tables of which only something within has been written so far; their own header may still come."""

    def note(self, path: KeyPath, position: Position, *, may_repeat: bool = False) -> None:
        """Remember the first place of a path; a later one is a repetition unless the format allows it.

        Raises TooLarge where there are too many.
        """
        first = self.found.setdefault(path, position)
        if path in self._passing:
            self._passing.discard(path)
            self.found[path] = position
        elif first != position and not may_repeat:
            self.repeated.append((path, first, position))
        if len(self.found) > MAX_VALUES:
            raise TooLarge(TOO_MANY, position)

    def pass_through(self, path: KeyPath, position: Position) -> None:
        """Remember that something within `path` is written here; the place of its own header, if there is one, counts."""
        if path not in self.found:
            self._passing.add(path)
            self.note_within(path, position)

    def note_within(self, path: KeyPath, position: Position) -> None:
        """Remember a place of a table that no header is allowed for any more, as of one that dotted keys have made."""
        self.found.setdefault(path, position)


@dataclass(frozen=True, slots=True)
class Document:
    """The values of one file and the places of their keys."""

    file: Path
    data: dict[str, Any] = field(repr=False)
    places: Mapping[KeyPath, Position]
    _questions: Iterator[int] = field(default_factory=itertools.count, compare=False, repr=False)
    _grown: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)

    def near(self, word: str, known: Iterable[str]) -> str:
        """The known word that is nearest to one of this file, see `nearest`; empty for the many of a file that is all wrong."""
        if next(self._questions) >= _ASKED_IN_FILE:
            return ""
        return nearest(word, itertools.islice(known, _ASKED_OF))

    def has_room(self, length: int) -> bool:
        """Whether a text that came out of variables may be so long, beside those before it."""
        self._grown[0] += length
        return self._grown[0] <= MAX_GROWN

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
            shown = cut(part)
            name = shown if _BARE.fullmatch(part) else f'"{shown}"'
            text += f".{name}" if text else name
    return text
