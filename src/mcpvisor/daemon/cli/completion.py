"""Owns what may stand at the end of a command that is being typed: read from the parser, so that any verb is known at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mcpvisor.daemon.cli.tree import options_of, places_of, verbs_of
from mcpvisor.daemon.cli.verb import Parser

Names = Callable[[str, Mapping[str, str]], Iterable[str]]
"""The names of a kind that the daemon knows, such as `server`; also given what was typed already, by its name in the parser."""

NAMED: Final = {
    "server": "server",
    "tool": "tool",
    "uri": "uri",
    "handler": "handler",
    "kind": "kind",
    "id": "question",
    "ids": "dead letter",
}
"""By the name that a place or an option has in the parser (its `dest`): the kind of names that may stand there."""


class Candidate(NamedTuple):
    """What may stand there, and what it is, in words."""

    word: str
    help: str = ""


class Completion(NamedTuple):
    """All that may stand there; `files` is whether names of files may too, which shells know best themselves."""

    candidates: list[Candidate]
    files: bool = False


def complete_words(parser: Parser, words: Sequence[str], names: Names) -> Completion:
    """What may stand for the last of the words, which begin with the program's own name."""
    if len(words) < 2:
        return Completion([])
    *typed, last = words[1:]
    here = _Here(parser)
    for word in typed:
        here.take(word)
    return here.offer(last, names)


class _Here:
    """Where in the command one is after the words that were taken."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._places = places_of(parser)
        self._pending: argparse.Action | None = None
        self._values: dict[str, str] = {}
        self._only_places = False

    def take(self, word: str) -> None:
        """Go on by one word that is finished."""
        if self._pending is not None:
            self._values[self._pending.dest] = word
            self._pending = None
        elif word == "--" and not self._only_places:
            self._only_places = True
        elif word.startswith("-") and len(word) > 1 and not self._only_places:
            name, equals, value = word.partition("=")
            option = self._options().get(name)
            if option is not None and option.nargs != 0:
                if equals:
                    self._values[option.dest] = value
                elif option.nargs != "?":
                    self._pending = option
        else:
            self._take_place(word)

    def offer(self, last: str, names: Names) -> Completion:
        """What may stand here for a word that begins with `last`."""
        if self._pending is not None:
            return self._of(self._pending, last, names)
        name, equals, begin = last.partition("=")
        if equals and last.startswith("--"):
            option = self._options().get(name)
            return self._of(option, begin, names, before=f"{name}=") if option is not None else Completion([])
        if last.startswith("-") and not self._only_places:
            return _fitting((Candidate(one.names[-1], one.help) for one in options_of(self._parser)), last)
        verbs = [Candidate(verb.words[-1], verb.summary) for verb in verbs_of(self._parser) if verb.summary]
        found = self._of(self._places[0], last, names) if self._places else Completion([])
        return Completion([*_fitting(verbs, last).candidates, *found.candidates], found.files)

    def _take_place(self, word: str) -> None:
        for verb in verbs_of(self._parser):
            if verb.words[-1] == word:
                self._parser, self._places = verb.parser, places_of(verb.parser)
                return
        if self._places:
            place = self._places[0]
            self._values[place.dest] = word
            if place.nargs not in ("*", "+"):
                self._places = self._places[1:]

    def _of(self, action: argparse.Action, begin: str, names: Names, before: str = "") -> Completion:
        if action.choices is not None:
            return _fitting((Candidate(f"{before}{one}") for one in action.choices), before + begin)
        if action.type is Path:
            return Completion([], files=not before)
        if action.dest == "arguments":  # of a call: JSON, or @FILE
            return Completion([])
        kind = NAMED.get(action.dest)
        if kind is None:
            return Completion([], files=action.dest == "socket" and not before)
        return _fitting((Candidate(f"{before}{one}") for one in names(kind, self._values)), before + begin)

    def _options(self) -> dict[str, argparse.Action]:
        return {name: option.action for option in options_of(self._parser) for name in option.names}


def _fitting(candidates: Iterable[Candidate], begin: str) -> Completion:
    return Completion([one for one in candidates if one.word.startswith(begin)])
