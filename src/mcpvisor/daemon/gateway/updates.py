"""Owns reading from the event stream what concerns the resources that clients watch."""

from __future__ import annotations

import time
from typing import Final

import anyio
import anyio.lowlevel

from mcpvisor.daemon.gateway.catalogs import Catalogs
from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.watching import Watching
from mcpvisor.supervisor.events import CatalogChanged, Event, ResourceUpdated, ServerAdded, ServerRemoved

QUEUE: Final = 4096
"""Events that wait. Where some are lost every client is told that what it watches may have changed."""

COALESCE_SECONDS: Final = 0.05
"""Changes of catalogs within this time are looked at once."""

SLICE: Final = 0.002
"""Seconds after which others get their turn: one update may be that of many clients."""

_RESOURCES: Final = frozenset({"resources", "resource_templates"})


class Updates:
    """Brings updates to those who watch, and watches where a URI has gone; for no noise of any server does it miss one."""

    def __init__(self, doors: ServerDoors, catalogs: Catalogs, watching: Watching) -> None:
        self._doors = doors
        self._catalogs = catalogs
        self._watching = watching
        self._subscription = doors.bus.subscribe(QUEUE, _concerns)
        self._stirred = anyio.Event()
        self._added: set[str] = set()
        """Servers that are new ones since owners were looked for: what was wanted of others of their names is not of them."""

    async def run(self) -> None:
        """Work until cancelled."""
        dropped = 0
        turn = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            with self._subscription as events:
                async for event in events:
                    self._take(event)
                    if events.dropped != dropped:
                        dropped = events.dropped
                        self._lost()
                    if time.perf_counter() - turn > SLICE:
                        await anyio.lowlevel.checkpoint()
                        turn = time.perf_counter()

    def _take(self, event: Event) -> None:
        if isinstance(event, ResourceUpdated):
            self._watching.updated(event)
            return
        if isinstance(event, ServerAdded):
            self._added.add(event.server)
        self._stirred.set()

    def _lost(self) -> None:
        self._watching.missed()
        self._added.update(self._doors.names())
        self._stirred.set()

    async def _follow(self) -> None:
        """Look for owners at the start too: there are those who have watched since an earlier run."""
        while True:
            added, self._added = frozenset(self._added), set()
            self._catalogs.refresh()
            await self._watching.follow(added)
            await self._stirred.wait()
            await anyio.sleep(COALESCE_SECONDS)
            self._stirred = anyio.Event()


def _concerns(event: Event) -> bool:
    if isinstance(event, CatalogChanged):
        return event.kind in _RESOURCES
    return isinstance(event, ResourceUpdated | ServerAdded | ServerRemoved)
