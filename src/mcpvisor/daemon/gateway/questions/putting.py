"""Owns how what a server asks becomes a question of the call that caused it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcpvisor.daemon.gateway.asking import Asked
from mcpvisor.daemon.gateway.questions.rounds import Questions
from mcpvisor.daemon.gateway.questions.visits import without_id
from mcpvisor.daemon.questions.contract import CanBeAsked, Prepared, Unaskable
from mcpvisor.daemon.questions.pace import Pace
from mcpvisor.daemon.questions.preparing import prepare
from mcpvisor.supervisor.questions import ELICITATION, Belongs, Question

JsonObject = dict[str, Any]


def question_of(asked: Asked, method: str, params: JsonObject) -> Question:
    """A question that has come within the answer to a request."""
    return Question(
        server=asked.server,
        method=method,
        params=params,
        belongs=Belongs.CALL,
        principal=asked.principal,
        tool=tool_of(asked),
    )


def tool_of(asked: Asked) -> str | None:
    """The server's own name of the tool that a request calls."""
    return asked.params["name"] if asked.ctx.method == "tools/call" else None


def shown_page(asked: Asked, page: JsonObject) -> JsonObject | None:
    """A page that a server names, as a person is sent to it; None where nobody should be."""
    try:
        return prepare(question_of(asked, ELICITATION, {**page, "mode": "url"})).params
    except Unaskable:
        return None


async def fit_for(asked: Asked, questions: Questions, can: CanBeAsked, pace: Pace) -> dict[str, Prepared]:
    """What of some questions can be put to the client of a request of 2026-07-28."""
    fit: dict[str, Prepared] = {}
    for key, one in questions.items():
        try:
            async with pace.step():
                prepared = prepare(question_of(asked, one["method"], one["params"]))
        except Unaskable:
            continue
        if can.covers(one["method"], prepared.mode):
            fit[key] = prepared
    return fit


def as_asked(fit: Mapping[str, Prepared]) -> Questions:
    """Questions in the words that a client of 2026-07-28 gets."""
    return {key: {"method": prepared.question.method, "params": without_id(prepared.params)} for key, prepared in fit.items()}
