"""Owns how many servers the files may have in all: each costs time in every reload, and memory for as long as it is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.dialects import form_of, is_ours
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.problems import ConfigError, Problem

MAX_SERVERS: Final = 2000
"""A reload of as many takes a few seconds."""


def without_crowds(documents: Mapping[Path, Document | Problem]) -> dict[Path, Document | Problem]:
    """The files in their order, and in place of one with which there would be more than `MAX_SERVERS` the problem with it."""
    found: dict[Path, Document | Problem] = {}
    held = 0
    for file, document in documents.items():
        found[file] = document
        if isinstance(document, Problem):
            continue
        path, count = _servers_of(document)
        if held + count > MAX_SERVERS:
            more = f", which makes {held + count} with those of the files before it" if held else ""
            held_here = f"holds {count} server{'' if count == 1 else 's'}"
            found[file] = document.problem(path, f"{held_here}{more}", expected=f"at most {MAX_SERVERS} in all files")
        else:
            held += count
    return found


def _servers_of(document: Document) -> tuple[KeyPath, int]:
    """Where the servers of a file are, and how many; whatever is wrong with it is told by who reads it."""
    path: KeyPath = ("servers",)
    if not is_ours(document):
        try:
            form = form_of(document)
        except ConfigError:
            return (), 0
        path = form.root if form is not None else ()
    table: Any = document.data
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    return path, len(table) if isinstance(table, dict) else 0
