"""Owns the stream on which the gateway says things unasked to a session of the handshake era, opened again whenever it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from mcpvisor.daemon.shim.gateway_http import ConnectionBroken, DialFailed, GatewayHttp, ResponseRefused
from mcpvisor.daemon.shim.messages import as_line, outline
from mcpvisor.daemon.shim.session import Opened, Session
from mcpvisor.daemon.shim.standard_io import LineWriter
from mcpvisor.supervisor.errors import RequestFailed

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_NOT_FOUND: Final = 404
_NOT_OFFERED: Final = 405


class Push:
    """Reads the stream for as long as there is a session, and passes on what comes."""

    def __init__(self, http: GatewayHttp, out: LineWriter, session: Session, tell: Callable[[str], None]) -> None:
        self._http = http
        self._out = out
        self._session = session
        self._tell = tell
        self._pause = _FIRST_PAUSE
        self._was_open = False
        self._is_away = False

    async def run(self) -> None:
        """Keep the stream open until the gateway says that it has none; what is pushed while it is down is lost."""
        while self._session.opened is not None:
            try:
                if not await self._read(self._session.opened):
                    return
            except (DialFailed, ConnectionBroken, ResponseRefused) as error:
                if not self._is_away:
                    self._tell(f"the gateway is away: {error}")
                self._is_away = True
            except RequestFailed as failure:
                self._tell(failure.message)
            await anyio.sleep(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    async def _read(self, opened: Opened) -> bool:
        """Read until the stream ends; False where there is none to be had. Raises what an exchange raises."""
        async with self._http.exchange("GET", opened.headers) as reply:
            status = reply.status
            if status == 200 and reply.is_stream:
                await self._greet()
                while (some := await reply.messages()) is not None:
                    for data in some:
                        if outline(data) is not None:
                            await self._out.write(as_line(data))
                return True
        if status == _NOT_FOUND:
            await self._session.open_again(opened)
        return status != _NOT_OFFERED

    async def _greet(self) -> None:
        """A stream that is open once more may be another daemon's, which does not know what the client had asked for."""
        self._pause = _FIRST_PAUSE
        if self._is_away:
            self._is_away = False
            self._tell("the gateway is back")
        if self._was_open:
            await self._session.repeat_wishes()
        self._was_open = True
