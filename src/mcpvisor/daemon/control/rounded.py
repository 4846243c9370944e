"""Owns how a request of an operator gets its result from a server that wants answers first, as those of 2026-07-28 do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from mcpvisor.daemon.control.elicitations import OpenDesk
from mcpvisor.daemon.gateway.crossing import capabilities_to_server
from mcpvisor.daemon.gateway.questions.rounds import METHODS, Rounds, answers_to, asked_again, is_interim, questions_in
from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import Belongs, Question

JsonObject = dict[str, Any]


class Rounded:
    """A server as an operator asks it: what it wants to know first is answered by the desk."""

    def __init__(self, connection: Connection, desk: OpenDesk, who: Principal) -> None:
        self._connection = connection
        self._desk = desk
        self._who = who
        self.name = connection.name

    async def request(
        self, method: str, params: JsonObject, *, deadline: float | None, on_progress: Callable[[JsonObject], None] | None
    ) -> JsonObject:
        """The raw result; `deadline` is in seconds of the server's own time, all rounds together. Raises RequestFailed."""
        tool = params["name"] if method == "tools/call" else None
        has_answerer = self._desk.has_handler(self.name, tool)

        async def put(asked: str, of: JsonObject) -> JsonObject:
            question = Question(server=self.name, method=asked, params=of, belongs=Belongs.CALL, principal=self._who, tool=tool)
            return await self._desk.ask(question)

        sent, rounds, left = params, Rounds(), deadline
        while True:
            began = anyio.current_time()
            result = await self._connection.request(
                method,
                sent,
                principal=self._who,
                deadline=left,
                on_progress=on_progress,
                client_capabilities=capabilities_to_server(None, has_answerer=has_answerer),
            )
            if method not in METHODS or not is_interim(result):
                return result
            if left is not None:
                left = max(0.0, left - (anyio.current_time() - began))
            questions = questions_in(result, era=self._connection.era, allow=self._connection.spec.allow)
            await rounds.next(is_answered=bool(questions))
            answers = await answers_to(questions, put) if questions else None
            sent = asked_again(params, answers, result.get("requestState"))
