"""The stream of an answer that is cut before the answer: taken up again where the server gave ids, never for long in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import (
    BOTH,
    STREAM_HEAD,
    Heard,
    Request,
    event,
    mcp,
    raw_server,
    reply,
    result,
    session,
    spec_of,
    wired,
)
from tests.waiting import until

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.transports.answer_stream import MAX_BARREN, Cut, Resumption
from mcpvisor.supervisor.transports.http import HttpWire

DONE = {"content": [{"type": "text", "text": "done"}]}
CALL = {"name": "slow", "arguments": {}}


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


def priming(ident: str, retry_ms: int | None = 10) -> bytes:
    """An event with an id and nothing else, as servers send it that mean to end their stream."""
    return f"id: {ident}\n".encode() + (f"retry: {retry_ms}\n" if retry_ms is not None else "").encode() + b"data:\n\n"


class Mill:
    """A server that cuts the stream of each call, and does with each GET that takes it up again what a test says.

    `pieces` are what each of those GETs is answered with, in turn, the last one again and again; what is callable makes the
    answer out of the id of the call.
    """

    def __init__(self, first: bytes, *pieces: bytes | Callable[[int], bytes], reset: bool = False) -> None:
        self.first = first
        self.pieces = list(pieces)
        self.reset = reset
        self.calls = 0
        self.pushed = anyio.Event()
        self.to_push: bytes = b""
        self.asked: list[str] = []
        """The `Last-Event-ID` of each GET that had one."""

    async def answer(self, request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.verb == "GET":
            return await self._get(request, stream)
        if request.message.get("method") != "tools/call":
            return reply(result(request, {})) if "id" in request.message else reply(status="202 Accepted")
        self.calls += 1
        self.ident = request.message["id"]
        await stream.send(STREAM_HEAD + self.first)
        if self.reset:
            reset(stream)
        self.pushed.set()
        return None

    async def _get(self, request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        named = request.headers.get("last-event-id")
        if named is None:
            await stream.send(STREAM_HEAD)
            await self.pushed.wait()
            if self.to_push:
                await stream.send(self.to_push)
            await anyio.sleep(60)
            return None
        self.asked.append(named)
        piece = self.pieces.pop(0) if len(self.pieces) > 1 else self.pieces[0]
        await stream.send(piece(self.ident) if callable(piece) else piece)
        return None


def reset(stream: anyio.abc.ByteStream) -> None:
    """Let the connection end by a reset instead of in good order."""
    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
    raw.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SOL_SOCKET, SO_LINGER: on, no time


def done(ident: int) -> bytes:
    return STREAM_HEAD + event({"jsonrpc": "2.0", "id": ident, "result": DONE})


async def failure_of(call: Any) -> RequestFailed:
    with anyio.fail_after(20), pytest.raises(RequestFailed) as failed:
        await call
    return failed.value


def test_waits_are_what_the_server_asks_for() -> None:
    """A stream that brought events is taken up again when `retry:` says, however often; without it the waits grow."""
    asked, own = Resumption(jitter=lambda: 1.0), Resumption(jitter=lambda: 1.0)
    recycled = Cut(last_id="7", retry_ms=700, delivered=True)

    assert [0.7] * 20 == [asked.wait_after(recycled) for _ in range(20)]
    assert [1, 2, 4] == [own.wait_after(Cut(last_id="7", delivered=True)) for _ in range(3)]


def test_tries_in_vain_are_counted() -> None:
    """After five tries that brought nothing there is no sixth; one that brought something begins the count anew."""
    tries = Resumption(jitter=lambda: 1.0)
    barren, fertile = Cut(last_id="7", retry_ms=700), Cut(last_id="8", delivered=True)

    assert [1, 2, 4, 8, 16, None] == [tries.wait_after(barren) for _ in range(MAX_BARREN + 1)]
    assert tries.wait_after(fertile) is not None
    assert tries.wait_after(barren) is not None


@pytest.mark.parametrize("last_id", ["", "a\x07b"])
def test_without_an_id_there_is_no_way_on(last_id: str) -> None:
    """A stream without ids, or with one that no header can hold, cannot be taken up again."""
    assert Resumption().wait_after(Cut(last_id=last_id, delivered=True)) is None


@pytest.mark.anyio
@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_stream_with_ids_is_taken_up_again(is_reset: bool) -> None:
    """Ended on purpose or by a reset: each GET names the last event, and the call, sent once, has its answer and progress."""
    note = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "half"}})
    mill = Mill(priming("e1"), STREAM_HEAD + b"id: e2\n" + note, STREAM_HEAD + priming("e3"), done, reset=is_reset)
    heard = Heard()
    async with raw_server(mcp(mill.answer)) as url, session(url, heard) as wire:
        with anyio.fail_after(20):
            got = await wire.request("tools/call", CALL)

        assert (DONE, 1, ["e1", "e2", "e3"]) == (got, mill.calls, mill.asked)
        assert [("notifications/message", {"data": "half"})] == heard.notifications
        assert (None, 0) == (wire.end, wire.in_flight)


@pytest.mark.alone
@pytest.mark.anyio
async def test_a_stream_without_ids_is_lost_at_once() -> None:
    """Nobody waits for an answer that cannot come."""
    mill = Mill(b"retry: 10\ndata:\n\n", done)
    async with raw_server(mcp(mill.answer)) as url, session(url) as wire:
        began = anyio.current_time()
        failure = await failure_of(wire.request("tools/call", CALL))

        assert (Outcome.MAYBE_EXECUTED, "stream_failed", []) == (failure.outcome, failure.cause, mill.asked)
        assert anyio.current_time() - began < 0.4
        assert "ended without the answer to tools/call: the server ended the stream" in failure.message


@pytest.mark.anyio
async def test_the_newer_era_resumes_nothing() -> None:
    """Revision 2026-07-28 has no way to take a stream up again: the request is lost with it."""
    mill = Mill(priming("e1"), done)
    async with raw_server(mcp(mill.answer)) as url, wired(spec_of(url), Heard()) as wire:
        assert isinstance(wire, HttpWire)
        wire.negotiated("2026-07-28", modern=True)
        failure = await failure_of(wire.request("tools/call", CALL))

    assert (Outcome.MAYBE_EXECUTED, "stream_failed", []) == (failure.outcome, failure.cause, mill.asked)


@pytest.mark.anyio
@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "405 Method Not Allowed"])
async def test_a_server_that_cannot_go_on_says_so(status: str) -> None:
    """A GET that is refused ends the call at once, with the refusal, and the session is in doubt."""
    mill = Mill(priming("e1"), reply(status=status))
    async with raw_server(mcp(mill.answer)) as url, session(url) as wire:
        failure = await failure_of(wire.request("tools/call", CALL))

        assert (Outcome.MAYBE_EXECUTED, "stream_failed", ["e1"]) == (failure.outcome, failure.cause, mill.asked)
        assert f"GET was answered {status}" in failure.message
        assert (True, None) == (wire.suspect, wire.end)


@pytest.mark.anyio
@pytest.mark.parametrize("answered", [reply(status="503 Service Unavailable"), b"", STREAM_HEAD])
async def test_trouble_is_tried_again_and_not_for_ever(answered: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, closed connections and empty streams are tried again, a bounded number of times; then the call fails."""
    monkeypatch.setattr("mcpvisor.supervisor.transports.push.FIRST_DELAY", 0.01)
    mill = Mill(priming("e1", retry_ms=None), answered)
    async with raw_server(mcp(mill.answer)) as url, session(url) as wire:
        failure = await failure_of(wire.request("tools/call", CALL))

        assert (Outcome.MAYBE_EXECUTED, "stream_failed") == (failure.outcome, failure.cause)
        assert {"e1"} == set(mill.asked)
        assert MAX_BARREN <= len(mill.asked) <= MAX_BARREN + 1
        assert (1, None) == (mill.calls, wire.end)


