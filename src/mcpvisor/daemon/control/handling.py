"""Owns the routes of the control API that look at handlers, send test events, and bring dead letters back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcpvisor.daemon.control.answers import ApiError, json_response
from mcpvisor.daemon.control.reloading import ConfigState
from mcpvisor.daemon.control.requests import caller, flag_of, invalid, number_asked, read_object, seconds_of, text_of
from mcpvisor.daemon.handlers.contract import JsonObject
from mcpvisor.daemon.handlers.engine import HandlerEngine
from mcpvisor.daemon.handlers.routing import KINDS
from mcpvisor.daemon.handlers.samples import sample_event
from mcpvisor.daemon.handlers.sources import subject_of

_log = logging.getLogger(__name__)

_EMIT_SECONDS: Final = 10.0
_SHOWN: Final = 50
_MOST: Final = 10_000
_TEXTS: Final = ("uri", "tool", "level")

_OfDead = Callable[[Sequence[str] | None, str | None], list[JsonObject]]
"""Does something with the dead letters of some events, or of a handler, or all; says what became of each."""


class HandlerRoutes:
    """The routes; `engine` answers all of them, and `config` is the verdict on what is written of handlers."""

    def __init__(self, engine: HandlerEngine, config: Callable[[], ConfigState]) -> None:
        self._engine = engine
        self._config = config

    def routes(self) -> list[Route]:
        """What is added to the control API."""
        return [
            Route("/v1/handlers", self.handlers, methods=["GET"]),
            Route("/v1/handlers/dead", self.dead, methods=["GET"]),
            Route("/v1/handlers/dead:retry", self.retry, methods=["POST"]),
            Route("/v1/handlers/dead:drop", self.drop, methods=["POST"]),
            Route("/v1/events:emit", self.emit, methods=["POST"]),
        ]

    async def handlers(self, _: Request) -> Response:
        """GET /v1/handlers: how each of them is, and what is written of them and not in force."""
        config = self._config()
        rejected = [one for one in config["rejected"] if one["handler"]]
        waiting = [one for one in config.get("waiting", ()) if one["handler"]]
        return json_response({"handlers": self._engine.views(), "now": time.time(), "rejected": rejected, "waiting": waiting})

    async def dead(self, request: Request) -> Response:
        """GET /v1/handlers/dead?newest=N: the dead letters, oldest first, and how many there are in all."""
        letters = self._engine.ledger.dead_letters
        newest = number_asked(request.query_params, "newest", _SHOWN, _MOST)
        shown = letters[-newest:] if newest else []
        views = [
            {"handler": one.handler, "at": one.dead_at, "why": one.why, "tries": one.tries, "event": one.event} for one in shown
        ]
        return json_response({"dead": views, "total": len(letters), "lost": self._engine.ledger.lost})

    async def retry(self, request: Request) -> Response:
        """POST /v1/handlers/dead:retry {"ids"}, {"handler"} or {"all"}: dead letters are pending again."""
        return json_response({"retried": await self._with_dead(request, "retries", self._engine.retry)})

    async def drop(self, request: Request) -> Response:
        """POST /v1/handlers/dead:drop {"ids"}, {"handler"} or {"all"}: dead letters are forgotten."""
        return json_response({"dropped": await self._with_dead(request, "drops", self._engine.drop)})

    async def _with_dead(self, request: Request, verb: str, do: _OfDead) -> list[JsonObject]:
        """Do something with the dead letters that the body names. Raises ApiError where it names none, or none is there."""
        body = await read_object(request)
        ids = body.get("ids", [])
        if not isinstance(ids, list) or not all(isinstance(one, str) and one for one in ids):
            raise invalid("FIELD", "'ids' must be a list of ids")
        handler = text_of(body, "handler") if "handler" in body else None
        if [bool(ids), handler is not None, flag_of(body, "all")].count(True) != 1:
            raise invalid("FIELD", "one of 'ids', 'handler' and 'all' says which dead letters are meant")
        done = do(ids or None, handler)
        if not done and not flag_of(body, "all"):
            raise ApiError("NOT_FOUND", "NO_DEAD_LETTER", "there is no such dead letter; `mcpvisor events dead` lists them")
        who = caller(request).name
        _log.info("%s %s %d dead letters", who, verb, len(done), extra={"audit": True, "peer": request.client})
        return done

    async def emit(self, request: Request) -> Response:
        """POST /v1/events:emit {"kind", "server", "uri", "tool", "level", "data", "dry_run", "timeout"}: a test event."""
        body = await read_object(request)
        kind, server = text_of(body, "kind"), text_of(body, "server")
        if kind not in KINDS:
            raise invalid("FIELD", f"no kind of event is called {kind!r}: {', '.join(KINDS)}")
        data = body.get("data", {})
        if not isinstance(data, dict):
            raise invalid("FIELD", "'data' must be an object")
        told: JsonObject = {**data, **{key: text_of(body, key) for key in _TEXTS if body.get(key) is not None}}
        try:
            event = sample_event(kind, server, told, time.time())
        except ValueError as error:
            raise invalid("FIELD", str(error)) from error
        subject = subject_of(event)
        if flag_of(body, "dry_run"):
            ways = [{"handler": way.handler, "route": way.origin} for way in self._engine.ways(subject)]
            return json_response({"event": event.as_json(), "ways": ways, "sent": False})
        if kind == "elicitation":
            raise invalid("FIELD", "a question has somebody who waits for its answer: only dry_run shows where it would go")
        who = caller(request).name
        _log.info("%s sends a test event %s of %s", who, kind, server, extra={"audit": True, "peer": request.client})
        ways = await self._engine.emit(event, seconds_of(body, "timeout") or _EMIT_SECONDS)
        return json_response({"event": event.as_json(), "ways": ways, "sent": True})
