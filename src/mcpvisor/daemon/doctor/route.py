"""Owns the route of the control API by which the daemon looks at itself: with its own rights and its own environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcpvisor.daemon.config.reload import Reloader
from mcpvisor.daemon.control.answers import ApiError, json_response
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.supervisor import Supervisor


class DoctorRoutes:
    """The route; `addresses` are those that the daemon listens on."""

    def __init__(
        self, reloader: Reloader, supervisor: Supervisor, subtree: Subtree, addresses: Callable[[], Sequence[str]]
    ) -> None:
        self._reloader = reloader
        self._supervisor = supervisor
        self._subtree = subtree
        self._addresses = addresses
        # One at a time, on a worker of its own: a host that does not answer holds up no other work of the daemon.
        self._worker = anyio.CapacityLimiter(1)

    def routes(self) -> list[Route]:
        """What is added to the control API."""
        return [Route("/v1/doctor", self.examine, methods=["GET"])]

    async def examine(self, request: Request) -> Response:
        """GET /v1/doctor?server=S: findings, and the files of the configuration. With a server, its host is asked too."""
        from mcpvisor.daemon.doctor.examining import Subject, examine

        applied = self._reloader.applied
        subject = Subject(
            settings=applied.running,
            specs=applied.specs,
            problems=applied.rejected,
            environ=dict(os.environ),
            uid=os.geteuid(),
            is_daemon=True,
            addresses=self._addresses(),
            subtree=self._subtree,
            reasons={one.name: f"{one.state.value}: {one.reason}" for one in self._supervisor.statuses() if not one.is_healthy},
        )
        look = partial(examine, subject, request.query_params.get("server"))
        try:
            found = await anyio.to_thread.run_sync(look, limiter=self._worker, abandon_on_cancel=True)
        except LookupError as error:
            raise ApiError("NOT_FOUND", "UNKNOWN_SERVER", str(error.args[0])) from error
        files = [str(path) for path in self._reloader.paths]
        return json_response({"findings": [one.as_json() for one in found], "files": files, "pid": os.getpid()})
