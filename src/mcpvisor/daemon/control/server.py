"""Owns the control socket's life: from the bound socket to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mcpvisor.daemon.control.answers import ApiError, error_response
from mcpvisor.daemon.control.app import build_app
from mcpvisor.daemon.control.facts import Facts
from mcpvisor.daemon.control.listener import ListenFailed, bind_control, remove, socket_path
from mcpvisor.daemon.control.peer import group_id, why_refused
from mcpvisor.daemon.control.reloading import Reloading
from mcpvisor.daemon.peers import peer_of
from mcpvisor.supervisor.supervisor import Supervisor

_log = logging.getLogger(__name__)

GROUP: Final = "mcpvisor"
"""Members of this group may give orders, where it exists."""

_GRACE_SECONDS: Final = 2
"""What answers in flight get at the end, before they are cut off."""

_MAX_CONNECTIONS: Final = 256


class ControlServer:
    """Serves the control API on unix sockets for as long as its context lasts.

    `listen` are addresses of the form `unix:/path`, `instance` is the id that the daemon's servers carry: their processes are
    refused. Entering raises ListenFailed (SocketInUse where another daemon answers) with nothing left behind.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        reloading: Reloading,
        facts: Facts,
        *,
        listen: Sequence[str],
        instance: str,
        group: str = GROUP,
    ) -> None:
        self._closing = anyio.Event()
        self._app = build_app(supervisor, reloading, facts, self._closing)
        self._addresses = tuple(listen)
        self._instance = instance
        self._gid = group_id(group)
        self._bound: list[tuple[Path, int]] = []
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def paths(self) -> list[Path]:
        """The sockets that are open."""
        return [path for path, _ in self._bound]

    async def __aenter__(self) -> Self:
        sockets = self._bind()
        config = uvicorn.Config(
            _without_browsers(self._app),
            http=self._protocol(),
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets), name="control")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._closing.set()
        self._release()
        if self._server is not None and self._serving is not None:
            self._server.stop()
            with anyio.CancelScope(shield=True):
                await self._serving

    def _bind(self) -> list[socket.socket]:
        sockets: list[socket.socket] = []
        try:
            for path in [socket_path(address) for address in self._addresses]:
                sockets.append(bind_control(path, self._gid))
                self._bound.append((path, path.lstat().st_ino))
        except ListenFailed:
            for one in sockets:
                one.close()
            self._release()
            raise
        return sockets

    def _release(self) -> None:
        """Take the sockets out of the file system: whoever comes now finds no daemon, instead of one that does not answer."""
        for path, inode in self._bound:
            remove(path, inode)
        self._bound.clear()

    def _protocol(self) -> type[HttpToolsProtocol]:
        instance, gid = self._instance, self._gid

        class PeerProtocol(HttpToolsProtocol):
            """Asks the kernel who connected; whoever may not is answered with a refusal, whatever it asks."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn's own
                super().connection_made(transport)
                peer = peer_of(transport.get_extra_info("socket"))
                if peer is None:
                    raise TypeError("the control socket is a unix socket")
                self.client = (f"uid:{peer.uid}", peer.pid)
                refusal = why_refused(peer, instance=instance, group=gid)
                if refusal is not None:
                    _log.warning("control refused: %s", refusal, extra={"audit": True, "peer": self.client})
                    self.app = _refusing(refusal)

        return PeerProtocol


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers and its ticking: both are the daemon's own business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Take no more connections; end when those there are have been answered, or their grace is over."""
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        """Wait for `stop`; uvicorn would wake ten times a second."""
        await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _refusing(why: str) -> ASGIApp:
    refusal = error_response(ApiError("PERMISSION_DENIED", "PEER_REFUSED", f"this peer may not control the daemon: {why}"))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refusal(scope, receive, send)

    return app


def _without_browsers(app: ASGIApp) -> ASGIApp:
    """Refuse whatever carries an Origin: only a browser sends one, and no page may steer this daemon."""
    refusal = error_response(ApiError("PERMISSION_DENIED", "ORIGIN_REFUSED", "requests with an Origin header are refused"))

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope.get("headers", [])
        if any(name == b"origin" for name, _ in headers):
            _log.warning("control refused: a request with an Origin header", extra={"audit": True, "peer": scope.get("client")})
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded
