"""Owns whether the program of a handler, or of a credential, is one to be run: the file itself, and the script that it runs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.entry_scope import Item
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import Text

_INTERPRETER: Final = re.compile(r"(?:python|pypy|node|deno|bun|ruby|perl|php|lua|env|(?:ba|da|z|k|fi)?sh|uv|busybox)[\d.]*")
"""Programs whose first argument that is a file is what they run."""


def check_program(entry: TableReader, item: Item, words: Sequence[Text], cwd: str | None = None) -> None:
    """Record a problem where others may write the file that these words run, or a folder above it."""
    if not words or not reveal(words[0]):
        return
    for file in _files([reveal(word) for word in words], entry.scope.sources.environ.get("PATH"), cwd):
        check_file(entry, item, file)


def check_file(entry: TableReader, item: Item, file: Path | str | None) -> None:
    """Record a problem where others may write a file that an entry names; one that is not there is no problem here."""
    reason = entry.scope.sources.distrust(Path(file)) if file is not None else ""
    if reason:
        entry.scope.problem(item, reason)


def _files(words: Sequence[str], path: str | None, cwd: str | None) -> list[Path]:
    program, *arguments = words
    if "/" in program:
        found = Path(cwd or ".", program)
    else:
        which = shutil.which(program, path=path)
        if which is None:
            return []
        found = Path(which)
    if not _INTERPRETER.fullmatch(found.name):
        return [found]
    scripts = (Path(cwd or ".", one) for one in arguments if not one.startswith("-"))
    script = next((one for one in scripts if _is_file(one)), None)
    return [found] if script is None else [found, script]


def _is_file(path: Path) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a name that is too long
    except ValueError:
        return False
