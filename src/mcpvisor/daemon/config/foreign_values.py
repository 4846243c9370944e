"""Owns how the values of other programs' keys become values of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcpvisor.daemon.config.durations import seconds
from mcpvisor.daemon.config.entry_scope import Item, Scope, kind_of
from mcpvisor.daemon.config.table_reader import TableReader

OurKey = tuple[str] | tuple[str, str]
"""A key of an entry, or one within a table of it."""

Values = Mapping[OurKey, Any]
Reading = Callable[[Item, Scope], Values]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ODD_SECONDS: Final = 1_000
_SURELY_MS: Final = 10_000
_ERAS: Final = {"initialize": "legacy", "auto": "auto", "discover": "modern"}
_NO_POLICY: Final = 'null meant no restarts there; here it is started again: write "restart": {"policy": "never"} to have none'


def renamed(ours: str, within: str = "") -> Reading:
    """The same value under our key, or under one within that table."""
    key: OurKey = (ours, within) if within else (ours,)
    return lambda item, _: {key: item.value}


def streamable_url(item: Item, _: Scope) -> Values:
    """A URL under a key that says the transport too."""
    return {("url",): item.value, ("type",): "http"}


def http_or_sse(item: Item, _: Scope) -> Values:
    """A transport of VS Code, whose "http" falls back to the older one."""
    return {("type",): "remote" if item.value == "http" else item.value}


def inverted(ours: str) -> Reading:
    """The contrary, also of a truth value in quotes."""

    def read(item: Item, scope: Scope) -> Values:
        value = item.value
        if isinstance(value, bool):
            return {(ours,): not value}
        if isinstance(value, str) and (word := value.strip().lower()) in {"true", "false"}:
            scope.hint(item, f'"{word}" in quotes is taken as {word}')
            return {(ours,): word != "true"}
        return {(ours,): value}  # the reader of the key says what is wrong

    return read


def limit(ours: str) -> Reading:
    """A time limit in seconds; what can only be milliseconds is taken as such, with a hint."""

    def read(item: Item, scope: Scope) -> Values:
        try:
            value = seconds(item.value)
        except ValueError:
            return {(ours,): item.value}  # the reader of the key says what is wrong
        if not isinstance(item.value, str) and value >= _SURELY_MS:
            scope.hint(item, f"{item.value} looks like milliseconds and is taken as {value / 1000:g} s")
            return {(ours,): value / 1000}
        if not isinstance(item.value, str) and value >= _ODD_SECONDS:
            scope.hint(item, f"{item.value} is taken as seconds; if milliseconds are meant, write {value / 1000:g}")
        return {(ours,): item.value}

    return read


def milliseconds(ours: str) -> Reading:
    """A time limit in milliseconds."""

    def read(item: Item, scope: Scope) -> Values:
        if isinstance(item.value, dict):
            scope.unused(item, "limits for single steps are not read")
            return {}
        is_number = isinstance(item.value, int | float) and not isinstance(item.value, bool)
        return {(ours,): item.value / 1000 if is_number else item.value}

    return read


def tools(item: Item, scope: Scope) -> Values:
    """The tools that are shown, as a list or as "*"; a table is ours."""
    if item.value == "*":
        return {("tools", "allow"): ["*"]}
    return only_tools(item, scope) if isinstance(item.value, list) else {("tools",): item.value}


def only_tools(item: Item, _: Scope) -> Values:
    """The only tools that are shown. Of an empty list that is none, where our empty list is all."""
    return {("tools", "deny"): ["*"]} if item.value == [] else {("tools", "allow"): item.value}


def credentials(item: Item, scope: Scope) -> Values:
    """Our own table `auth`; another program's is for a person who signs in."""
    if isinstance(item.value, dict) and "type" not in item.value:
        scope.unused(item, "nobody can sign in at a daemon; use headers, or an entry in TOML with auth")
        return {}
    return {("auth",): item.value}


def lifecycle(item: Item, scope: Scope) -> Values:
    """How the server is greeted: which era of the protocol it speaks."""
    if item.value is None:
        return {}
    era = _ERAS.get(item.value) if isinstance(item.value, str) else None
    if era is None:
        scope.problem(item, "not a word that is known here", expected='"initialize", "auto" or "discover"')
        return {}
    return {("era",): era}


def restart_policy(item: Item, scope: Scope) -> Values:
    """A policy of delays in milliseconds; what it leaves out has the values that it has there."""
    if item.value is None:
        scope.unused(item, _NO_POLICY)
        return {}
    if not isinstance(item.value, dict):
        scope.problem(item, f"is {kind_of(item.value)}", expected="a table, or null")
        return {}
    items = {key: Item(value, (*item.path, key), item.document) for key, value in item.value.items()}
    table = TableReader(items, scope)
    delay = _of_milliseconds(table, "initialDelayMs", 1000)
    longest = _of_milliseconds(table, "maxDelayMs", 30_000)
    multiplier = table.item("backoffMultiplier")
    if multiplier is not None and multiplier.value != 2:
        scope.unused(multiplier, "delays are doubled here")
    attempts = table.item("maxRestartAttempts")
    if attempts is not None:
        scope.unused(attempts, "a server is never given up: in a crash loop it is tried again every restart.crash_loop_retry")
    table.finish()
    return {("restart", "delay"): min(delay, longest), ("restart", "max_delay"): longest}


def _of_milliseconds(table: TableReader, key: str, default: int) -> float:
    return table.integer(key, default, least=1) / 1000


def inherited(item: Item, scope: Scope) -> Values:
    """Names of variables that are handed on, each as a text or as a table with its name."""
    if not isinstance(item.value, list):
        return {("inherit_env",): item.value}
    names: list[Any] = []
    for number, one in enumerate(item.value):
        if isinstance(one, dict) and one.get("source") not in {None, "local"}:
            scope.unused(Item(one, (*item.path, number), item.document), "only variables of the daemon can be handed on")
        else:
            names.append(one.get("name") if isinstance(one, dict) else one)
    return {("inherit_env",): names}


def bearer(item: Item, _: Scope) -> Values:
    """A token as it is written."""
    return {("auth",): {"type": "bearer", "token": item.value}}


def bearer_variable(item: Item, scope: Scope) -> Values:
    """The name of the variable that holds a token."""
    token = _variable(item, scope)
    return {} if token is None else {("auth",): {"type": "bearer", "token": token}}


def header_variables(item: Item, scope: Scope) -> Values:
    """Headers, each with the name of the variable that holds its value."""
    if not isinstance(item.value, dict):
        scope.problem(item, f"is {kind_of(item.value)}", expected="a table")
        return {}
    found: dict[OurKey, Any] = {}
    for name, variable in item.value.items():
        value = _variable(Item(variable, (*item.path, name), item.document), scope)
        if value is not None:
            found["headers", name] = value
    return found


def _variable(item: Item, scope: Scope) -> str | None:
    if isinstance(item.value, str) and _VARIABLE.fullmatch(item.value):
        return f"${{{item.value}}}"
    scope.problem(item, "cannot be the name of a variable")
    return None
