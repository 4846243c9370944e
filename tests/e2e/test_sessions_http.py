"""How a session over HTTP is lost, kept and handed on, with the whole supervisor over servers on real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import STREAM_HEAD, Request, raw_server, read_request, reply, result
from tests.waiting import until

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import Event, SessionLost
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import Era, HttpTarget, ProbePolicy, RestartPolicy, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

ME = Principal("test")


@dataclass
class Room:
    """A server with room for one session: while it has one, it refuses `initialize`.

    `deaf` leaves the probes of a session without an answer; `gone` is what a request of a session that is not there is
    answered with. `log` has what it was asked, in order.
    """

    gone: Callable[[Request], bytes] = lambda request: reply(status="404 Not Found")
    push: bool = False
    needs_cookie: bool = False
    session: str | None = None
    deaf: bool = False
    opened: int = 0
    calls: int = 0
    log: list[str] = field(default_factory=list)
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set to end the push streams."""
    held: anyio.Event | None = None
    """Pings wait for it, where it is set."""
    limited: bytes = b""
    """What pings are answered with, where it is not empty."""

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            request = await read_request(stream, buffer)
            self.log.append(request.message.get("method", request.verb) if request.verb == "POST" else request.verb)
            answered = await self._answer(request, stream)
            if answered is None:
                return
            await stream.send(answered)

    async def _answer(self, request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        method, named = request.message.get("method"), request.headers.get("mcp-session-id")
        if self.needs_cookie and method != "initialize" and "replica=b" not in request.headers.get("cookie", ""):
            return reply(status="404 Not Found")  # another replica, which knows no such session
        if method == "initialize":
            return self._open(request)
        if named != self.session:
            return self.gone(request)
        if request.verb == "DELETE":
            self.session = None
            return reply()
        if request.verb == "GET":
            return await self._stream(stream)
        if "id" not in request.message:
            return reply(status="202 Accepted")
        return await self._result(request, str(method))

    def _open(self, request: Request) -> bytes:
        if self.session is not None:
            error = {"code": -32600, "message": "Server already initialized"}
            return reply({"jsonrpc": "2.0", "id": None, "error": error}, status="400 Bad Request")
        self.opened += 1
        self.deaf = False
        self.session = f"s{self.opened}"
        info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "room", "version": "1"}}
        head = f"Mcp-Session-Id: {self.session}\r\nSet-Cookie: replica=b; Path=/; Partitioned\r\n"
        return reply(result(request, info), head=head)

    async def _stream(self, stream: anyio.abc.ByteStream) -> bytes | None:
        if not self.push:
            return reply(status="405 Method Not Allowed")
        await stream.send(STREAM_HEAD + b": hello\n\n")
        await self.ended.wait()
        return None

    async def _result(self, request: Request, method: str) -> bytes:
        if self.deaf and method in ("ping", "tools/list"):
            await anyio.sleep(60)
        if method == "ping":
            if self.held is not None:
                await self.held.wait()
            if named_differs(request, self.session):
                return self.gone(request)
            return self.limited or reply(result(request, {}))
        if method == "tools/list":
            return reply(result(request, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
        self.calls += 1
        return reply(result(request, {"content": []}))


def named_differs(request: Request, session: str | None) -> bool:
    return request.headers.get("mcp-session-id") != session


def spec_of(url: str, **keys: Any) -> ServerSpec:
    quick = RestartPolicy(delay=0.05, max_delay=0.2)
    probe = ProbePolicy(interval=60.0, timeout=1.0, failures=3)
    return ServerSpec(name="http", target=HttpTarget(url=url), **{"era": Era.LEGACY, "restart": quick, "probe": probe, **keys})


async def ready(supervisor: Supervisor, generation: int = 1) -> None:
    with anyio.fail_after(20):
        await supervisor.wait_until("http", lambda status: status.state is State.READY and status.generation >= generation)


async def call(supervisor: Supervisor, method: str = "tools/call", **options: Any) -> dict[str, Any]:
    with anyio.fail_after(20):
        params = {"name": "echo", "arguments": {}} if method == "tools/call" else None
        return await supervisor.connection("http").request(method, params, principal=ME, **options)


@asynccontextmanager
async def supervised(room: Room, **keys: Any) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    """A supervisor of the room, once it is ready; the causes of each session that is lost are written to the list."""
    lost: list[str] = []

    def take(event: Event) -> None:
        lost.extend([event.cause] if isinstance(event, SessionLost) else [])

    async with raw_server(room.serve) as url, Supervisor(guarded=False) as supervisor:
        supervisor.bus.attach(take)
        await supervisor.apply([spec_of(url, **keys)])
        await ready(supervisor)
        yield supervisor, lost


def spelled(status: str, message: str) -> Callable[[Request], bytes]:
    """A loss that is told under the id of the request itself."""

    def gone(request: Request) -> bytes:
        error = {"jsonrpc": "2.0", "id": request.message.get("id"), "error": {"code": -32000, "message": message}}
        return reply(json.dumps(error).encode(), status=status)

    return gone


@pytest.mark.parametrize(
    "message", ["Bad Request: No valid session ID provided", "Session not found", "Server not initialized"]
)
@pytest.mark.parametrize("status", ["400 Bad Request", "200 OK", "404 Not Found"])
async def test_a_loss_under_the_id_of_the_request(status: str, message: str) -> None:
    """Servers that put the loss into an ordinary error answer are understood: one call may fail, the next one works."""
    room = Room(gone=spelled(status, message))
    async with supervised(room) as (supervisor, lost):
        room.session = None
        with pytest.raises(RequestFailed) as failed:
            await call(supervisor)
        await ready(supervisor, 2)
        await call(supervisor)

    assert failed.value.outcome in (Outcome.PEER_ERROR, Outcome.MAYBE_EXECUTED)
    assert (["session_lost"], 2, 1) == (lost, room.opened, room.calls)


async def test_a_tool_may_speak_of_sessions() -> None:
    """An error of a tool about a session of its own is the caller's; the session is asked once, and stays."""

    class Till(Room):
        async def _result(self, request: Request, method: str) -> bytes:
            if method == "tools/call":
                return spelled("200 OK", "browser session not found")(request)
            return await super()._result(request, method)

    room = Till()
    async with supervised(room) as (supervisor, lost):
        with pytest.raises(RequestFailed, match="browser session not found"):
            await call(supervisor)
        await until(lambda: "ping" in room.log)
        with pytest.raises(RequestFailed, match="browser session not found"):
            await call(supervisor)

    assert ([], 1) == (lost, room.opened)


async def test_a_suspect_session_is_asked_before_the_next_call() -> None:
    """The push stream ends since the session is gone: the call waits for the verdict, and runs once, in the next session."""
    room = Room(push=True, held=anyio.Event())
    async with supervised(room, probe=ProbePolicy(interval=60.0, timeout=5.0, failures=3)) as (supervisor, lost):
        await until(lambda: supervisor.status("http").push == "open")
        room.ended.set()
        await until(lambda: "ping" in room.log)
        room.session = None
        room.ended = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, supervisor)
            await until(lambda: supervisor.status("http").in_flight == 1)
            assert room.held is not None
            room.held.set()

    assert (["session_lost"], 2, 1) == (lost, room.opened, room.calls)
    assert 1 == room.log.count("tools/call")


async def test_a_session_that_may_still_stand_is_ended_before_the_next_one() -> None:
    """A server with room for one session that has stopped answering pings: DELETE goes out before `initialize`."""
    room = Room(push=True)
    async with supervised(room) as (supervisor, lost):
        await until(lambda: supervisor.status("http").push == "open")
        room.deaf = True
        room.ended.set()  # the end of the stream makes the session suspect
        await ready(supervisor, 2)

    assert ["initialize", "DELETE", "initialize"] == [one for one in room.log if one in ("initialize", "DELETE")][:3]
    assert (["probe"], 2) == (lost, room.opened)


async def test_a_session_that_could_not_be_ended_is_ended_later() -> None:
    """The network is away for a while, the server is not: the old session is ended first once it can be reached again."""
    room = Room(push=True)
    async with Supervisor(guarded=False) as supervisor:
        async with raw_server(room.serve) as url:
            await supervisor.apply([spec_of(url)])
            await ready(supervisor)
            await until(lambda: supervisor.status("http").push == "open")
        with anyio.fail_after(20):
            await supervisor.wait_until("http", lambda status: status.state is State.BACKOFF and status.generation > 1)
        kept = room.session
        room.log.clear()
        async with again(room, url):
            with anyio.fail_after(20):
                await supervisor.wait_until("http", lambda status: status.state in (State.READY, State.DEGRADED))
            await supervisor.close()

    assert "s1" == kept
    assert ["DELETE", "initialize"] == room.log[:2]
    assert 2 == room.opened


@asynccontextmanager
async def again(room: Room, url: str) -> AsyncIterator[None]:
    """The server at the address that it had before."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, quietly(room))
        yield
        tasks.cancel_scope.cancel()


def quietly(room: Room) -> Callable[[anyio.abc.ByteStream], Awaitable[None]]:
    async def serve(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                await room.serve(stream)

    return serve


async def test_a_limit_on_pings_is_no_loss() -> None:
    """A server that answers a ping with 429 is alive: the session stays, and so do calls."""
    room = Room(limited=reply(status="429 Too Many Requests"))
    async with supervised(room, probe=ProbePolicy(interval=0.05, timeout=5.0, failures=3)) as (supervisor, lost):
        await until(lambda: room.log.count("ping") >= 3)
        await call(supervisor)

    assert ([], 1, 1) == (lost, room.opened, room.calls)


async def test_a_sticky_cookie_keeps_a_session_on_its_replica() -> None:
    """What a load balancer sets is sent back with each request, so that none of them meets a replica that knows no session."""
    room = Room(needs_cookie=True)
    async with supervised(room) as (supervisor, lost):
        for _ in range(5):
            await call(supervisor)

    assert ([], 1, 5) == (lost, room.opened, room.calls)


async def test_after_a_gap_of_the_push_stream_the_lists_are_read_again() -> None:
    """What changed while nobody listened is seen all the same, in the same session."""
    room = Room(push=True)
    async with supervised(room) as (supervisor, lost):
        await until(lambda: supervisor.status("http").push == "open")
        before, room.ended = room.ended, anyio.Event()
        before.set()
        await until(lambda: supervisor.status("http").state is State.DEGRADED)
        reason = supervisor.status("http").reason
        await until(lambda: room.log.count("tools/list") == 2)
        await ready(supervisor)

    assert "push channel: the server ended the stream" == reason
    assert ([], 1) == (lost, room.opened)


async def test_connections_that_are_closed_while_idle_cost_nothing() -> None:
    """A server that keeps connections for a moment only: every call has its answer, in one session."""

    class Impatient(Room):
        standing = 0

        async def serve(self, stream: anyio.abc.ByteStream) -> None:
            self.standing += 1
            try:
                with anyio.CancelScope() as idle:
                    await super().serve(Hasty(stream, idle))
            finally:
                await stream.aclose()
                self.standing -= 1

    room = Impatient()
    async with supervised(room) as (supervisor, lost):
        for _ in range(5):
            await call(supervisor)
            await until(lambda: room.standing == 0)

    assert ([], 1, 5) == (lost, room.opened, room.calls)


class Hasty(anyio.abc.ByteStream):
    """A stream that is given up when nothing has come on it for a moment."""

    def __init__(self, stream: anyio.abc.ByteStream, idle: anyio.CancelScope) -> None:
        self._stream, self._idle = stream, idle

    async def receive(self, max_bytes: int = 65536) -> bytes:
        self._idle.deadline = anyio.current_time() + 0.1
        data = await self._stream.receive(max_bytes)
        self._idle.deadline = float("inf")
        return data

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()
