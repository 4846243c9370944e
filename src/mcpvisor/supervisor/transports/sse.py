"""Owns the wire of the old HTTP+SSE transport: answers come on one stream, whose end is the end of the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping

import anyio

from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.transports.address import Address
from mcpvisor.supervisor.transports.codec import Unreadable
from mcpvisor.supervisor.transports.dial import DialFailed
from mcpvisor.supervisor.transports.endpoint import Endpoint, RedirectRefused, Response, Unsendable, redirected
from mcpvisor.supervisor.transports.eventstream import EventStream, StreamEvent, in_steps
from mcpvisor.supervisor.transports.exchange import JsonObject, Pending, WireHooks
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_memory import HttpMemory
from mcpvisor.supervisor.transports.http_outcome import Meaning, Reply, is_json, is_repeatable, judge
from mcpvisor.supervisor.transports.http_pool import HttpPool
from mcpvisor.supervisor.transports.http_response import ResponseRefused
from mcpvisor.supervisor.transports.posting import NO_HEADERS, NOTE_SECONDS, PostingWire, reply_of, written
from mcpvisor.supervisor.transports.wire import WireEnd

_ENDS: dict[Meaning, str] = {Meaning.AUTH: "auth", Meaning.BUSY: "stream_failed", Meaning.SERVER_ERROR: "stream_failed"}
"""The cause of the end when the GET is refused; any other refusal is `protocol`."""


class SseWire(PostingWire):
    """A wire over HTTP+SSE (revision 2024-11-05). `run` must be going for any request to be answered."""

    kind = "sse"

    def __init__(
        self, hooks: WireHooks, endpoint: Endpoint, pool: HttpPool, *, max_message: int, memory: HttpMemory | None = None
    ) -> None:
        super().__init__(hooks, endpoint, pool, max_message=max_message)
        self._memory = memory or HttpMemory()
        self._target: Address | None = None
        self._located = anyio.Event()
        self._written: set[int] = set()

    def finish(self, end: WireEnd) -> None:
        if self.end is not None:
            return
        self.end = end
        self.ended.set()
        self._exchange.fail_all(
            lambda pending: self._maybe_executed(end) if pending.id in self._written else self._not_sent(end)
        )
        self._located.set()
        self._exchange.intake.close()

    # What goes out

    async def _ask(self, pending: Pending, body: bytes, headers: Mapping[str, str]) -> None:
        await self._located.wait()
        if self.end is not None:
            raise self._not_sent(self.end)
        self._written.add(pending.id)
        try:
            async with await self._post_to_target(body, headers, pending.method) as response:
                await self._read_reply(response, pending)
            await pending.done.wait()
        finally:
            self._written.discard(pending.id)

    async def _read_reply(self, response: Response, pending: Pending) -> None:
        """The answer to a POST: 202 by the rules; a server that puts the JSON-RPC answer in it is understood as well."""
        if 200 <= response.head.status < 300:
            if is_json(response.head.content_type):
                data = await response.body(self._max_message)
                if data.lstrip()[:1] == b"{" and b'"jsonrpc"' in data:
                    await self._exchange.reader.ahead(data)
                    self._take_answer(data, pending)
            else:
                await response.error_body()
            return
        verdict = judge(reply_of(response, await response.error_body(), pending, session_sent=True))
        if verdict.meaning is Meaning.SESSION_LOST:  # the address that the stream named is not known any more
            self.finish(WireEnd(cause="session_lost", detail=str(verdict.failure)))
        self._settle(verdict)

    async def _post_to_target(self, body: bytes, headers: Mapping[str, str], method: str | None) -> Response:
        response = await self._endpoint.open("POST", body, headers, repeatable=is_repeatable(method), address=self._target)
        self._target = response.address
        return response

    async def _cancel(self, pending: Pending) -> None:
        if pending.method != "initialize":
            await self.notify("notifications/cancelled", {"requestId": pending.id, "reason": "the caller has withdrawn it"})

    async def _send(self, message: JsonObject) -> None:
        try:
            with anyio.move_on_after(NOTE_SECONDS), self._faults(None):
                await self._located.wait()
                if self.end is not None:
                    return
                async with await self._post_to_target(written(message), NO_HEADERS, None) as response:
                    await response.error_body()
        except RequestFailed:
            return  # what went wrong is marked already, and a notification has nobody to tell

    # What comes in

    async def _pump(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pool.reap)
            self.finish(await self._stream())
            tasks.cancel_scope.cancel()

    async def _stream(self) -> WireEnd:
        """Read the stream from its GET to its end, and say what the end was."""
        try:
            async with await self._endpoint.open("GET", b"", NO_HEADERS, repeatable=True) as response:
                head = response.head
                if 200 <= head.status < 300 and head.content_type == "text/event-stream":
                    await self._read(response)
                    return WireEnd(cause="stream_failed", detail="the server ended the event stream")
                return self._refused(reply_of(response, await response.error_body(), None, session_sent=False))
        except CredentialsMissing as missing:
            return WireEnd(cause=missing.cause, detail=missing.detail, retry_after_s=missing.retry_after_s)
        except DialFailed as failed:
            return WireEnd(cause=failed.cause, detail=str(failed))
        except ConnectionBroken as broken:
            return WireEnd(cause="stream_failed", detail=str(broken))
        except (ResponseRefused, Unreadable) as refused:
            self._hooks.refused(refused.reason, str(refused))
            return WireEnd(cause="stream_failed", detail=str(refused))
        except (RedirectRefused, Unsendable) as error:
            return WireEnd(cause="protocol", detail=str(error))

    async def _read(self, response: Response) -> None:
        stream = EventStream(limit=self._max_message)
        pace = self.pace()
        while chunk := await response.chunk():
            pace.begin()
            for part in in_steps(chunk):
                await self._take_events(stream.feed(part), pace, self._take)

    def _take(self, event: StreamEvent) -> None:
        if event.name == "endpoint" and self._target is None:
            # Credentials go where this event says: never to another origin.
            self._target = redirected(self._endpoint.address, event.data.decode("utf-8", "replace"))
            self._memory.given(*re.split("[/?&=]", self._target.path))  # the id of the session is somewhere in it
            self._located.set()
        elif event.data and event.name == "message":
            self._received(event.data)

    @staticmethod
    def _refused(reply: Reply) -> WireEnd:
        verdict = judge(reply)
        if verdict.failure is None:
            return WireEnd(cause="protocol", detail=f"GET was answered {reply.content_type or 'nothing'}, not an event stream")
        cause = _ENDS.get(verdict.meaning, "protocol")
        return WireEnd(cause=cause, detail=verdict.failure.message, retry_after_s=verdict.failure.retry_after_s)
