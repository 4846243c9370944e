"""Owns what is being answered: how many requests, and that no new ones are taken once the gateway drains."""

from __future__ import annotations

from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from mcpvisor.daemon.gateway.app import PROBES
from mcpvisor.daemon.gateway.guard import MESSAGE_SCOPE
from mcpvisor.daemon.gateway.replies import refuse

RETRY_SECONDS: Final = 5
"""What a client is told to wait before it tries the daemon's next run."""


class InFlight:
    """ASGI middleware that counts MCP requests, and refuses new ones while it drains; probes pass uncounted.

    What a request in flight has asked its client may be answered all the while.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._count = 0
        self._empty = anyio.Event()
        self.is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif self.is_draining and not _is_answer(scope.get(MESSAGE_SCOPE)):
            await refuse(send, 503, "the daemon is stopping", headers={"retry-after": str(RETRY_SECONDS)})
        else:
            self._count += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._count -= 1
                if not self._count:
                    self._empty.set()

    async def answered(self) -> None:
        """Return once nothing is being answered."""
        while self._count:
            self._empty = anyio.Event()
            await self._empty.wait()


def _is_answer(message: Any) -> bool:
    return isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message)