@pytest.mark.anyio
async def test_a_stream_that_is_recycled_for_ever_holds_nobody_beyond_his_time() -> None:
    """The caller's own limit ends the tries, and the server is told that nobody waits."""
    mill = Mill(priming("e1"), STREAM_HEAD + priming("e2"))
    async with raw_server(mcp(mill.answer)) as url, session(url) as wire:

        async def run_out() -> None:
            await until(lambda: len(mill.asked) > 2)
            scope.deadline = anyio.current_time()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_out)
            with anyio.move_on_after(60) as scope:
                await wire.request("tools/call", CALL)

        assert (True, 0) == (scope.cancelled_caught, wire.in_flight)
        assert anyio.current_time() - scope.deadline < 7
        assert ["e1", "e2", "e2"] == mill.asked[:3]


@pytest.mark.anyio
async def test_an_answer_on_the_push_stream() -> None:
    """An answer counts on whichever stream it comes: on the push stream it settles a call whose own stream was cut."""
    mill = Mill(priming("e1", retry_ms=60_000), done)
    mill.to_push = event({"jsonrpc": "2.0", "id": 2, "result": DONE})
    async with raw_server(mcp(mill.answer)) as url, session(url) as wire:
        with anyio.fail_after(20):
            while wire.push != "open":
                await wire.push_stream.changed.wait()
            got = await wire.request("tools/call", CALL)

    assert (DONE, []) == (got, mill.asked)
