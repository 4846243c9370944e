"""Owns the control socket's life: from the bound socket to the last answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcpvisor.daemon.control.answers import ApiError, error_response
from mcpvisor.daemon.control.app import build_app
from mcpvisor.daemon.control.elicitations import NoDesk, OpenDesk
from mcpvisor.daemon.control.facts import Facts
from mcpvisor.daemon.control.keeping import Keeping, NothingKept
from mcpvisor.daemon.control.peer import why_refused
from mcpvisor.daemon.control.protocol import ControlProtocol
from mcpvisor.daemon.control.reloading import Reloading
from mcpvisor.daemon.unix_socket import GROUP, ListenFailed, bind_unix, group_id, remove, socket_path
from mcpvisor.daemon.web import QuietServer, quiet_config
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree
from mcpvisor.supervisor.supervisor import Supervisor

_log = logging.getLogger(__name__)

_KEY: Final = "control.listen"

_GRACE_SECONDS: Final = 2
"""What answers in flight get at the end, before they are cut off."""


class ControlServer:
    """Serves the control API on unix sockets for as long as its context lasts.

    `listen` are addresses of the form `unix:/path`, `instance` is the id that the daemon's servers carry, `subtree` where
    they have control groups of their own: their processes are refused. `more` are the routes of other parts of the daemon.

    Entering raises ListenFailed (SocketInUse where another daemon answers) with nothing left behind.
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
        keeping: Keeping | None = None,
        desk: OpenDesk | None = None,
        more: Sequence[Route] = (),
        subtree: Subtree = NOT_TAKEN,
    ) -> None:
        self._closing = anyio.Event()
        self._app = build_app(supervisor, reloading, facts, keeping or NothingKept(), desk or NoDesk(), self._closing, more)
        self._addresses = tuple(listen)
        self._instance = instance
        self._subtree = subtree
        self._gid = group_id(group)
        self._bound: list[tuple[Path, int]] = []
        self._server: QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def paths(self) -> list[Path]:
        """The sockets that are open."""
        return [path for path, _ in self._bound]

    async def __aenter__(self) -> Self:
        sockets = self._bind()
        config = quiet_config(
            _without_browsers(self._app),
            self._protocol(),
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = QuietServer(config)
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
            for path in [_control_path(address) for address in self._addresses]:
                sockets.append(bind_unix(path, self._gid, _KEY))
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

    def _protocol(self) -> Callable[..., ControlProtocol]:
        return partial(
            ControlProtocol,
            why_refused=partial(why_refused, instance=self._instance, group=self._gid, subtree=self._subtree),
            admitted=set(),
            refused=set(),
        )


def _control_path(address: str) -> Path:
    """The path of a control address. Control over TCP needs a token, and there is none yet."""
    if not address.startswith("unix:"):
        raise ListenFailed(f"{_KEY}: {address!r} is not served: control over TCP is not available yet, write unix:/PATH")
    return socket_path(address, _KEY)


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
