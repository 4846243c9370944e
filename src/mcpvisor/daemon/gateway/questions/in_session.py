"""Owns the way of a request of the handshake era: its client is asked while it is open, whatever the server's era."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mcpvisor.daemon.gateway.asking import Asked, Line
from mcpvisor.daemon.gateway.questions.clients import SessionClient
from mcpvisor.daemon.gateway.questions.completions import Completions
from mcpvisor.daemon.gateway.questions.putting import question_of, shown_page
from mcpvisor.daemon.gateway.questions.rounds import METHODS, Rounds, answers_to, asked_again, is_interim, questions_in
from mcpvisor.daemon.gateway.questions.visits import keep_pages
from mcpvisor.daemon.questions.contract import QuestionDesk
from mcpvisor.supervisor.errors import RequestFailed

if TYPE_CHECKING:
    from mcpvisor.daemon.gateway.sessions import Session

JsonObject = dict[str, Any]


async def answer(asked: Asked, line: Line, session: Session, desk: QuestionDesk, completions: Completions) -> JsonObject:
    """The server's result; what a server of 2026-07-28 wants first is asked in rounds. Raises RequestFailed."""
    client = SessionClient(asked, session, line, completions)

    async def put(method: str, params: JsonObject) -> JsonObject:
        return await desk.ask(question_of(asked, method, params), client)

    params, rounds = asked.params, Rounds()
    try:
        while True:
            result = await line.request(params, desk.sink(client))
            if not is_interim(result) or asked.ctx.method not in METHODS:
                return result
            questions = questions_in(result, era=asked.door.era, allow=asked.door.spec.allow)
            await rounds.next(is_answered=bool(questions))
            answers = await answers_to(questions, put) if questions else None
            params = asked_again(asked.params, answers, result.get("requestState"))
    except RequestFailed as failure:
        for page in keep_pages(failure, partial(shown_page, asked)):
            client.expect(page)
        raise
