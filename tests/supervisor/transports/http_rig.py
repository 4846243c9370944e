"""Owns the rig for wires over HTTP: puppet servers as processes, servers of raw bytes, and a wire that is run."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.abc
from tests import nursery

from mcpvisor.supervisor.auth.kinds import Bearer
from mcpvisor.supervisor.open_calls import Origin
from mcpvisor.supervisor.spec import HttpTarget, HttpTransport, ServerSpec
from mcpvisor.supervisor.transports.exchange import PeerRefusal
from mcpvisor.supervisor.transports.http import HttpWire
from mcpvisor.supervisor.transports.http_memory import HttpMemory
from mcpvisor.supervisor.transports.open_http import open_http
from mcpvisor.supervisor.transports.sse import SseWire

SERVERS = Path(__file__).parent.parent.parent / "servers"
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
BOTH = ["asyncio", "trio"]


@dataclass
class Heard:
    """All hooks of a wire; keeps what it is told, and answers `roots/list` only."""

    notifications: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    noises: list[bytes] = field(default_factory=list)
    dropped_noise: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)
    asked: list[tuple[str, Origin]] = field(default_factory=list)

    def notified(self, method: str, params: dict[str, Any], *, to_caller: bool = False, private: bool = False) -> None:
        self.notifications.append((method, params))

    async def answer(self, method: str, params: dict[str, Any], origin: Origin) -> dict[str, Any]:
        self.asked.append((method, origin))
        if method != "roots/list":
            raise PeerRefusal(-32601, "not offered")
        return {"roots": []}

    def noise_dropped(self, lines: int) -> None:
        self.dropped_noise += lines

    def noise(self, excerpt: bytes) -> None:
        self.noises.append(excerpt)

    def refused(self, reason: str, detail: str) -> None:
        self.refusals.append((reason, detail))


@dataclass
class Puppet:
    """A puppet server that runs as a process of its own."""

    url: str
    process: nursery.Process
    stdout: IO[bytes]

    def line(self) -> str:
        """The next line of its stdout."""
        return self.stdout.readline().decode().strip()

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self.stdout.close()

    def state(self) -> dict[str, Any]:
        """What `GET /__state` shows."""
        with urllib.request.urlopen(self._door("__state"), timeout=20) as answer:
            return json.load(answer)

    def control(self, name: str, **args: Any) -> None:
        """Use its test door."""
        body = json.dumps(args).encode()
        urllib.request.urlopen(urllib.request.Request(self._door(f"__ctl/{name}"), data=body), timeout=20).close()

    def _door(self, path: str) -> str:
        return self.url.rsplit("/", 1)[0] + "/" + path


def launch(name: str, *args: str) -> Puppet:
    """A puppet of tests/servers, which runs until its `end`; its first line is its URL."""
    reading, writing = os.pipe()
    with open(writing, "wb") as stdout, Path(os.devnull).open("rb") as nothing:
        process = nursery.start(args, program=SERVERS / name, stdin=nothing, stdout=stdout, stderr=sys.__stderr__)
    lines = open(reading, "rb")  # noqa: SIM115 - as long as it runs
    return Puppet(lines.readline().decode().strip(), process, lines)


@contextmanager
def puppet(name: str, *args: str) -> Iterator[Puppet]:
    """The same for as long as the block lasts."""
    launched = launch(name, *args)
    try:
        yield launched
    finally:
        launched.end()


Serve = Callable[[anyio.abc.ByteStream], Awaitable[None]]


@asynccontextmanager
async def raw_server(serve: Serve) -> AsyncIterator[str]:
    """A server in the test itself, that handles each connection with `serve`; gives its URL."""

    async def quietly(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                await serve(stream)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, quietly)
            yield f"http://127.0.0.1:{port}/mcp"
            tasks.cancel_scope.cancel()


@dataclass
class Request:
    """A request as a raw server sees it."""

    verb: str
    path: str
    headers: dict[str, str]
    lines: list[str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}


async def read_request(stream: anyio.abc.ByteStream, buffer: bytearray) -> Request:
    """The next request of a connection. Raises EndOfStream."""
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        buffer += await stream.receive()
    first, *lines = bytes(buffer[:end]).decode().split("\r\n")
    del buffer[: end + 4]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", 0))
    while len(buffer) < length:
        buffer += await stream.receive()
    body = bytes(buffer[:length])
    del buffer[:length]
    verb, path, _ = first.split(" ")
    return Request(verb, path, headers, lines, body)


def reply(
    body: bytes | dict[str, Any] = b"", *, status: str = "200 OK", kind: str = "application/json", head: str = ""
) -> bytes:
    """The bytes of a response with a Content-Length."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    text = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{head}\r\n"
    return text.encode() + data


def result(request: Request, value: dict[str, Any]) -> dict[str, Any]:
    """The JSON-RPC answer to a request."""
    return {"jsonrpc": "2.0", "id": request.message["id"], "result": value}


def event(message: dict[str, Any]) -> bytes:
    """A message as an event of a stream."""
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

Answer = Callable[[Request, anyio.abc.ByteStream], Awaitable[bytes | None]]


def mcp(answer: Answer, *, session: str | None = "s1") -> Serve:
    """A raw server that does the handshake itself, refuses GETs, and asks `answer` for the rest; None ends the connection."""

    async def serve(stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            request = await read_request(stream, buffer)
            method = request.message.get("method")
            if request.verb == "POST" and method == "initialize":
                info = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "raw", "version": "1"}}
                head = f"Mcp-Session-Id: {session}\r\n" if session else ""
                await stream.send(reply(result(request, info), head=head))
                continue
            answered = await answer(request, stream)
            if answered is None:
                return
            if answered:
                await stream.send(answered)

    return serve


def spec_of(url: str, **options: Any) -> ServerSpec:
    """A spec for a URL; options of the target and of the spec alike."""
    target = {name: options.pop(name) for name in ("transport", "headers", "auth", "tls") if name in options}
    if "bearer" in options:
        target["auth"] = Bearer(options.pop("bearer"))
    return ServerSpec(name="peer", target=HttpTarget(url=url, **target), **options)


@asynccontextmanager
async def wired(
    spec: ServerSpec, heard: Heard, *, transport: HttpTransport | None = None, memory: HttpMemory | None = None
) -> AsyncIterator[HttpWire | SseWire]:
    """A wire that is run; nothing is sent."""
    async with open_http(spec, heard, transport=transport, memory=memory) as wire, anyio.create_task_group() as tasks:
        await tasks.start(wire.run, None, None)
        yield wire
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def session(url: str, heard: Heard | None = None, **options: Any) -> AsyncIterator[HttpWire]:
    """A wire over Streamable HTTP with its handshake done, in the legacy era."""
    async with wired(spec_of(url, **options), heard or Heard()) as wire:
        assert isinstance(wire, HttpWire)
        await shake_hands(wire)
        yield wire


async def shake_hands(wire: HttpWire | SseWire) -> None:
    """The handshake of the legacy era."""
    await wire.request("initialize", HANDSHAKE)
    wire.negotiated("2025-11-25", modern=False)
    await wire.notify("notifications/initialized", None)


async def echo(wire: HttpWire | SseWire, text: str = "hello") -> str:
    """The text that the tool `echo` gives back."""
    return (await wire.request("tools/call", {"name": "echo", "arguments": {"text": text}}))["content"][0]["text"]
