"""Owns the reading of JSON as people write it: comments and trailing commas are blanked at equal length, then parsed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn

from mcpvisor.daemon.config.positions import (
    MAX_DEPTH,
    Document,
    KeyPath,
    LineIndex,
    Places,
    Position,
    show_path,
)
from mcpvisor.daemon.config.problems import ConfigError, Problem

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
_COMMA = re.compile(r'"(?:\\.|[^"\\\n])*"|,(?=\s*[}\]])', re.DOTALL)
_BRACKET = re.compile(r'"(?:\\.|[^"\\\n])*"|[\[{]|[\]}]', re.DOTALL)
_NOT_BREAK = re.compile(r"[^\r\n]")
_ODD_NUMBER = re.compile(r'"(?:\\.|[^"\\\n])*"|-?Infinity|NaN|\d{4000,}', re.DOTALL)
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
    _check_depth(plain, file, lines)
    try:
        data = json.loads(plain, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        place = lines.at(error.pos)
        message = f"not valid JSON: {error.msg}"
        raise ConfigError(Problem(file=file, line=place.line, column=place.column, message=message)) from error
    except ValueError as error:  # NaN and Infinity, or a number of thousands of digits
        odd = next((match for match in _ODD_NUMBER.finditer(plain) if match[0][0] != '"'), None)
        place = lines.at(odd.start()) if odd is not None else Position(1, 1)
        message = f"not valid JSON: {error}"
        raise ConfigError(Problem(file=file, line=place.line, column=place.column, message=message)) from error
    if not isinstance(data, dict):
        raise ConfigError(Problem(file=file, line=1, message="not a configuration", expected="one object { ... }"))
    places = Places()
    _Scanner(plain, lines, places).value(())
    for path, first, second in places.repeated:
        message = f"written twice in one object; the first is at line {first.line}"
        raise ConfigError(Problem(file=file, line=second.line, column=second.column, key_path=show_path(path), message=message))
    return Document(file, data, places.found)


def blank(text: str, file: Path) -> str:
    """The text with comments and trailing commas replaced by spaces, so that every offset stays what it was.

    Raises ConfigError for a comment that never ends.
    """

    def without_comment(match: re.Match[str]) -> str:
        found = match[0]
        if found == "/*":
            place = LineIndex(text).at(match.start())
            message = 'a comment that begins with "/*" here never ends'
            raise ConfigError(Problem(file=file, line=place.line, column=place.column, message=message))
        return found if found[0] == '"' else _NOT_BREAK.sub(" ", found)

    return _COMMA.sub(lambda m: m[0] if m[0] != "," else " ", _TOKEN.sub(without_comment, text))


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _check_depth(plain: str, file: Path, lines: LineIndex) -> None:
    depth = 0
    for match in _BRACKET.finditer(plain):
        if match[0] in "[{":
            depth += 1
        elif match[0] in "]}":
            depth -= 1
        if depth > MAX_DEPTH:
            place = lines.at(match.start())
            message = f"nested deeper than {MAX_DEPTH} levels"
            raise ConfigError(Problem(file=file, line=place.line, column=place.column, message=message))


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
