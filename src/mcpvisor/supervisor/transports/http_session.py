"""Owns the session that a server of Streamable HTTP has named: what says so on each request, and its end at the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio

from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.transports.dial import DialFailed
from mcpvisor.supervisor.transports.endpoint import Endpoint, RedirectRefused
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_memory import HttpMemory
from mcpvisor.supervisor.transports.http_response import ResponseRefused

SESSION_HEADER: Final = "mcp-session-id"
VERSION_HEADER: Final = "mcp-protocol-version"

MAX_ID: Final = 1024
"""Characters of a session id."""

MAX_VERSION: Final = 64
"""Characters of a protocol version."""

DELETE_SECONDS: Final = 2.0

_NOT_ALLOWED: Final = frozenset({405, 501})


class HttpSession:
    """What is known of the session; `id` is None where the server keeps none, or has not named it yet."""

    def __init__(self, endpoint: Endpoint, memory: HttpMemory) -> None:
        self._endpoint = endpoint
        self._memory = memory
        self.id: str | None = None

    def named(self, headers: Mapping[str, str], *, by_handshake: bool) -> None:
        """Take the id that a response names: `initialize` begins a session, later answers may replace its id.

        Raises ResponseRefused for one that is no visible ASCII.
        """
        named = headers.get(SESSION_HEADER, "")
        if not named or (self.id is None and not by_handshake):
            return
        if not (named.isascii() and named.isprintable() and len(named) <= MAX_ID):
            raise ResponseRefused("syntax", "the session id of the server is no visible ASCII")
        self.id = named
        self._memory.given(named)
        self._endpoint.standing[SESSION_HEADER] = named

    def speaks(self, version: object) -> None:
        """Every request after `initialize` carries the version, beginning with the notification that ends the handshake."""
        if isinstance(version, str) and version.isascii() and version.isprintable() and len(version) <= MAX_VERSION:
            self._endpoint.standing[VERSION_HEADER] = version

    def negotiated(self, version: str, *, modern: bool) -> None:
        """The version is agreed on; the modern era has no sessions."""
        self._endpoint.standing[VERSION_HEADER] = version
        if modern:
            self.id = None
            self._endpoint.standing.pop(SESSION_HEADER, None)

    async def end(self) -> None:
        """End the session at the server, within 2 s; what the server says to that is of no interest.

        Where nobody is there to be told, the next generation does it: a server with room for one session would refuse that one.
        """
        if self.id is None:
            return
        standing = self._endpoint.standing
        named = {name: text for name, text in standing.items() if name in (SESSION_HEADER, VERSION_HEADER)}
        with anyio.CancelScope(shield=True), anyio.move_on_after(DELETE_SECONDS):
            if not await self._delete(named):
                self._memory.owe(named)

    async def can_be_ended(self) -> bool:
        """Whether the server takes the end of a session at all, as far as it says so within 2 s; ends none that it minds."""
        with anyio.move_on_after(DELETE_SECONDS):
            try:
                async with await self._endpoint.open("DELETE", b"", {}, repeatable=True) as response:
                    await response.error_body()
                    return response.head.status not in _NOT_ALLOWED
            except (DialFailed, CredentialsMissing, ConnectionBroken, ResponseRefused, RedirectRefused):
                pass  # nobody has said that it does
        return False

    async def end_owed(self) -> None:
        """End what the generations before could not, each session once, all within 2 s."""
        with anyio.move_on_after(DELETE_SECONDS):
            while (named := self._memory.next_owed()) is not None:
                if not await self._delete(named):
                    self._memory.owe(named)
                    return

    async def _delete(self, named: Mapping[str, str]) -> bool:
        """End a session; False when the server could not be reached, or broke off without a word."""
        try:
            async with await self._endpoint.open("DELETE", b"", named, repeatable=True) as response:
                await response.error_body()
        except (DialFailed, CredentialsMissing):
            return False
        except ConnectionBroken as broken:
            return broken.answered
        except (ResponseRefused, RedirectRefused):
            pass  # a session that cannot be ended in order runs out at the server
        return True
