"""Owns the way of a request with all that its server asks meanwhile, whatever the eras of client and server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mcpvisor.daemon.gateway.asking import Asked, Hearing, Line
from mcpvisor.daemon.gateway.questions import in_session
from mcpvisor.daemon.gateway.questions.completions import Completions
from mcpvisor.daemon.gateway.questions.in_rounds import Means, RoundTrip
from mcpvisor.daemon.gateway.questions.putting import tool_of
from mcpvisor.daemon.gateway.questions.rounds import METHODS

JsonObject = dict[str, Any]


class Passage:
    """Asks servers on behalf of clients, and brings their questions to exactly the client whose request has caused them."""

    def __init__(self, means: Means, completions: Completions) -> None:
        self._means = means
        self._completions = completions

    async def answer(self, asked: Asked) -> JsonObject:
        """The server's result, or what the client has to answer first. Raises RequestFailed."""
        hearing = Hearing(asked)
        line = Line(asked, hearing, has_answerer=self._means.desk.has_handler(asked.server, tool_of(asked)))
        session = asked.caller.session
        if session is not None:
            run: Callable[[], Awaitable[JsonObject]] = partial(
                in_session.answer, asked, line, session, self._means.desk, self._completions
            )
        elif asked.ctx.method in METHODS:
            run = RoundTrip(asked, line, hearing, self._means).answer
        else:
            run = partial(line.request, asked.params, self._means.desk.sink())
        return await hearing.during(run)
