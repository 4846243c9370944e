"""Owns looking for the owners of many URIs at once: one look at a time, whoever asks, so that nobody else waits for long."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import anyio
import anyio.lowlevel

from mcpvisor.daemon.gateway.catalogs import Catalogs, View

SLICE: Final = 0.002
"""Seconds for which it is looked before others get their turn; a URI that many templates nearly fit takes more by itself."""


class Owners:
    """Says whose URIs are. However many requests ask at one time, each turn of the loop has a slice of one of them."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs
        self._turn = anyio.Lock()

    async def of(self, view: View, uris: Iterable[str]) -> dict[str, str]:
        """The URIs that are owned on an endpoint, each with its server; in the order in which they are asked for."""
        owners: dict[str, str] = {}
        waiting = iter(uris)
        is_done = False
        while not is_done:
            async with self._turn:
                is_done = self._slice(view, waiting, owners)
            await anyio.lowlevel.checkpoint()
        return owners

    def _slice(self, view: View, waiting: Iterable[str], owners: dict[str, str]) -> bool:
        """Look for some of them; whether none is left."""
        until = time.perf_counter() + SLICE
        for uri in waiting:
            server = self._catalogs.owner_of(view, uri)
            if server is not None:
                owners[uri] = server
            if time.perf_counter() > until:
                return False
        return True
