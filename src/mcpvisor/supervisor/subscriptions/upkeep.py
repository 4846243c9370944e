"""Owns the subscriptions of one session: which way they are asked for, and what is known of them when the server is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from mcpvisor.supervisor.listing import Ask
from mcpvisor.supervisor.sdk import Handshake
from mcpvisor.supervisor.subscriptions.listening import Listening
from mcpvisor.supervisor.subscriptions.outcome import offers
from mcpvisor.supervisor.subscriptions.per_uri import Channel, PerUri
from mcpvisor.supervisor.subscriptions.polling import Poller
from mcpvisor.supervisor.subscriptions.stream import Listen
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions

RESTORE_SECONDS: Final = 15.0
"""How long subscriptions may hold up that the server becomes ready; what is not there then is shown as lacking."""

SETTLE: Final = 0.1
"""Seconds for which changes are gathered before it is said what is lacking."""


class SubscriptionUpkeep:
    """Brings what is wanted to one session, and keeps it so."""

    def __init__(
        self, table: Subscriptions, handshake: Handshake, ask: Ask, listen: Listen, wire: Channel, gap: Callable[[], None]
    ) -> None:
        """`gap` is called when changes of lists may have been missed."""
        self._table = table
        self._attachment = table.attach()
        offered = offers(handshake.capabilities)
        self._keeper: PerUri | Listening
        if handshake.modern:
            self._keeper = Listening(table, self._attachment, listen, wire, gap, offered=offered)
        else:
            self._keeper = PerUri(table, self._attachment, ask, wire, offered=offered)
        self._poller = Poller(table, self._attachment, ask, wire)

    async def run(self) -> None:
        """Ask for what is wanted, from the restoring of the session until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._table.pass_on)
            await self._keeper.run()

    async def restored(self) -> str:
        """Return when everything that is wanted was asked for, while `run` does so: what is lacking, empty when nothing is."""
        if len(self._table):
            with anyio.move_on_after(RESTORE_SECONDS):
                await self._keeper.settled.wait()
                await self._poller.read_due()
            self._attachment.overdue()
            self._table.restored()
        return self._table.lacking()

    async def follow(self, lacking: Callable[[str], None]) -> None:
        """Poll what cannot be pushed, and tell what is lacking, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._poller.run)
            while True:
                stirred = self._table.stirred
                lacking(self._table.lacking())
                await stirred.wait()
                await anyio.sleep(SETTLE)
