"""Owns the answers to the list requests, and how long a client's first one waits for servers that are starting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from mcpvisor.daemon.gateway.caller import Caller
from mcpvisor.daemon.gateway.catalogs import Catalogs, View
from mcpvisor.daemon.gateway.crossing import rejected
from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.pages import BadCursor, page, shown
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.offer import NOTHING

JsonObject = dict[str, Any]

LISTS: Final[Mapping[str, tuple[CatalogKind, str]]] = {
    "tools/list": ("tools", "tools"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resource_templates", "resourceTemplates"),
    "prompts/list": ("prompts", "prompts"),
}
"""Each list request: the kind of entry, and the field of the result that holds them."""


class Lists:
    """The lists of one endpoint."""

    def __init__(self, doors: ServerDoors, catalogs: Catalogs, view: View, first_list_wait: float) -> None:
        self._doors = doors
        self._catalogs = catalogs
        self._view = view
        self._first_list_wait = first_list_wait
        self._first_seen: dict[str, float] = {}

    async def answer(self, method: str, params: Mapping[str, Any], caller: Caller) -> JsonObject:
        """One page of a list. Raises RequestFailed for a cursor that is not good any more."""
        await self.wait_for_servers(caller)
        self._catalogs.refresh()
        kind, field = LISTS[method]
        entries = self._catalogs.current(self._view).entries(kind)
        stamp = self._catalogs.stamp(self._view, kind)
        try:
            listed, following = page(entries, stamp, params.get("cursor"))
        except BadCursor:
            raise rejected("bad_cursor", "this cursor is not valid, or the list has changed: list from the start") from None
        result: JsonObject = {field: [shown(entry, stale=self._is_stale(entry.server)) for entry in listed]}
        if following is not None:
            result["nextCursor"] = following
        elif caller.session is not None:
            caller.session.seen[kind] = stamp
        return result

    def _is_stale(self, server: str) -> bool:
        try:
            return self._doors.connection(server).stale
        except UnknownServer:
            return True

    async def wait_for_servers(self, caller: Caller) -> None:
        """Many clients list once, at their start: that list should be whole. Later ones never wait.

        A server of which an earlier run knows what it offers is not waited for: that is shown, marked stale, and where the
        server has something else meanwhile, clients are told that the list differs. The era without sessions has no first
        list; there each server is waited for while it is that new to us.
        """
        session = caller.session
        if session is not None and session.has_listed:
            return
        now = anyio.current_time()
        names = [self._view] if self._view is not None else self._doors.names()
        first_seen = {name: self._first_seen.get(name, now) for name in names}
        self._first_seen = first_seen
        for name in names:
            since = now if session is not None else first_seen[name]
            with anyio.CancelScope(deadline=since + self._first_list_wait):
                try:
                    door = self._doors.connection(name)
                except UnknownServer:
                    continue
                if door.offer is NOTHING:
                    await door.first_try.wait()
        if session is not None:
            session.has_listed = True
