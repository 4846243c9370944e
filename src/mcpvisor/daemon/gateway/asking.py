"""Owns how a server is asked for a client: on whose behalf, at which log level, and what the client hears before the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcpvisor.daemon.gateway.caller import Caller
from mcpvisor.daemon.gateway.crossing import LOG_LEVEL_META, capabilities_to_server
from mcpvisor.daemon.gateway.doors import ServerDoor
from mcpvisor.daemon.gateway.emissions import Emissions
from mcpvisor.daemon.gateway.loglevels import MESSAGE_METHOD, admits, named
from mcpvisor.daemon.gateway.sdk_server import Context, declared_capabilities, notify_within
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import QuestionSink

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a client on its way to a server; `params` are as the server is to get them."""

    ctx: Context
    caller: Caller
    view: str | None
    server: str
    door: ServerDoor
    params: JsonObject

    @property
    def principal(self) -> Principal:
        """For whom the server is asked."""
        session = self.caller.session
        return Principal(self.caller.principal, session.id if session is not None else None)


class Hearing:
    """What the client of one request hears on that request's own stream, before its result."""

    def __init__(self, asked: Asked) -> None:
        meta = (asked.ctx.params or {}).get("_meta") or {}
        self._server = asked.server
        self._session = asked.caller.session
        self._level: str | None = None if self._session is not None else meta.get(LOG_LEVEL_META)
        self._token = meta.get("progressToken")
        self._emissions = Emissions(partial(notify_within, asked.ctx))

    @property
    def level(self) -> str | None:
        """The log level that the client wants; None where it has not asked for one."""
        return self._session.wish.level if self._session is not None else self._level

    @property
    def wants_progress(self) -> bool:
        """Whether the client has given a token."""
        return self._token is not None

    @property
    def is_open(self) -> bool:
        """Whether what is put here still comes before the result."""
        return self._emissions.is_open

    def put(self, method: str, params: JsonObject) -> None:
        """Tell the client something that concerns its request."""
        self._emissions.put(method, params)

    def progress(self, params: JsonObject) -> None:
        """Progress of the server, which goes out under the client's own token."""
        if self._token is not None:
            self.put("notifications/progress", {**params, "progressToken": self._token})

    def log(self, message: JsonObject) -> None:
        """A log message of the server that belongs to this request."""
        is_silent = self._session is None and self._level is None
        if not is_silent and admits(self.level, message.get("level")):
            self.put(MESSAGE_METHOD, named(self._server, message))

    async def during(self, run: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        """The result of `run`, once everything that came before it is sent. Raises RequestFailed."""
        if self._session is None and not self.wants_progress and self._level is None:
            return await run()
        return await self._emissions.during(run)


class Line:
    """One call to a server, as it is asked for it once or several times; `hearing` is who listens just now, if anybody."""

    def __init__(self, asked: Asked, hearing: Hearing, *, has_answerer: bool) -> None:
        """`has_answerer`: somebody answers elicitations of this call that its client cannot be asked."""
        self.hearing: Hearing | None = hearing
        self._asked = asked
        self._has_answerer = has_answerer
        self._wants_progress = hearing.wants_progress
        self._level = hearing.level

    async def request(self, params: JsonObject, on_question: QuestionSink) -> JsonObject:
        """The server's result; `on_question` answers what it asks meanwhile. Raises RequestFailed."""
        asked, session = self._asked, self._asked.caller.session
        return await asked.door.request(
            asked.ctx.method,
            params,
            principal=asked.principal,
            on_progress=self._progress if self._wants_progress else None,
            on_log=self._log,
            client_capabilities=capabilities_to_server(declared_capabilities(asked.ctx), has_answerer=self._has_answerer),
            log_level=self._level,
            on_question=on_question,
            on_pause=None if session is None else partial(session.transport.pause, asked.ctx),
        )

    def _progress(self, params: JsonObject) -> None:
        if self.hearing is not None:
            self.hearing.progress(params)

    def _log(self, message: JsonObject) -> None:
        if self.hearing is not None:
            self.hearing.log(message)
