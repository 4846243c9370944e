"""Owns the level that the log has now: that of the configuration, or what an operator ordered until the daemon's end."""

from __future__ import annotations

import logging
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcpvisor.daemon.control.answers import json_response
from mcpvisor.daemon.control.drift import OrderedLevel
from mcpvisor.daemon.control.requests import caller, invalid, read_object
from mcpvisor.daemon.log import Log

LEVELS = ("debug", "info", "warning", "error")
"""What `log.level` may be."""

_log = logging.getLogger(__name__)


class LogLevel:
    """The level of `log`, which began with the configured one."""

    def __init__(self, log: Log, configured: str) -> None:
        self._log = log
        self._configured = configured
        self.ordered: OrderedLevel | None = None
        """The order that stands; None while the log has its configured level."""

    def order(self, level: str | None, who: str, at: float) -> None:
        """Give the log another level from now on; None is the one it was started with. Raises ValueError for no level."""
        if level is not None and level not in LEVELS:
            raise ValueError(f"{level!r} is no level: {', '.join(LEVELS)}")
        self._log.set_level(level or self._configured)
        self.ordered = OrderedLevel(level, who, at) if level is not None and level != self._configured else None

    def routes(self) -> list[Route]:
        """What is added to the control API."""
        return [Route("/v1/log", self._show, methods=["GET"]), Route("/v1/log", self._change, methods=["POST"])]

    async def _show(self, _: Request) -> Response:
        """GET /v1/log: the level, the configured one, and whose order makes the difference."""
        return json_response(self._view())

    async def _change(self, request: Request) -> Response:
        """POST /v1/log {"level"}: another level until the daemon ends; null goes back to the configured one."""
        body = await read_object(request)
        level, who = body.get("level"), caller(request).name
        try:
            self.order(level, who, time.time())
        except (ValueError, TypeError) as error:
            raise invalid("FIELD", f"'level': {error}") from error
        told = self.ordered.level if self.ordered is not None else f"{self._configured}, as configured"
        _log.warning("%s set the log level to %s", who, told, extra={"audit": True, "peer": request.client})
        return json_response(self._view())

    def _view(self) -> dict[str, object]:
        ordered = self.ordered
        return {
            "level": ordered.level if ordered is not None else self._configured,
            "configured": self._configured,
            "by": ordered.by if ordered is not None else None,
            "at": ordered.at if ordered is not None else None,
        }
