"""Owns telling servers that a client of the handshake era works in other folders now."""

from __future__ import annotations

from typing import Final

import anyio

from mcpvisor.daemon.gateway.doors import ServerDoor, ServerDoors
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.principal import Principal

METHOD: Final = "notifications/roots/list_changed"

PAUSE: Final = 0.5
"""Seconds after which a client that says so again is passed on again; until then it is once, however often it was."""

TELL_SECONDS: Final = 5.0
"""What a server has to take it."""


class RootsNews:
    """Passes on what the sessions of one endpoint say of their roots, to the servers that may ask for them (`allow`)."""

    def __init__(self, doors: ServerDoors, view: str | None) -> None:
        self._doors = doors
        self._view = view
        self._due: dict[Principal, bool] = {}
        """The sessions that were passed on just now, and whether they have said so again since."""

    async def changed(self, client: Principal) -> None:
        """Returns once servers are told, or at once where that goes on already and is repeated."""
        if client in self._due:
            self._due[client] = True
            return
        self._due[client] = True
        try:
            while self._due[client]:
                self._due[client] = False
                await self._tell(client)
                await anyio.sleep(PAUSE)
        finally:
            del self._due[client]

    async def _tell(self, client: Principal) -> None:
        async with anyio.create_task_group() as tasks:
            for name in self._doors.names() if self._view is None else [self._view]:
                try:
                    door = self._doors.connection(name)
                except UnknownServer:
                    continue
                if "roots" in door.spec.allow:
                    tasks.start_soon(_tell_one, door, client)


async def _tell_one(door: ServerDoor, client: Principal) -> None:
    with anyio.move_on_after(TELL_SECONDS):
        await door.roots_changed(principal=client)
