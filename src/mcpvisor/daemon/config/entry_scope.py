"""Owns what the readers of one entry share: values with their places, variables, and what was found so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcpvisor.daemon.config.expansion import FORMS, Expanded, FileUnread, Sources, expand
from mcpvisor.daemon.config.positions import MAX_GROWN, Document, KeyPath
from mcpvisor.daemon.config.problems import Findings, Problem

_HALF: Final = re.compile("[\ud800-\udfff]")  # a search, since a text may be megabytes long


@dataclass(frozen=True, slots=True)
class Item:
    """One value as written, and where. A table that was merged of several holds items in place of values."""

    value: Any = field(repr=False)
    path: KeyPath
    document: Document


class Repeats:
    """What would be said of many entries of one file in the same words, and is to be said once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[Problem]] = {}

    def add(self, path: KeyPath, problem: Problem) -> None:
        """Remember one more place; the same key with the same words is the same thing."""
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        self._found.setdefault((key, problem.message), []).append(problem)

    def all(self) -> list[Problem]:
        """Every place, in the order in which they were found."""
        return [problem for problems in self._found.values() for problem in problems]

    def once(self) -> list[Problem]:
        """The first place of each, with the number of the others."""
        told: list[Problem] = []
        for first, *others in self._found.values():
            more = f" (and in {len(others)} more place{'s' if len(others) > 1 else ''})" if others else ""
            told.append(replace(first, message=first.message + more))
        return told


class Scope:
    """What all readers of one entry share: its name, its variables, whose file it is, and what was found."""

    def __init__(
        self,
        server: str,
        sources: Sources,
        findings: Findings,
        *,
        foreign: bool,
        handler: str = "",
        entry: Item | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        self.server = server
        self.handler = handler
        """The name of the handler, where the entry is one; `entry` is its own place, of which `missing` speaks."""
        self._entry = entry
        self.sources = sources
        self.findings = findings
        self.foreign = foreign
        """Whether the entry is from another program's file: its unknown keys and quoted booleans are forgiven."""
        self.repeats = repeats if repeats is not None else Repeats()
        self.unused_paths: set[KeyPath] = set()
        """What is written in the entry and has no use here."""

    def problem(self, item: Item, message: str, *, expected: str = "", near: str = "", needs: str = "") -> None:
        """Record an error; the entry is rejected. `needs` is the file that has to be mended, where it is not the entry's."""
        self.findings.problems.append(replace(self._at(item, message, expected, near), needs=needs))

    def hint(self, item: Item, message: str, *, near: str = "") -> None:
        """Record a warning; the entry runs."""
        self.findings.hints.append(self._at(item, message, "", near))

    def unused(self, item: Item, message: str, *, near: str = "") -> None:
        """Record that what is written here has no use; it is told once for the whole file."""
        self.unused_paths.add(item.path)
        self.repeats.add(item.path, self._at(item, message, "", near))

    def missing(self, key: str, *, expected: str) -> None:
        """Record that a key is not there, at the place of the entry."""
        assert self._entry is not None, "only of a scope that knows the place of its entry"
        self.problem(self._entry, f"the {key} is missing", expected=expected)

    def _at(self, item: Item, message: str, expected: str, near: str) -> Problem:
        problem = item.document.problem(item.path, message, expected=expected, near=near, server=self.server)
        return replace(problem, handler=self.handler) if self.handler else problem

    def expanded(self, item: Item) -> Expanded | None:
        """The text of an item with its variables replaced; None after a problem."""
        try:
            result = expand(item.value, self.sources)
        except LookupError as error:
            self.problem(item, str(error.args[0]), needs=str(error.file) if isinstance(error, FileUnread) else "")
            return None
        except ValueError as error:
            self.problem(item, str(error), expected=FORMS)
            return None
        if result.touched and not item.document.has_room(len(result.text)):
            self.problem(item, f"with this the variables of the file become more than {MAX_GROWN} characters")
            return None
        fault = text_fault(result.text)
        if fault:
            self.problem(item, fault)
            return None
        return result


def text_fault(text: str) -> str:
    """Why a text can be no argument, variable or header of anything; empty when it can."""
    if "\x00" in text:
        return "holds a NUL character"
    if _HALF.search(text):
        return "holds half a character (a lone surrogate)"
    return ""


def home_expanded(text: str, environ: Mapping[str, str]) -> str:
    """The path with a leading `~/` replaced by the home folder of the environment."""
    return environ["HOME"] + text[1:] if (text == "~" or text.startswith("~/")) and environ.get("HOME") else text


def kind_of(value: Any) -> str:
    """What a value is, in words; never the value."""
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return "null" if value is None else names.get(type(value), "a date or time")


def items_of(table: Mapping[str, Any], path: KeyPath, document: Document) -> dict[str, Item]:
    """The items of a table at `path` of a document; what was merged in from elsewhere keeps its own place."""
    return {key: value if isinstance(value, Item) else Item(value, (*path, key), document) for key, value in table.items()}
