"""Owns how an entry of another program becomes items under our keys, each at the place where it is written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.dialects import Dialect
from mcpvisor.daemon.config.entry_scope import Item, Scope, items_of
from mcpvisor.daemon.config.foreign_keys import Nothing, meaning_of_key
from mcpvisor.daemon.config.foreign_variables import Surroundings, in_our_form
from mcpvisor.daemon.config.positions import Document, KeyPath

_TEXTS: Final = ("command", "args", "env", "cwd", "url", "headers", "auth", "header_command")
"""The keys in which other programs replace variables."""

_BARE_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def translated(
    entry: dict[str, Any],
    path: KeyPath,
    document: Document,
    scope: Scope,
    dialect: Dialect,
    around: Surroundings,
    *,
    suggests: bool = False,
) -> dict[str, Item]:
    """The items of a foreign entry under our keys; each keeps the place where it is written.

    Of two keys that mean the same the first counts; the other gets a hint. A variable that a daemon cannot have is a
    problem; with `suggests` the item then holds what a person may write instead.
    """
    items: dict[str, Item] = {}
    tables: dict[str, dict[str, Item]] = {}
    for key, item in _flat(entry, path, document).items():
        means = meaning_of_key(key, dialect)
        if isinstance(means, Nothing):
            if item.value is not None:
                scope.unused(item, means.why)
            continue
        values = means.read(item, scope) if means is not None else {(key,): item.value}
        for ours, value in values.items():
            home = items if len(ours) == 1 else tables.setdefault(ours[0], {})
            name = ours[-1]
            if name not in home:
                home[name] = Item(value, item.path, document)
            elif item.value is not None and home[name].value != value:
                scope.unused(item, f"not used: {home[name].path[-1]} says {'.'.join(ours)} already")
    for key, table in tables.items():
        _merge(items, key, table, document)
    _split_command(items)
    if "command" in items and around.workspace is not None:
        items["cwd"] = _in_workspace(items.get("cwd"), items["command"], around.workspace)
    for key in _TEXTS:
        if key in items:
            items[key] = _with_our_variables(items[key], scope, around, is_url=key == "url", suggests=suggests)
    return items


def _flat(entry: dict[str, Any], path: KeyPath, document: Document) -> dict[str, Item]:
    """The items of an entry, with those of a `transport` object lifted to the level of the entry."""
    items: dict[str, Item] = {}
    for key, value in entry.items():
        if key == "transport" and isinstance(value, dict):
            lifted = {k: Item(v, (*path, key, k), document) for k, v in value.items()}
            items.update({k: v for k, v in lifted.items() if k not in entry})
        else:
            items[key] = Item(value, (*path, key), document)
    return items


def _merge(items: dict[str, Item], key: str, table: Mapping[str, Item], document: Document) -> None:
    """Put what several keys say about one table of ours together; what the table itself says wins."""
    own = items.get(key)
    if own is None or own.value is None:
        items[key] = Item(dict(table), next(iter(table.values())).path, document)
    elif isinstance(own.value, dict):
        items[key] = Item({**table, **items_of(own.value, own.path, document)}, own.path, document)


def _split_command(items: dict[str, Item]) -> None:
    """`command = [program, argument, ...]`, as one list."""
    command = items.get("command")
    if command is None or not isinstance(command.value, list) or not command.value:
        return
    args = items.get("args")
    rest = [Item(v, (*command.path, n), command.document) for n, v in enumerate(command.value)]
    more = args.value if args is not None and isinstance(args.value, list) else []
    items["command"] = rest[0]
    items["args"] = Item([*command.value[1:], *more], command.path, command.document)


def _in_workspace(cwd: Item | None, command: Item, workspace: Path) -> Item:
    """The folder of a server of a project: its root where nothing else is said, and a relative one starts there."""
    if cwd is None or cwd.value is None:
        return Item(str(workspace).replace("${", "$${"), command.path, command.document)
    if not isinstance(cwd.value, str) or cwd.value.startswith(("/", "~", "$")):
        return cwd
    return Item(os.path.normpath(f"{str(workspace).replace('${', '$${')}/{cwd.value}"), cwd.path, cwd.document)


def _with_our_variables(item: Item, scope: Scope, around: Surroundings, *, is_url: bool, suggests: bool) -> Item:
    """The item with the variables in its texts written as ours, however deep they are."""
    value = item.value
    if isinstance(value, str):
        if _BARE_VARIABLE.fullmatch(value):
            scope.hint(item, f"is plain text here; the variable would be ${{{value[1:]}}}")
        rewritten = in_our_form(value, around)
        for fault in rewritten.faults:
            scope.problem(item, fault)
        # With a fault the entry is rejected by now; what stands here must not be found wrong once more.
        is_bad = bool(rewritten.faults) and not suggests
        stand_in = "http://rejected.invalid/" if is_url else "rejected"
        return Item(stand_in if is_bad else rewritten.text, item.path, item.document)
    if isinstance(value, dict):
        inner = items_of(value, item.path, item.document)
        table = {k: _with_our_variables(v, scope, around, is_url=False, suggests=suggests) for k, v in inner.items()}
        return Item(table, item.path, item.document)
    if isinstance(value, list):
        elements = [Item(one, (*item.path, n), item.document) for n, one in enumerate(value)]
        told = [_with_our_variables(one, scope, around, is_url=False, suggests=suggests).value for one in elements]
        return Item(told, item.path, item.document)
    return item
