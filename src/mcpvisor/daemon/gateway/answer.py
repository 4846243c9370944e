"""Owns how far the answer to one request has come on its way out, and how it is ended early."""

from __future__ import annotations

from typing import Final

from mcp_types import JSONRPCError
from starlette.types import Message, Send

from mcpvisor.daemon.gateway.frames import event, frame

_EVENT_STREAM: Final = b"text/event-stream"


class Answer:
    """The answer to one request on its way out, and how far it has come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_stream = False
        self.is_begun = False
        self.is_over = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_begun = True
            headers: dict[bytes, bytes] = dict(message.get("headers", []))
            self._is_stream = headers.get(b"content-type", b"").startswith(_EVENT_STREAM)
        else:
            self.is_over = not message.get("more_body", False)
        await self._send(message)

    async def end(self, error: JSONRPCError) -> None:
        """Make an error the last thing that is said; of an answer in JSON that is begun nothing can be made any more."""
        if not self.is_begun:
            body = frame(error)
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await self({"type": "http.response.start", "status": 200, "headers": headers})
            await self({"type": "http.response.body", "body": body})
        elif self._is_stream:
            await self({"type": "http.response.body", "body": event(error)})
