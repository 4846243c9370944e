"""Owns the reading of JSON as people write it: comments and trailing commas are blanked at equal length, then parsed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NoReturn

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
from mcpvisor.daemon.config.problems import ConfigError, Problem

# A string that never ends is one up to the end of its line: looked for at each quote in it, its end would take for ever.
_TEXT: Final = r'"(?:\\.|[^"\\\n])*+"?'
_TOKEN = re.compile(_TEXT + r"|//[^\n]*|/\*.*?\*/|/\*", re.DOTALL)
_COMMA = re.compile(_TEXT + r"|,(?=\s*[}\]])", re.DOTALL)
_BRACKET = re.compile(_TEXT + rf"|[\[{{]|[\]}}]|[-+.0-9eE]{{{MAX_NUMBER + 1},}}", re.DOTALL)
_NOT_BREAK = re.compile(r"[^\r\n]")
_ODD_NUMBER = re.compile(_TEXT + r"|-?Infinity|NaN", re.DOTALL)
_IN_TEXT: Final = r"in a string a line end is written \n, a tab \t"
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^,\]}\s]+")


def parse_json(text: str, file: Path) -> Document:
    """The document in `text`, which may hold comments and trailing commas.

    Raises ConfigError with line and column: for what is no JSON, for a key written twice in one object (both places
    are named), for NaN and Infinity, and for a root that is no object.
    """
    plain = blank(text, file)
    lines = LineIndex(plain)
    try:
        _check_bounds(plain, lines)
        data = json.loads(plain, parse_constant=_no_constant)
        places = Places()
        if isinstance(data, dict):
            _Scanner(plain, lines, places).value(())
    except TooLarge as error:
        raise ConfigError(error.problem(file)) from error
    except json.JSONDecodeError as error:
        raise ConfigError(_problem(file, lines.at(error.pos), f"not valid JSON: {_whole(error.msg)}")) from error
    except ValueError as error:  # NaN and Infinity
        odd = next((match for match in _ODD_NUMBER.finditer(plain) if match[0][0] != '"'), None)
        place = lines.at(odd.start()) if odd is not None else Position(1, 1)
        raise ConfigError(_problem(file, place, f"not valid JSON: {error}")) from error
    if not isinstance(data, dict):
        place = lines.at(len(plain) - len(plain.lstrip()))
        raise ConfigError(_problem(file, place, "not a configuration", expected="one object { ... }"))
    if places.repeated:
        first, *more = [
            _problem(file, second, f"written twice in one object; the first is at line {first.line}", path)
            for path, first, second in places.repeated
        ]
        raise ConfigError(first, more)
    return Document(file, data, places.found)


def _problem(file: Path, place: Position, message: str, path: KeyPath = (), expected: str = "") -> Problem:
    return Problem(
        file=file, line=place.line, column=place.column, key_path=show_path(path), message=message, expected=expected
    )


def _whole(message: str) -> str:
    """What the parser says as a whole sentence: it ends some with "at", and the place is told before them."""
    message = message.removesuffix(" at").removesuffix(" starting")
    return f"{message}: {_IN_TEXT}" if message.startswith("Invalid control character") else message


def blank(text: str, file: Path) -> str:
    """The text with comments and trailing commas replaced by spaces, so that every offset stays what it was.

    Raises ConfigError for a comment that never ends.
    """

    def without_comment(match: re.Match[str]) -> str:
        found = match[0]
        if found == "/*":
            raise ConfigError(
                _problem(file, LineIndex(text).at(match.start()), 'a comment that begins with "/*" here never ends')
            )
        return found if found[0] == '"' else _NOT_BREAK.sub(" ", found)

    return _COMMA.sub(lambda m: m[0] if m[0] != "," else " ", _TOKEN.sub(without_comment, text))


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _check_bounds(plain: str, lines: LineIndex) -> None:
    """Raise TooLarge for what the parser of the standard library has no bounds for."""
    depth = 0
    for match in _BRACKET.finditer(plain):
        first = match[0][0]
        if first in "[{":
            depth += 1
        elif first in "]}":
            depth -= 1
        elif first != '"':
            raise TooLarge(TOO_LONG, lines.at(match.start()))
        if depth > MAX_DEPTH:
            raise TooLarge(TOO_DEEP, lines.at(match.start()))


class _Scanner:
    """Walks over text that the standard library has accepted, and notes where the keys are."""

    def __init__(self, text: str, lines: LineIndex, places: Places) -> None:
        self._text = text
        self._lines = lines
        self._places = places
        self._at = 0

    def value(self, path: KeyPath) -> None:
        first = self._peek()
        if first == "{":
            self._members(path)
        elif first == "[":
            self._elements(path)
        elif first == '"':
            self._string()
        else:
            match: Any = _SCALAR.match(self._text, self._at)
            self._at = match.end()

    def _members(self, path: KeyPath) -> None:
        self._at += 1
        while self._peek() != "}":
            position = self._lines.at(self._at)
            member = (*path, self._string())
            self._places.note(member, position)
            self._peek()
            self._at += 1  # the colon
            self.value(member)
            if self._peek() == ",":
                self._at += 1
        self._at += 1

    def _elements(self, path: KeyPath) -> None:
        self._at += 1
        number = 0
        while self._peek() != "]":
            self._places.note((*path, number), self._lines.at(self._at))
            self.value((*path, number))
            number += 1
            if self._peek() == ",":
                self._at += 1
        self._at += 1

    def _string(self) -> str:
        text, self._at = _DECODER.raw_decode(self._text, self._at)
        return str(text)

    def _peek(self) -> str:
        match: Any = _SPACE.match(self._text, self._at)
        self._at = match.end()
        return self._text[self._at]
