"""Owns the listening sockets, and the web server that reads from them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp

from mcpvisor.daemon.gateway.http_protocol import GuardedProtocol, Refused
from mcpvisor.daemon.gateway.settings import GatewayError, GatewayLimits
from mcpvisor.daemon.gateway.tokens import gateway_group, share_with_group

UNIX_PREFIX: Final = "unix:"
BACKLOG: Final = 128

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
        if self.path is None:
            return
        with contextlib.suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self.inode:
                self.path.unlink()


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
            return _open_unix(Path(address.removeprefix(UNIX_PREFIX)))
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


def _open_unix(path: Path) -> Listener:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # nobody else may connect before the mode is set
    try:
        sock.bind(str(path))
    except BaseException:
        sock.close()
        raise
    finally:
        os.umask(before)
    listener = Listener(sock, f"{UNIX_PREFIX}{path}", path, path.lstat().st_ino)
    try:
        if gateway_group() is not None:
            share_with_group(path, 0o660)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket of a daemon that is gone; one that is listened to stays, and is an error."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise GatewayError(f"gateway.listen: {path} exists and is no socket; choose another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
    raise GatewayError(f"gateway.listen: {path}: another daemon listens there already")


class WebServer(uvicorn.Server):
    """uvicorn without its signal handlers and its ticking: the daemon owns both."""

    def __init__(self, app: ASGIApp, limits: GatewayLimits, refused: Refused) -> None:
        protocol = cast("Any", partial(GuardedProtocol, limits=limits, refused=refused))
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=cast("int", limits.keep_alive_seconds),
                timeout_graceful_shutdown=cast("int", limits.grace_seconds + CUT_SECONDS),
            )
        )
        self._stopped = asyncio.Event()
        self.servers: list[asyncio.base_events.Server] = []

    async def run_on(self, listeners: Iterable[Listener]) -> None:
        """Serve until `stop`; a cancellation cuts every connection at once."""
        try:
            await self.serve(sockets=[listener.sock for listener in listeners])
        finally:
            for server in self.servers:
                server.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    def stop(self) -> None:
        """Take no more connections, and end once those there are have been answered or the grace is over."""
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        """Wait for `stop`; uvicorn would wake ten times a second."""
        await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the process's signal handlers alone."""
        yield
