"""Owns what is told of questions that a client takes with it: nobody here waits for the answer, yet it leaves its traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from mcpvisor.daemon.gateway.asking import Asked
from mcpvisor.daemon.gateway.questions.putting import question_of
from mcpvisor.daemon.gateway.questions.rounds import Questions
from mcpvisor.daemon.questions.contract import Prepared, Verdict
from mcpvisor.daemon.questions.open_questions import CLIENT, new_id
from mcpvisor.daemon.questions.pace import Pace
from mcpvisor.daemon.questions.preparing import judge, prepare
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.events import ServerEvent
from mcpvisor.supervisor.host_events import QuestionPut, QuestionSettled

JsonObject = dict[str, Any]

_TOOL = 128
"""Characters of a tool's name that are told."""


class HandingOn:
    """Tells that questions were handed on to a client, and what came back; each under one id all the way."""

    def __init__(self, tell: Callable[[ServerEvent], None], pace: Pace, now: Callable[[], float] = time.time) -> None:
        """`now` gives wall-clock seconds: the answer may come to the daemon's next run."""
        self._tell = tell
        self._pace = pace
        self._now = now

    def handed_on(self, asked: Asked, questions: Mapping[str, Prepared], seconds: float) -> dict[str, str]:
        """Questions go to the client, who has `seconds` to answer; their ids."""
        ids = {key: new_id() for key in questions}
        for key, prepared in questions.items():
            self._tell(
                QuestionPut(
                    at=self._now(),
                    server=asked.server,
                    id=ids[key],
                    method=prepared.question.method,
                    mode=prepared.mode or "",
                    tool=_tool(prepared),
                    whom=CLIENT,
                    principal=asked.caller.principal,
                    properties=prepared.properties,
                    deadline=self._now() + seconds,
                )
            )
        return ids

    async def handed_back(
        self, asked: Asked, questions: Questions, answers: JsonObject, ids: dict[str, str], at: float
    ) -> JsonObject:
        """What the server gets for the answers to what was asked `at`: each as far as it fits, none to what was not asked."""
        given: JsonObject = {}
        for key, one in questions.items():
            if key in answers:
                async with self._pace.step():
                    prepared = _prepared(asked, one)
                    verdict = judge(prepared, answers[key])
                self._settled(prepared, verdict, ids.get(key, ""), at)
                given[key] = verdict.result
        return given

    def _settled(self, prepared: Prepared, verdict: Verdict, identity: str, at: float) -> None:
        content = verdict.result.get("content") if verdict.action == "accept" else None
        self._tell(
            QuestionSettled(
                at=self._now(),
                server=prepared.question.server,
                id=identity,
                method=prepared.question.method,
                mode=prepared.mode or "",
                tool=_tool(prepared),
                by=CLIENT,
                action=verdict.action or "answered",
                properties=tuple(content or ()),
                seconds=max(0.0, self._now() - at),
                why=verdict.why,
            )
        )


def _prepared(asked: Asked, one: JsonObject) -> Prepared:
    return prepare(question_of(asked, one["method"], one["params"]))


def _tool(prepared: Prepared) -> str:
    return clean_text(prepared.question.tool or "", _TOOL)
