"""Owns the verbs beneath `config`: `show`, what the files add up to, and `schema`, what may stand in them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json, tell
from mcpvisor.daemon.cli.verb import Parser, Verbs, add_verb
from mcpvisor.daemon.config.places import config_paths

_SHOWS: Final = ("mcpvisor config show", "mcpvisor config show --origin /etc/mcpvisor")
_SCHEMAS: Final = ("mcpvisor config schema", "mcpvisor config schema --of json")


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    config = verbs.add_parser("config", help="show what the configuration adds up to, or its schema", description=_ABOUT)
    beneath: Verbs = config.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    show = add_verb(
        beneath, "show", show_config, "show the settings and entries that the files add up to", asks=False, examples=_SHOWS
    )
    show.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default as for `run`)")
    show.add_argument("--origin", action="store_true", help="say where each key comes from")
    show.add_argument("--all", action="store_true", help="also the keys of entries that have their defaults")
    schema = add_verb(
        beneath, "schema", show_schema, "print the JSON Schema of the configuration", asks=False, examples=_SCHEMAS
    )
    schema.add_argument(
        "--of", choices=("toml", "json"), default="toml", help="of our TOML (default), or of others' JSON files"
    )


_ABOUT = "What the configuration adds up to, and what may stand in it. Both are read from the files, without a daemon."


def show_config(arguments: argparse.Namespace) -> int:
    """`config show`: 78 when something in the files is rejected; what can be read is shown all the same."""
    from mcpvisor.daemon.config.check import check
    from mcpvisor.daemon.config.effective import Effective
    from mcpvisor.daemon.config.printed import as_json, as_toml

    paths = arguments.paths or config_paths(os.environ, os.geteuid())
    effective = Effective(paths, os.environ, os.geteuid(), whole=arguments.all)
    if arguments.json:
        say_json(as_json(effective.tables))
    else:
        for line in as_toml(effective.tables, origins=arguments.origin):
            say(clean_line(line))
    problems = check(paths, os.environ).loaded.problems
    for problem in problems:
        tell(f"not in force: {problem}")
    return int(Exit.CONFIG if problems else Exit.DONE)


def show_schema(arguments: argparse.Namespace) -> int:
    """`config schema`: the same as the files that ship with the project."""
    from mcpvisor.daemon.config.schema import json_schema, toml_schema

    say_json(json_schema() if arguments.of == "json" else toml_schema())
    return int(Exit.DONE)
