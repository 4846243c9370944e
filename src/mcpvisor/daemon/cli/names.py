"""Owns which names a shell may offer: those that the running daemon knows, and none where there is no daemon."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mcpvisor.daemon.cli.client import ControlClient, server_path
from mcpvisor.daemon.cli.exits import CliError

_HARMLESS: Final = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./:@%+,=-]*", re.ASCII)
"""A name that means itself in every shell; no other is offered, since those of tools and resources are the servers' words."""


def known_names(kind: str, typed: Mapping[str, str]) -> list[str]:
    """The names of a kind, without those that a shell could take for something else; nothing where the daemon has no answer."""
    look_up = _LOOK_UPS.get(kind)
    if look_up is None:
        return []
    client = ControlClient(typed.get("socket"))
    try:
        found = [name for name in look_up(client, typed) if isinstance(name, str)]
    except CliError:
        return []
    return [name for name in dict.fromkeys(found) if _HARMLESS.fullmatch(name)]


def _servers(client: ControlClient, _: Mapping[str, str]) -> Iterable[Any]:
    return [one["name"] for one in client.get("/v1/status")["servers"]]


def _handlers(client: ControlClient, _: Mapping[str, str]) -> Iterable[Any]:
    return [one["name"] for one in client.get("/v1/handlers")["handlers"]]


def _tools(client: ControlClient, typed: Mapping[str, str]) -> Iterable[Any]:
    return [one.get("name") for one in client.get(server_path(typed.get("server", ""), "/offer"))["tools"]]


def _resources(client: ControlClient, typed: Mapping[str, str]) -> Iterable[Any]:
    return [one.get("uri") for one in client.get(server_path(typed.get("server", ""), "/offer"))["resources"]]


def _kinds(client: ControlClient, _: Mapping[str, str]) -> Iterable[Any]:
    return sorted({one["kind"] for one in client.get("/v1/events", {"follow": "false", "backlog": 1000})["events"]})


def _questions(client: ControlClient, _: Mapping[str, str]) -> Iterable[Any]:
    return [one["id"] for one in client.get("/v1/elicitations")["elicitations"]]


def _dead_letters(client: ControlClient, _: Mapping[str, str]) -> Iterable[Any]:
    return [one["event"]["id"] for one in client.get("/v1/handlers/dead")["dead"]]


_LOOK_UPS: Final[Mapping[str, Callable[[ControlClient, Mapping[str, str]], Iterable[Any]]]] = {
    "server": _servers,
    "handler": _handlers,
    "tool": _tools,
    "uri": _resources,
    "kind": _kinds,
    "question": _questions,
    "dead letter": _dead_letters,
}
