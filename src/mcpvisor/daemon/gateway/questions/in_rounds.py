"""Owns the way of a request of 2026-07-28: its client is answered with what it has to answer first, and comes again."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from mcpvisor.daemon.gateway.asking import Asked, Hearing, Line
from mcpvisor.daemon.gateway.questions import visits
from mcpvisor.daemon.gateway.questions.handing_on import HandingOn
from mcpvisor.daemon.gateway.questions.parked import ParkableCall, ParkedCalls
from mcpvisor.daemon.gateway.questions.putting import as_asked, fit_for, question_of, shown_page
from mcpvisor.daemon.gateway.questions.rounds import (
    INPUT_REQUIRED,
    Questions,
    Rounds,
    answers_to,
    asked_again,
    is_interim,
    questions_in,
)
from mcpvisor.daemon.gateway.questions.sealing import binding
from mcpvisor.daemon.gateway.questions.states import Continuation, Parked, Passed, States, Visit, unknown_state
from mcpvisor.daemon.gateway.sdk_server import declared_capabilities
from mcpvisor.daemon.questions.contract import CanBeAsked, QuestionDesk
from mcpvisor.daemon.questions.pace import Pace
from mcpvisor.supervisor.errors import RequestFailed

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every request of 2026-07-28 is given."""

    desk: QuestionDesk
    states: States
    parked: ParkedCalls
    handing: HandingOn
    pace: Pace


class RoundTrip:
    """One request, from its arrival to its result or to the questions that it is answered with."""

    def __init__(self, asked: Asked, line: Line, hearing: Hearing, means: Means) -> None:
        self._asked = asked
        self._line = line
        self._hearing = hearing
        self._means = means
        self._can = CanBeAsked.of(declared_capabilities(asked.ctx))

    async def answer(self) -> JsonObject:
        """The result, or an `input_required` with a state that only this client can come back with. Raises RequestFailed."""
        sent = self._asked.ctx.params or {}
        given: JsonObject | None = sent.get("inputResponses")
        state = sent.get("requestState")
        if state is None:  # a server that keeps none wants the answers by themselves
            return await self._follow(self._begin(asked_again(self._asked.params, given, None)))
        to = self._means.states.read(state, self._bound)
        if isinstance(to, Parked):
            return await self._follow(self._resume(to.handle, given or {}))
        if isinstance(to, Visit):
            if visits.not_visited(to.questions, given or {}):
                raise visits.declined()
            return await self._follow(self._begin(self._asked.params))
        answers = await self._means.handing.handed_back(self._asked, to.questions, given or {}, to.ids, to.at)
        return await self._follow(self._begin(asked_again(self._asked.params, answers | to.answers, to.state)))

    @cached_property
    def _bound(self) -> bytes:
        """What a state is good for: this client, on this endpoint, with this very request to this server."""
        asked = self._asked
        params = {key: value for key, value in asked.params.items() if key != "_meta"}
        return binding(asked.caller.principal, asked.view, asked.server, asked.ctx.method, params=params)

    def _begin(self, params: JsonObject) -> ParkableCall:
        if self._asked.door.era == "legacy":
            params = self._asked.params  # no server of that era knows answers or states
        call = ParkableCall(self._line, self._can)
        self._means.parked.begin(call, partial(self._line.request, params, self._means.desk.sink(call)))
        return call

    def _resume(self, handle: str, answers: JsonObject) -> ParkableCall:
        call = self._means.parked.take(handle)
        if call is None:
            raise unknown_state()
        call.answered(answers, self._can)
        return call

    async def _follow(self, call: ParkableCall) -> JsonObject:
        """Attend to a call, and to those that follow it because somebody else than the client has the answers."""
        rounds = Rounds()
        while True:
            try:
                result = await call.attend(self._hearing)
            except RequestFailed as failure:
                pages = visits.keep_pages(failure, partial(shown_page, self._asked))
                if not pages:
                    raise
                answer = await self._to_visit(visits.as_questions(pages))
                params = self._asked.params
            else:
                if result is not None and not is_interim(result):
                    return result
                if result is None:
                    answer = self._to_wait(call)
                    if answer is None:
                        continue
                    return answer
                answer, params = await self._to_answer(result)
            if answer is not None:
                return answer
            await rounds.next(is_answered=True)
            call = self._begin(params)

    def _to_wait(self, call: ParkableCall) -> JsonObject | None:
        """Park a call that has asked something; None where there is no place, and somebody else has to answer."""
        questions = {
            key: {"method": one["method"], "params": visits.without_id(one["params"])} for key, one in call.questions.items()
        }
        handle = self._means.parked.park(call, self._asked.caller.principal)
        if handle is None:
            call.turn_away()
            return None
        return self._interim({}, questions, Parked(handle))

    async def _to_visit(self, questions: Questions) -> JsonObject | None:
        """Send the client to the pages; None where somebody else has been there. Raises RequestFailed."""
        own = as_asked(await fit_for(self._asked, questions, self._can, self._means.pace))
        others = await self._of_others(questions, own)
        if visits.not_visited(others, others):
            raise visits.no_way_to_visit()
        return self._interim({}, own, Visit(own)) if own else None

    async def _to_answer(self, result: JsonObject) -> tuple[JsonObject | None, JsonObject]:
        """Pass questions on to the client; where all are answered by others, the params to ask the server again with."""
        door = self._asked.door
        questions, state = questions_in(result, era=door.era, allow=door.spec.allow), result.get("requestState")
        own = await fit_for(self._asked, questions, self._can, self._means.pace)
        others = await self._of_others(questions, own)
        if own or not questions:
            kept = {key: questions[key] for key in own}
            ids = self._means.handing.handed_on(self._asked, own, self._means.states.seconds)
            return self._interim(result, as_asked(own), Passed(state, kept, others, ids, time.time())), {}
        return None, asked_again(self._asked.params, others, state)

    async def _of_others(self, questions: Questions, own: Collection[str]) -> JsonObject:
        """The answers to what the client cannot be asked."""

        async def put(method: str, params: JsonObject) -> JsonObject:
            return await self._means.desk.ask(question_of(self._asked, method, params), None)

        return await answers_to({key: one for key, one in questions.items() if key not in own}, put)

    def _interim(self, result: JsonObject, questions: Questions, to: Continuation) -> JsonObject:
        asked = {"inputRequests": questions} if questions else {}
        return {**result, "resultType": INPUT_REQUIRED, **asked, "requestState": self._means.states.write(to, self._bound)}
