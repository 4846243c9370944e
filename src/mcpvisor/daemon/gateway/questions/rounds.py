"""Owns what a server of 2026-07-28 says when it wants answers first, and what it is asked with once it has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.questions import QUESTION_METHODS, ROOTS, SAMPLING
from mcpvisor.supervisor.transports.exchange import PeerRefusal

JsonObject = dict[str, Any]
Questions = dict[str, JsonObject]
"""What is asked, as `method` and `params`, by the server's own key."""

INPUT_REQUIRED: Final = "input_required"

METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""What a server may answer with questions."""

MAX_ROUNDS: Final = 10
"""How often a server is asked again by ourselves, before its questions count as endless."""

MAX_QUESTIONS: Final = 16
"""Questions of one round."""

MAX_KEY: Final = 256

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.25
"""Seconds before a server that asks nothing, but wants to be asked again, is."""

_ALLOWED_BY: Final = {SAMPLING: "sampling", ROOTS: "roots"}
"""What an operator has to allow before it is offered to a server."""

_INTERNAL_ERROR: Final = -32603


def is_interim(result: Mapping[str, Any]) -> bool:
    """Whether a result is none yet."""
    return result.get("resultType") == INPUT_REQUIRED


def questions_in(result: Mapping[str, Any], *, era: str | None, allow: Collection[str]) -> Questions:
    """What an interim result asks. Raises RequestFailed where it makes no sense, or asks what is not in `allow`."""
    if era == "legacy":
        raise _senseless("its era has other ways to ask")
    asked, state = result.get("inputRequests"), result.get("requestState")
    if not (state is None or isinstance(state, str)):
        raise _senseless("a requestState that is no text")
    if asked is None and state is None:
        raise _senseless("neither a question nor a requestState")
    asked = {} if asked is None else asked
    if not isinstance(asked, dict) or len(asked) > MAX_QUESTIONS:
        raise _senseless(f"inputRequests that are no object of at most {MAX_QUESTIONS} questions")
    questions = {key: _question(key, one) for key, one in asked.items()}
    for method in {one["method"] for one in questions.values()}:
        if _ALLOWED_BY.get(method, "") not in ("", *allow):
            text = f"the server has asked for {method}, which it was not offered"
            raise RequestFailed(Outcome.CANCELLED, "question_refused", text, code=_INTERNAL_ERROR)
    return questions


def _question(key: str, one: Any) -> JsonObject:
    params = one.get("params", {}) if isinstance(one, dict) else None
    if len(key) > MAX_KEY or not isinstance(params, dict) or one.get("method") not in QUESTION_METHODS:
        raise _senseless("a question that the protocol does not know")
    return {"method": one["method"], "params": params}


def asked_again(params: JsonObject, answers: JsonObject | None, state: str | None) -> JsonObject:
    """The params of the next try: the same request, with the answers and with the server's own state."""
    again = dict(params)
    if answers is not None:
        again["inputResponses"] = answers
    if state is not None:
        again["requestState"] = state
    return again


async def answers_to(questions: Questions, ask: Callable[[str, JsonObject], Awaitable[JsonObject]]) -> JsonObject:
    """The answers to all questions, asked at one time, by key. Raises RequestFailed.

    There is no way to tell a server that a question was refused, so that a refusal ends the call.
    """
    answers: JsonObject = {}
    refusals: list[PeerRefusal] = []

    async def answer(key: str, question: JsonObject) -> None:
        try:
            answers[key] = await ask(question["method"], question["params"])
        except PeerRefusal as refusal:
            refusals.append(refusal)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for key, question in questions.items():
            tasks.start_soon(answer, key, question)
    if refusals:
        text = f"a question of the server was refused: {refusals[0].message}"
        raise RequestFailed(Outcome.CANCELLED, "question_refused", text, code=refusals[0].code)
    return answers


class Rounds:
    """Counts how often a server is asked again by ourselves for the sake of one request."""

    def __init__(self) -> None:
        self._rounds = 0
        self._pause = _FIRST_PAUSE

    async def next(self, *, is_answered: bool) -> None:
        """Wait a little where the server is asked again without an answer. Raises RequestFailed after `MAX_ROUNDS`."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            text = f"the server has asked for more than {MAX_ROUNDS} rounds of answers"
            raise RequestFailed(Outcome.CANCELLED, "too_many_rounds", text, code=_INTERNAL_ERROR)
        if is_answered:
            self._pause = _FIRST_PAUSE
            return
        await anyio.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _senseless(what: str) -> RequestFailed:
    text = f"the server wants an answer first, and says so in a way that makes no sense: {what}"
    return RequestFailed(Outcome.PEER_ERROR, INPUT_REQUIRED, text, code=_INTERNAL_ERROR)
