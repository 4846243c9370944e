"""Owns the walk over the parser: its verbs, and the options and places of each, for all that is made of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple, cast

from mcpvisor.daemon.cli.verb import Parser

# argparse has no public way to what a parser holds: all that is taken from within it is taken here.
# pyright: reportPrivateUsage=false


class Verb(NamedTuple):
    """A verb, or one beneath another: `words` are those after the program's own name."""

    words: tuple[str, ...]
    summary: str
    parser: Parser


class Option(NamedTuple):
    """An option: its spellings, what it takes (empty where it is a switch), and what it is for."""

    names: tuple[str, ...]
    value: str
    help: str
    action: argparse.Action


def verbs_of(parser: argparse.ArgumentParser, above: tuple[str, ...] = ()) -> list[Verb]:
    """The verbs directly beneath a parser, in their order."""
    action = _subparsers(parser)
    if action is None:
        return []
    summaries = {one.dest: one.help or "" for one in action._choices_actions}
    return [Verb((*above, name), summaries.get(name, ""), cast("Parser", one)) for name, one in action.choices.items()]


def all_verbs(parser: argparse.ArgumentParser, above: tuple[str, ...] = ()) -> Iterator[Verb]:
    """Every verb, each before those beneath it."""
    for verb in verbs_of(parser, above):
        yield verb
        yield from all_verbs(verb.parser, verb.words)


def options_of(parser: argparse.ArgumentParser) -> list[Option]:
    """The options that are told of, `--help` last."""
    told = [one for one in parser._actions if one.option_strings and one.help is not argparse.SUPPRESS]
    told.sort(key=lambda one: "--help" in one.option_strings)
    return [Option(tuple(one.option_strings), _value_of(one), one.help or "", one) for one in told]


def places_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What stands at a place, in its order; the place of a further verb is none of them."""
    return [one for one in parser._actions if not one.option_strings and not isinstance(one, argparse._SubParsersAction)]


def prints_json(verb: Verb) -> bool:
    """Whether a verb knows `--json`."""
    return any("--json" in option.names for option in options_of(verb.parser))


def _subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    return next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)


def _value_of(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        return str(action.metavar)
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
