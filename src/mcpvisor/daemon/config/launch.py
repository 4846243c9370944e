"""Owns how the keys of a stdio server become a launch: command line, environment and folder."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.advice import secret_words
from mcpvisor.daemon.config.argument_secrets import named_secret, with_secrets
from mcpvisor.daemon.config.entry_scope import Item, Scope, home_expanded, kind_of
from mcpvisor.daemon.config.packages import unpinned
from mcpvisor.daemon.config.policies import read_limits
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.spec import StdioLaunch, Text

KEYS: Final = ("command", "args", "env", "inherit_env", "cwd", "limits")
"""The keys that only a server with a command has."""

_NEVER_INHERITED = re.compile(r"NOTIFY_SOCKET|LISTEN_.*|WATCHDOG_.*|CREDENTIALS_DIRECTORY")
_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def read_launch(entry: TableReader) -> StdioLaunch | None:
    """The launch of an entry that has a `command`; None after a problem with the command itself."""
    words = _command(entry)
    given = [(item, text) for item in entry.elements("args") for text in _argument(item, entry)]
    launch = StdioLaunch(
        command=words[0] if words else "",
        args=tuple(with_secrets([*words, *(text for _, text in given)])[1:]) if words else (),
        env=read_environment(entry),
        inherit_env=read_inherited(entry),
        cwd=entry.path("cwd"),
        limits=read_limits(entry),
    )
    item = entry.item("args")
    if item is not None and any(isinstance(text, Secret) for _, text in given):
        entry.scope.hint(item, "a variable in an argument is seen by everyone who may list processes; env is not")
    command = entry.item("command")
    if command is not None and words:
        advise(entry.scope, [command] * len(words) + [item for item, _ in given], [*words, *(text for _, text in given)])
    return launch if words else None


def advise(scope: Scope, places: Sequence[Item], words: Sequence[Text]) -> None:
    """Hint at what a command line shows to everybody, or fetches in any version; `places` are those of its words.

    Words with variables in them are not looked at: they have a hint of their own.
    """
    plain = ["${}" if isinstance(word, Secret) else word for word in words]
    package = unpinned(plain)
    for at, text in [*secret_words(plain), *([package] if package is not None else [])]:
        scope.hint(places[at], text)


def _command(entry: TableReader) -> list[Text]:
    """The program, and the arguments where someone wrote a whole command line as the program."""
    item = entry.item("command")
    if item is None:
        return []
    if isinstance(item.value, str) and not item.value.strip():
        entry.scope.problem(item, "is empty", expected="the program to start")
        return []
    if item.value == []:  # other programs have the whole line as a list
        entry.scope.problem(item, "is an empty list", expected="the program to start")
        return []
    whole = entry.text_of(item)
    if whole is None:
        return []
    environ = entry.scope.sources.environ
    if not is_command_line(item.value, reveal(whole), environ):
        return [with_home(whole, environ)]
    try:
        words = shlex.split(item.value)
    except ValueError:
        entry.scope.problem(item, "a quotation in it does not end", expected="the program alone; the rest in args")
        return []
    entry.scope.hint(item, "a whole command line; it is split at its spaces. Put what follows the program into args")
    # Split before variables are replaced, so that a space in a value never makes two arguments of it.
    texts = [entry.text_of(Item(word, item.path, item.document)) for word in words]
    known = [text for text in texts if text is not None]
    return [with_home(known[0], environ), *known[1:]] if known else []


def is_command_line(written: str, whole: str, environ: Mapping[str, str]) -> bool:
    """Whether a program as it is `written` is a whole command line; `whole` is the same with its variables replaced."""
    first = written.split(maxsplit=1)[0]
    if first == written.strip() or _WINDOWS_PATH.match(whole) or _exists(whole, environ):
        return False
    return "/" not in first or _exists(first, environ)


def _exists(program: str, environ: Mapping[str, str]) -> bool:
    path = home_expanded(program, environ)
    return Path(path).exists() if "/" in path else shutil.which(path, path=environ.get("PATH")) is not None


def with_home(text: Text, environ: Mapping[str, str]) -> Text:
    """A program with a leading `~/` replaced by the home folder."""
    expanded = home_expanded(reveal(text), environ)
    return text.replaced(expanded) if isinstance(text, Secret) else expanded


def _argument(item: Item, entry: TableReader) -> list[Text]:
    value = item.value
    if isinstance(value, int | float):  # true and false are ints here
        entry.scope.hint(item, f"{kind_of(value)} is passed on as text; write it in quotes")
        return [_scalar(value)]
    text = entry.text_of(item)
    return [] if text is None else [text]


def read_environment(entry: TableReader) -> tuple[tuple[str, Text], ...]:
    """`env = { NAME = "value" }`, sorted; every value is a secret."""
    table = entry.table("env")
    if table is None:
        return ()
    pairs: list[tuple[str, Text]] = []
    for name, item in table.all_items().items():
        if not name or "=" in name or not name.isprintable():
            entry.scope.problem(item, "cannot be the name of a variable")
        elif isinstance(item.value, int | float):
            entry.scope.hint(item, f"{kind_of(item.value)} is passed on as text; write it in quotes")
            pairs.append((name, Secret(_scalar(item.value))))
        else:
            text = entry.text_of(item)
            if text is not None:
                # Whoever writes a password here without a variable is no less entitled to see it nowhere.
                pairs.append((name, named_secret(name, text)))
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def read_inherited(entry: TableReader) -> tuple[str, ...]:
    """`inherit_env = ["NAME", ...]`."""
    names = entry.texts("inherit_env")
    item = entry.item("inherit_env")
    for name in names:
        if item is not None and _NEVER_INHERITED.fullmatch(name):
            entry.scope.problem(item, f"{name} belongs to the daemon and is never inherited")
    return names


def _scalar(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
