"""Owns the reading of TOML: values by the standard library, places of keys by a scanner of our own."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.positions import Document, KeyPath, LineIndex, Places, check_depth, show_path
from mcpvisor.daemon.config.problems import ConfigError, Problem

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\n]+")
_ERROR_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_OVERWRITES: Final = ("Cannot overwrite a value", "Cannot declare", "Cannot redefine", "Cannot mutate")


def parse_toml(text: str, file: Path) -> Document:
    """The document in `text`. Raises ConfigError with line and column; a key set twice is named with both places."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_problem(str(error), text, file)) from error
    except RecursionError as error:
        raise ConfigError(Problem(file=file, message="nested too deeply to be read")) from error
    check_depth(file, data)
    return Document(file, data, scan_toml(text).found)


def _problem(message: str, text: str, file: Path) -> Problem:
    match = _ERROR_PLACE.search(message)
    line = column = None
    if match is not None:
        message = message[: match.start()]
        if match[1]:
            line, column = int(match[1]), int(match[2])
        else:
            line = text.count("\n") + 1
            message += ", at the end of the file"
    problem = Problem(file=file, line=line, column=column, message=f"not valid TOML: {message}")
    if message.startswith(_OVERWRITES):
        return _repeated(problem, text)
    return problem


def _repeated(problem: Problem, text: str) -> Problem:
    """The same problem with both places of the key, where the scanner finds them."""
    for path, first, second in scan_toml(text).repeated:
        if problem.line is None or second.line <= problem.line:
            return replace(
                problem,
                line=second.line,
                column=second.column,
                key_path=show_path(path),
                message=f"written twice; the first is at line {first.line}",
            )
    return problem


def scan_toml(text: str) -> Places:
    """The places of all keys. Meant for text that is TOML; of other text, what comes before the first error."""
    scanner = _Scanner(text)
    try:
        scanner.document()
    except (_Lost, RecursionError):
        # The parser of the standard library has already told, or will tell, what is wrong with this text.
        return scanner.places
    return scanner.places


class _Lost(Exception):
    """The text is not TOML from here on."""


class _Scanner:
    """Walks over TOML text and notes keys; it reads no values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = LineIndex(text)
        self._lengths: dict[KeyPath, int] = {}
        self.places = Places()

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
        path = self._resolve(self._key())
        self._expect("]]" if is_list else "]")
        position = self._lines.at(start)
        if is_list:
            number = self._lengths.get(path, 0)
            self._lengths[path] = number + 1
            self.places.note(path, position, may_repeat=True)
            path = (*path, number)
        for length in range(1, len(path)):
            self.places.note(path[:length], position, may_repeat=True)
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
        key = self._key()
        for length in range(1, len(key)):
            self.places.note((*table, *key[:length]), position, may_repeat=True)
        self.places.note((*table, *key), position)
        self._expect("=")
        self._skip(_SPACE)
        self._value((*table, *key))

    def _key(self) -> KeyPath:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
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
        if first == "[":
            self._list(path)
        elif first == "{":
            self._inline_table(path)
        else:
            match = (_STRING if first in {'"', "'"} else _SCALAR).match(self._text, self._at)
            if match is None:
                raise _Lost
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
