"""Owns the routes of the control API, and which of the daemon's parts answers each."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcpvisor.daemon.control.answers import (
    ApiError,
    StreamResponse,
    error_response,
    http_error_response,
    json_response,
)
from mcpvisor.daemon.control.backup import Backup
from mcpvisor.daemon.control.calls import Calls
from mcpvisor.daemon.control.elicitations import Elicitations, OpenDesk
from mcpvisor.daemon.control.evidence import Evidence, rejections_of, uri_conflicts
from mcpvisor.daemon.control.explain import explain
from mcpvisor.daemon.control.facts import Facts
from mcpvisor.daemon.control.floods import StderrFloods
from mcpvisor.daemon.control.keeping import Keeping
from mcpvisor.daemon.control.probes import MissedProbes
from mcpvisor.daemon.control.reloading import Reloading
from mcpvisor.daemon.control.requests import caller, flag_asked, flag_of, invalid, number_asked, read_object, seconds_of
from mcpvisor.daemon.control.streams import LIVE_ONLY, Past, follow_events, follow_stderr, known_kind
from mcpvisor.daemon.control.subjects import subject_asked, ways_view
from mcpvisor.daemon.control.views import change_view, facts_view, kind_of, line_view, server_view, status_view
from mcpvisor.daemon.local_time import iso_time
from mcpvisor.supervisor.errors import OrderRefused, UnknownServer
from mcpvisor.supervisor.events import ServerRemoved
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.supervisor import Order, Supervisor

_log = logging.getLogger(__name__)

_STDERR_LINES: Final = 50
_MOST_LINES: Final = 10_000
_RELOAD_SECONDS: Final = 60.0

_REMOVED: Final = kind_of(ServerRemoved)

_UNTIL_STOPPED: Final = frozenset({Order.STOP, Order.DISABLE})
"""Orders that can still be followed while the daemon stops."""


class Operations:
    """The routes that look at the daemon and give it orders."""

    def __init__(
        self,
        supervisor: Supervisor,
        reloading: Reloading,
        facts: Facts,
        keeping: Keeping,
        desk: OpenDesk,
        closing: anyio.Event,
    ) -> None:
        self._desk = desk
        self._keeping = keeping
        self._past = Past(supervisor, keeping)
        self._supervisor = supervisor
        self._reloading = reloading
        self._facts = facts
        self._closing = closing
        self._floods = StderrFloods()
        supervisor.bus.attach(self._floods)
        self._probes = MissedProbes()
        supervisor.bus.attach(self._probes)

    async def version(self, _: Request) -> Response:
        """GET /v1/version: the daemon itself."""
        return json_response(facts_view(self._facts))

    async def status(self, request: Request) -> Response:
        """GET /v1/status?wait=SECONDS: all servers; with `wait`, once they are as wanted, it is over or the daemon stops."""
        await self._until_healthy(number_asked(request.query_params, "wait", 0, 86400), request.query_params.get("server"))
        view = status_view(
            self._supervisor.statuses(),
            self._reloading.last_config(),
            self._facts,
            time.time(),
            self._keeping.state_store(),
            self._desk.waiting_for_operator,
        )
        return json_response(view)

    async def explain(self, request: Request) -> Response:
        """GET /v1/servers/{id}: why it is as it is, and what happens next."""
        name, supervisor = request.path_params["server"], self._supervisor
        status, spec = self._known(name), supervisor.spec(name)
        subscriptions = supervisor.subscriptions(name) if spec is not None else None
        config = self._reloading.last_config()
        evidence = Evidence(
            status=status,
            spec=spec,
            signs=supervisor.signs(name),
            history=supervisor.history(name),
            earlier=self._keeping.past(name),
            stderr=supervisor.stderr_lines(name, _STDERR_LINES),
            stderr_dropped=self._floods.dropped(name),
            missed=self._probes.of(name),
            rejections=rejections_of(status, config["rejected"]),
            waiting=next((one for one in config.get("waiting", ()) if one["server"] == name), None),
            removal=next((one for one in config.get("removals", ()) if one["server"] == name), None),
            on_trial=self._reloading.is_on_trial(name),
            subscriptions=subscriptions.statuses() if subscriptions is not None else (),
            strangers=subscriptions.strangers if subscriptions is not None else 0,
            conflicts=supervisor.told(
                name, uri_conflicts(name, {one: supervisor.connection(one).offer for one in supervisor.names()})
            ),
        )
        return json_response(explain(evidence, time.time()))

    async def order(self, request: Request) -> Response:
        """POST /v1/servers/{id}:{order}: give it, and say how the server is then."""
        name, word, who = request.path_params["server"], request.path_params["order"], caller(request).name
        try:
            order = Order(word)
        except ValueError:
            raise ApiError("NOT_FOUND", "UNKNOWN_ORDER", f"no order is called {word!r}: {', '.join(Order)}") from None
        await read_object(request)
        if order not in _UNTIL_STOPPED and (stopping := self._facts.stopping()):
            raise ApiError("FAILED_PRECONDITION", "STOPPING", f"{order.value} is refused, the daemon is stopping: {stopping}")
        self._supervisor.connection(name)  # what is no server, or not a valid one, is told at once
        _log.info("%s ordered %s of %s", who, order.value, name, extra={"audit": True, "peer": request.client})
        await self._supervisor.order(name, order, who=who)
        return json_response(server_view(self._supervisor.status(name)))

    async def logs(self, request: Request) -> Response:
        """GET /v1/servers/{id}/logs?lines=N&follow=BOOL: its captured stderr."""
        name = request.path_params["server"]
        tail = self._supervisor.stderr_lines(name, number_asked(request.query_params, "lines", _STDERR_LINES, _MOST_LINES))
        if flag_asked(request.query_params, "follow"):
            return StreamResponse(follow_stderr(self._supervisor.bus, name, tail), self._closing)
        return json_response({"server": name, "lines": [line_view(line) for line in tail]})

    async def events(self, request: Request) -> Response:
        """GET /v1/events?server=S&kind=K&backlog=N: as they happen; with follow=false only what is known."""
        query = request.query_params
        server = query.get("server")
        if server is not None and not self._keeping.past(server):
            self._supervisor.status(server)
        kind = known_kind(query.get("kind"))
        if "follow" in query and not flag_asked(query, "follow"):
            newest = number_asked(query, "backlog", _STDERR_LINES, _MOST_LINES)
            return json_response({"events": self._past.events(server, kind, newest), "live_only": kind in LIVE_ONLY})
        backlog = number_asked(query, "backlog", 0, _MOST_LINES)
        return StreamResponse(follow_events(self._past, server, kind, backlog), self._closing)

    async def reload(self, request: Request) -> Response:
        """POST /v1/reload {"wait", "timeout"}: read the configuration again and say what came of it."""
        body = await read_object(request)
        who = caller(request).name
        _log.info("%s asked for a reload", who, extra={"audit": True, "peer": request.client})
        timeout = seconds_of(body, "timeout") or _RELOAD_SECONDS
        report = await self._reloading.reload("command", flag_of(body, "wait"), timeout)
        others = [self._with_state(one) for one in report.get("under_way", ())]
        changes = [self._with_state(change) for change in report["changes"]]
        return json_response({**report, "changes": changes, "under_way": others})

    async def plan(self, request: Request) -> Response:
        """POST /v1/plan {"paths", "event"}: what a reload would do, and which handlers an event would reach after it."""
        body = await read_object(request)
        paths, event = body.get("paths", []), body.get("event")
        if not isinstance(paths, list) or not all(isinstance(path, str) and path.startswith("/") for path in paths):
            raise invalid("FIELD", "'paths' must be a list of absolute paths")
        subject = subject_asked(event) if event is not None else None
        plan = await self._reloading.plan(paths)
        ways = {"ways": ways_view(plan.routing, subject), "ways_now": ways_view(plan.routing_now, subject)} if subject else {}
        return json_response(
            {
                "changes": [change_view(change, plan.gone_files) for change in plan.servers],
                "config": plan.config,
                "needs_restart": list(plan.needs_restart),
                "handlers": [change.as_json() for change in plan.handlers],
                "routes_changed": plan.routes_changed,
                "drift": [one.as_json() for one in plan.drift],
                "under_way": [self._with_state(one) for one in plan.under_way],
                **ways,
            }
        )

    def _known(self, name: str) -> ServerStatus:
        """The status of a server. Raises UnknownServer, which says of one that has left when that was."""
        try:
            return self._supervisor.status(name)
        except UnknownServer:
            left = [one["at"] for one in self._keeping.past(name) if one["kind"] == _REMOVED and not one.get("earlier")]
            if not left:
                raise
            when = f"it was removed at {iso_time(left[-1])}"
            raise UnknownServer(f"no server is named {name!r} any more: {when}; the log says by which edit") from None

    def _with_state(self, change: dict[str, Any]) -> dict[str, Any]:
        """A change, and what its server does now; one that was removed does nothing any more."""
        try:
            status = self._supervisor.status(change["server"])
        except UnknownServer:
            return {**change, "state": None, "reason": "", "next_attempt": None}
        return {**change, "state": status.state.value, "reason": status.reason, "next_attempt": status.next_attempt}

    async def _until_healthy(self, seconds: int, server: str | None) -> None:
        if server is not None:
            self._supervisor.status(server)  # an unknown name is told at once
        if seconds == 0:
            return
        with anyio.move_on_after(seconds), self._supervisor.bus.subscribe() as events:
            late = self._late(server)
            while late is not None and not self._facts.stopping():
                await anext(events)
                if self._is_settled(late):
                    late = self._late(server)

    def _late(self, server: str | None) -> str | None:
        """The last that is not as it is wanted. While it is not, no event is a reason to look at all the others."""
        statuses = self._supervisor.statuses() if server is None else [self._supervisor.status(server)]
        return next((status.name for status in reversed(statuses) if not status.is_settled), None)

    def _is_settled(self, server: str) -> bool:
        try:
            return self._supervisor.status(server).is_settled
        except UnknownServer:  # it has left the configuration meanwhile
            return True


def build_app(
    supervisor: Supervisor,
    reloading: Reloading,
    facts: Facts,
    keeping: Keeping,
    desk: OpenDesk,
    closing: anyio.Event,
    more: Sequence[Route] = (),
) -> Starlette:
    """The control API as an ASGI app; `closing` ends its streams, `more` are the routes of other parts of the daemon."""
    operations = Operations(supervisor, reloading, facts, keeping, desk, closing)
    calls = Calls(supervisor, desk, closing)
    elicitations = Elicitations(desk, supervisor.told)
    return Starlette(
        routes=[
            *more,
            Route("/v1/version", operations.version, methods=["GET"]),
            Route("/v1/status", operations.status, methods=["GET"]),
            Route("/v1/reload", operations.reload, methods=["POST"]),
            Route("/v1/plan", operations.plan, methods=["POST"]),
            Route("/v1/events", operations.events, methods=["GET"]),
            Route("/v1/backup", Backup(keeping).backup, methods=["GET"]),
            Route("/v1/offers", calls.offers, methods=["GET"]),
            Route("/v1/elicitations", elicitations.listed, methods=["GET"]),
            Route("/v1/elicitations/{id}:answer", elicitations.answer, methods=["POST"]),
            Route("/v1/servers/{server}:{order}", operations.order, methods=["POST"]),
            Route("/v1/servers/{server}/logs", operations.logs, methods=["GET"]),
            Route("/v1/servers/{server}/offer", calls.offer, methods=["GET"]),
            Route("/v1/servers/{server}/call", calls.call, methods=["POST"]),
            Route("/v1/servers/{server}/read", calls.read, methods=["POST"]),
            Route("/v1/servers/{server}", operations.explain, methods=["GET"]),
        ],
        exception_handlers={
            ApiError: _refused,
            UnknownServer: _unknown_server,
            OrderRefused: _order_refused,
            HTTPException: _not_routed,
            Exception: _failed,
        },
    )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _unknown_server(_: Request, error: Exception) -> Response:
    """No server of that name, or one whose entry is not valid: the supervisor's own words say which."""
    return error_response(ApiError("NOT_FOUND", "UNKNOWN_SERVER", str(error)))


async def _order_refused(_: Request, error: Exception) -> Response:
    return error_response(ApiError("FAILED_PRECONDITION", "ORDER_REFUSED", str(error)))


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_error_response(error.status_code, f"{request.method} {request.url.path}: {error.detail}")


async def _failed(_: Request, __: Exception) -> Response:
    """A bug; the exception itself goes on to the web server, which logs it."""
    return error_response(ApiError("INTERNAL", "BUG", "an error of the daemon's own; its log has the details"))
