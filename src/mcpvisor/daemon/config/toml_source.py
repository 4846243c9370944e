"""Owns the reading of TOML: values by the standard library, places of keys by a scanner of our own."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.positions import (
    MAX_DEPTH,
    MAX_NUMBER,
    TOO_DEEP,
    TOO_LONG,
    Document,
    KeyPath,
    LineIndex,
    Places,
    Position,
    TooLarge,
    show_path,
)
from mcpvisor.daemon.config.problems import ConfigError, Problem, cut

_BLANK = re.compile(r"[ \t\r\n]*+(?:#[^\n]*+[ \t\r\n]*+)*+")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?!"")(?:\\.|[^"\\\n])*"|\'(?!\'\')[^\'\n]*\'', re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]+")
_LONG_NUMBER = re.compile(rf"[-+0-9][-+.0-9A-Fa-fxo_]{{{MAX_NUMBER},}}")
_ERROR_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_OVERWRITES: Final = ("Cannot overwrite a value", "Cannot declare", "Cannot redefine", "Cannot mutate", "Duplicate inline")
_TOLD: Final = 160
"""Characters of what the parser of the standard library says: it may repeat a key of any length."""


def parse_toml(text: str, file: Path) -> Document:
    """The document in `text`. Raises ConfigError with line and column; all keys set twice are named with both places."""
    # First of all, for the parser of the standard library has no bounds.
    try:
        scanner = scan_toml(text)
    except TooLarge as error:
        raise ConfigError(error.problem(file)) from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refusal(str(error), file, scanner) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(Problem(file=file, message=f"not valid TOML: {cut(str(error), _TOLD)}")) from error
    return Document(file, data, scanner.places.found)


def _refusal(message: str, file: Path, scanner: Scanner) -> ConfigError:
    match = _ERROR_PLACE.search(message)
    message = message[: match.start()] if match is not None else message
    if match is not None and match[1]:
        line, column = int(match[1]), int(match[2])
    else:
        # A text that never ends: where it begins is the place to look at.
        place = scanner.place
        line, column = place.line, place.column
        message += ", at the end of the file" if scanner.is_at_end else ": what begins here does not end before the file does"
    twice = message.startswith(_OVERWRITES)
    if twice and scanner.places.repeated:
        first, *more = [_repeated(file, *repeated) for repeated in scanner.places.repeated]
        return ConfigError(first, more)
    what = "a key or table is written twice, or once more after it was complete: " if twice else ""
    message = f"not valid TOML: {what}{cut(message, _TOLD)}"
    return ConfigError(Problem(file=file, line=line, column=column, message=message))


def _repeated(file: Path, path: KeyPath, first: Position, second: Position) -> Problem:
    message = f"written twice; the first is at line {first.line}"
    return Problem(file=file, line=second.line, column=second.column, key_path=show_path(path), message=message)


def scan_toml(text: str) -> Scanner:
    """The scanner after its walk, with the places of all keys: of text that is no TOML, of what comes before the first error.

    Raises TooLarge.
    """
    scanner = Scanner(text)
    # The parser of the standard library will tell what is wrong with this text, and there at the latest.
    with suppress(_Lost):
        scanner.document()
    return scanner


class _Lost(Exception):
    """The text is not TOML from here on."""


class Scanner:
    """Walks over TOML text and notes keys; it reads no values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = LineIndex(text)
        self._lengths: dict[KeyPath, int] = {}
        self.places = Places()

    @property
    def place(self) -> Position:
        """How far the walk has come."""
        return self._lines.at(self._at)

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left of the text."""
        return not self._text[self._at :].strip()

    def document(self) -> None:
        table: KeyPath = ()
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        start = self._at
        is_list = self._text.startswith("[[", self._at)
        self._at += 2 if is_list else 1
        path = self._resolve(self._key(()))
        self._expect("]]" if is_list else "]")
        position = self._lines.at(start)
        if is_list:
            number = self._lengths.get(path, 0)
            self._lengths[path] = number + 1
            self.places.note(path, position, may_repeat=True)
            path = (*path, number)
        for length in range(1, len(path)):
            self.places.pass_through(path[:length], position)
        self.places.note(path, position)
        return path

    def _resolve(self, key: KeyPath) -> KeyPath:
        """The path a header means: where a list of tables is on the way, its newest table."""
        path: KeyPath = ()
        for number, part in enumerate(key):
            path = (*path, part)
            if number < len(key) - 1 and path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        position = self._lines.at(self._at)
        key = self._key(table)
        for length in range(1, len(key)):
            self.places.note_within((*table, *key[:length]), position)
        self.places.note((*table, *key), position)
        self._expect("=")
        self._skip(_SPACE)
        self._value((*table, *key))

    def _key(self, table: KeyPath) -> KeyPath:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            if len(table) + len(parts) >= MAX_DEPTH:
                raise TooLarge(TOO_DEEP, self._lines.at(self._at), (*table, *parts))
            match = _BARE_KEY.match(self._text, self._at) or _STRING.match(self._text, self._at)
            if match is None:
                raise _Lost
            self._at = match.end()
            parts.append(_key_text(match[0]))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return tuple(parts)
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        first = self._text[self._at : self._at + 1]
        if first in {"[", "{"} and len(path) >= MAX_DEPTH:
            raise TooLarge(TOO_DEEP, self._lines.at(self._at), path)
        if first == "[":
            self._list(path)
        elif first == "{":
            self._inline_table(path)
        else:
            match = (_STRING if first in {'"', "'"} else _SCALAR).match(self._text, self._at)
            if match is None:
                raise _Lost
            if _LONG_NUMBER.match(match[0]):
                raise TooLarge(TOO_LONG, self._lines.at(self._at), path)
            self._at = match.end()

    def _list(self, path: KeyPath) -> None:
        self._at += 1
        number = 0
        while True:
            self._skip(_BLANK)
            if self._text.startswith("]", self._at):
                self._at += 1
                return
            self.places.note((*path, number), self._lines.at(self._at))
            self._value((*path, number))
            number += 1
            self._skip(_BLANK)
            if self._text.startswith(",", self._at):
                self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK)
            if self._text.startswith("}", self._at):
                self._at += 1
                return
            self._pair(path)
            self._skip(_BLANK)
            if self._text.startswith(",", self._at):
                self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _expect(self, token: str) -> None:
        self._skip(_SPACE)
        if not self._text.startswith(token, self._at):
            raise _Lost
        self._at += len(token)


def _key_text(written: str) -> str:
    """The key that a written key means: quotes and escapes are read as the standard library reads them."""
    if written[0] not in {'"', "'"}:
        return written
    try:
        return str(tomllib.loads(f"k = {written}")["k"])
    except tomllib.TOMLDecodeError as error:
        raise _Lost from error
