"""Owns the shim's session of the handshake era: its id, what it was opened with, and how it is opened once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio

from mcpvisor.daemon.shim.gateway_http import GatewayHttp, last_message
from mcpvisor.daemon.shim.headers import BOTH, session_headers
from mcpvisor.daemon.shim.messages import Request, value_of
from mcpvisor.daemon.shim.standard_io import LineWriter
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.transports.codec import encode

JsonObject = dict[str, Any]

_SESSION_HEADER: Final = "mcp-session-id"
_INITIALIZED: Final = encode({"jsonrpc": "2.0", "method": "notifications/initialized"})
_CHANGED: Final = tuple(
    encode({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}) + b"\n"
    for kind in ("tools", "prompts", "resources")
)
_WISHES: Final = 1000
"""Subscriptions that are remembered; what is above is not asked for again."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session as the gateway has opened it."""

    id: str
    version: str

    @property
    def headers(self) -> dict[str, str]:
        """What each message of it carries."""
        return {**BOTH, **session_headers(self.id, self.version)}


class Session:
    """The session of one client, which is one to it for as long as it runs, also where the gateway has forgotten it."""

    def __init__(self, http: GatewayHttp, out: LineWriter, tell: Callable[[str], None]) -> None:
        self._http = http
        self._out = out
        self._tell = tell
        self._opened_with = b""
        self._wishes: dict[str, Request] = {}
        """What the client asked for that holds until it asks for something else: the log level, and subscriptions by URI."""
        self._turn = anyio.Lock()
        self.opened: Opened | None = None

    async def open(self, line: bytes) -> bytes:
        """Open it with the client's `initialize`; the gateway's answer, whatever it is.

        Raises DialFailed, ConnectionBroken and ResponseRefused.
        """
        opened, answer = await self._initialize(line)
        if opened is not None:
            self._opened_with = line
            self._wishes.clear()
            self.opened = opened
        return answer

    async def open_again(self, lost: Opened) -> Opened:
        """Open it once more after the gateway has forgotten `lost`; once, however many meet that. Raises as `open`.

        Raises RequestFailed where the gateway does not want to.
        """
        async with self._turn:
            if self.opened is not None and self.opened != lost:
                return self.opened
            opened, _ = await self._initialize(self._opened_with)
            if opened is None:
                raise RequestFailed(Outcome.NOT_SENT, "session_lost", "the gateway has ended the session and opens no other")
            self._tell("the gateway had forgotten the session; another one was opened in its place")
            await self._say(opened, _INITIALIZED)
            self.opened = opened
        await self.repeat_wishes()
        for line in _CHANGED:  # what the client has missed nobody knows
            await self._out.write(line)
        return opened

    def note(self, request: Request) -> None:
        """Remember what holds beyond its answer."""
        uri = str(request.params.get("uri"))
        if request.method == "logging/setLevel":
            self._wishes["level"] = request
        elif request.method == "resources/subscribe" and len(self._wishes) < _WISHES:
            self._wishes[f"uri {uri}"] = request
        elif request.method == "resources/unsubscribe":
            self._wishes.pop(f"uri {uri}", None)

    async def repeat_wishes(self) -> None:
        """Ask again for what a daemon that was restarted may not know any more; the client has its answers already."""
        for request in list(self._wishes.values()):
            if self.opened is not None:
                await self._say(self.opened, request.line)

    async def end(self) -> None:
        """Tell the gateway that the client is done. Raises as `open`."""
        if self.opened is None:
            return
        async with self._http.exchange("DELETE", self.opened.headers) as reply:
            await reply.body()

    async def _initialize(self, line: bytes) -> tuple[Opened | None, bytes]:
        async with self._http.exchange("POST", BOTH, line) as reply:
            answer = await last_message(reply)
            result = _result(answer)
            session_id = reply.headers.get(_SESSION_HEADER)
        if result is None or session_id is None:
            return None, answer
        return Opened(session_id, str(result.get("protocolVersion", ""))), answer

    async def _say(self, opened: Opened, line: bytes) -> None:
        """Send a message whose answer nobody reads."""
        async with self._http.exchange("POST", opened.headers, line) as reply:
            await last_message(reply)


def _result(answer: bytes) -> JsonObject | None:
    message = value_of(answer)
    result = message.get("result") if isinstance(message, dict) else None
    return result if isinstance(result, dict) else None
