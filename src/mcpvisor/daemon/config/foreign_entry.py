"""Owns the keys of other programs' files: which of ours each one means, and what is said about those that mean nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcpvisor.daemon.config.durations import seconds
from mcpvisor.daemon.config.entry_scope import Item, Scope
from mcpvisor.daemon.config.positions import Document, KeyPath

SAME: Final = {
    "serverUrl": "url",
    "httpUrl": "url",
    "transportType": "type",
    "environment": "env",
    "includeTools": "tools.allow",
    "excludeTools": "tools.deny",
    "timeout": "call_timeout",
    "tool_timeout_sec": "call_timeout",
    "startupTimeout": "start_timeout",
    "startup_timeout_sec": "start_timeout",
    "startup_timeout_ms": "start_timeout",
    "disabled": "enabled",
}
"""Another program's key and ours."""

NOT_READ: Final = {
    "envFile": "the file is not read; put its variables into env",
    "autoApprove": "approvals are the client's; not used here",
    "alwaysAllow": "approvals are the client's; not used here",
    "trust": "approvals are the client's; not used here",
    "oauth": "not supported in this version; use headers, or an entry in TOML with auth",
    "headersHelper": "not run; write it as header_command into an entry in TOML",
}

_ODD_SECONDS: Final = 1_000
_SURELY_MS: Final = 10_000


def translated(entry: dict[str, Any], path: KeyPath, document: Document, scope: Scope) -> dict[str, Item]:
    """The items of a foreign entry under our keys; each keeps the place where it is written.

    Of two keys that mean the same the first counts; the other gets a hint.
    """
    items: dict[str, Item] = {}
    for key, item in _flat(entry, path, document).items():
        if key in NOT_READ:
            scope.hint(item, NOT_READ[key])
            continue
        ours = SAME.get(key, key)
        value = _CONVERTED[key](item, scope) if key in _CONVERTED else item.value
        if ours in items:
            if item.value is not None and items[ours].value != value:
                scope.hint(item, f"not used: {items[ours].path[-1]} says {ours} already")
            continue
        items[ours] = Item(value, item.path, document)
        if key == "httpUrl":
            items.setdefault("type", Item("http", item.path, document))
    _split_command(items)
    _gather_tools(items, (*path, "tools"), document)
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


def _gather_tools(items: dict[str, Item], path: KeyPath, document: Document) -> None:
    """Lists of names under several keys become our one table."""
    table = {ours: items.pop(f"tools.{ours}") for ours in ("allow", "deny") if f"tools.{ours}" in items}
    tools = items.get("tools")
    if tools is not None and isinstance(tools.value, list):
        table.setdefault("allow", items.pop("tools"))
    if table and "tools" not in items:
        items["tools"] = Item(table, path, document)


def _limit(item: Item, scope: Scope) -> Any:
    """A time limit in seconds; what can only be milliseconds is taken as such, with a hint."""
    try:
        value = seconds(item.value)
    except ValueError:
        return item.value  # the reader of the key says what is wrong
    if not isinstance(item.value, str) and value >= _SURELY_MS:
        scope.hint(item, f"{item.value} looks like milliseconds and is taken as {value / 1000:g} s")
        return value / 1000
    if not isinstance(item.value, str) and value >= _ODD_SECONDS:
        scope.hint(item, f"{item.value} is taken as seconds; if milliseconds are meant, write {value / 1000:g}")
    return item.value


def _milliseconds(item: Item, _: Scope) -> Any:
    is_number = isinstance(item.value, int | float) and not isinstance(item.value, bool)
    return item.value / 1000 if is_number else item.value


def _inverted(item: Item, scope: Scope) -> Any:
    value = item.value
    if isinstance(value, bool):
        return not value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        scope.hint(item, f'"{value.strip().lower()}" in quotes is taken as {value.strip().lower()}')
        return value.strip().lower() != "true"
    return value  # the reader of the key says what is wrong


_CONVERTED: Final[dict[str, Callable[[Item, Scope], Any]]] = {
    "timeout": _limit,
    "tool_timeout_sec": _limit,
    "startupTimeout": _limit,
    "startup_timeout_sec": _limit,
    "startup_timeout_ms": _milliseconds,
    "disabled": _inverted,
}
