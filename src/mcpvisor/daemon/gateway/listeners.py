"""Owns the listening sockets, and the web server that reads from them."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, cast

from starlette.types import ASGIApp

from mcpvisor.daemon.gateway.http_protocol import GuardedProtocol, Refused
from mcpvisor.daemon.gateway.places import Places
from mcpvisor.daemon.gateway.settings import GatewayError, GatewayLimits
from mcpvisor.daemon.unix_socket import ListenFailed, bind_unix, group_id, remove, socket_path
from mcpvisor.daemon.web import QuietServer, quiet_config

UNIX_PREFIX: Final = "unix:"
_KEY: Final = "gateway.listen"
BACKLOG: Final = 1024
"""Connections that wait in the kernel to be accepted."""

ACCEPTED_AT_ONCE: Final = 8
"""Connections that are accepted in one turn of the loop."""

CUT_SECONDS: Final = 1.0
"""After the grace: for the answers that sessions give when they are ended."""


@dataclass(slots=True)
class Listener:
    """One bound socket, and the address under which it is reached: `http://HOST:PORT` or `unix:/path`."""

    sock: socket.socket
    address: str
    path: Path | None = None
    inode: int | None = field(default=None)

    def close(self) -> None:
        """Close the socket; a unix socket that is still ours is removed."""
        self.sock.close()
        if self.path is not None and self.inode is not None:
            remove(self.path, self.inode)


def open_listeners(listen: Iterable[str]) -> list[Listener]:
    """Bind every address, or none. Raises GatewayError that names the one that failed."""
    listeners: list[Listener] = []
    try:
        for address in listen:
            listeners.append(_open(address))  # noqa: PERF401 - what is open already must be known when the next one fails
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    if not listeners:
        raise GatewayError("gateway.listen: names no address")
    return listeners


def _open(address: str) -> Listener:
    try:
        if address.startswith(UNIX_PREFIX):
            return _open_unix(address)
        return _open_tcp(address)
    except OSError as error:
        hint = "another program has it" if error.errno == errno.EADDRINUSE else "choose another address"
        raise GatewayError(f"gateway.listen: {address}: {error.strerror or error}; {hint}") from error


def _open_tcp(address: str) -> Listener:
    host, _, port = address.rpartition(":")
    is_ipv6 = host.startswith("[") and host.endswith("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535 or (":" in host and not is_ipv6):
        raise GatewayError(f"gateway.listen: {address!r} is none of HOST:PORT, [IPV6]:PORT and unix:/path")
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it on, each answer waits for 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_ipv6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host.strip("[]"), int(port)))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return Listener(sock, f"http://{host}:{sock.getsockname()[1]}")


def _open_unix(address: str) -> Listener:
    try:
        path = socket_path(address, _KEY)
        sock = bind_unix(path, group_id(), _KEY)
    except ListenFailed as error:
        raise GatewayError(str(error)) from error
    return Listener(sock, address, path, path.lstat().st_ino)


class WebServer(QuietServer):
    """The web server of the gateway."""

    def __init__(self, app: ASGIApp, limits: GatewayLimits, refused: Refused) -> None:
        places = Places(limits.connections)
        super().__init__(
            quiet_config(
                app,
                partial(GuardedProtocol, limits=limits, places=places, refused=refused),
                backlog=ACCEPTED_AT_ONCE,
                timeout_keep_alive=limits.keep_alive_seconds,
            )
        )
        self.servers: list[asyncio.base_events.Server] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve. asyncio has one number for what it accepts in a turn and for what waits in the kernel."""
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(BACKLOG)

    def end(self, grace: float) -> None:
        """Take no more connections; answers in flight have `grace` seconds, and a moment to be told that they were cut."""
        self.config.timeout_graceful_shutdown = cast("int", grace + CUT_SECONDS)
        asyncio.get_running_loop().call_later(grace, self._cancel_tasks)
        self.stop()

    async def run_on(self, listeners: Iterable[Listener]) -> None:
        """Serve until `stop`; a cancellation cuts every connection at once."""
        try:
            await self.serve(sockets=[listener.sock for listener in listeners])
            await self._cut_tasks()
        finally:
            for server in self.servers:
                server.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    def _cancel_tasks(self) -> None:
        for task in self.server_state.tasks:
            if not task.cancelling():  # else it is saying its last word already
                task.cancel()

    async def _cut_tasks(self) -> None:
        """Cancel the requests that the grace has not sufficed for; each says its last word."""
        self._cancel_tasks()
        tasks = list(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=CUT_SECONDS)
