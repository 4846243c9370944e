"""Owns the routes by which operators see the questions that are open, and answer those that wait for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import anyio
from starlette.requests import Request
from starlette.responses import Response

from mcpvisor.daemon.control.answers import ApiError, json_response
from mcpvisor.daemon.control.requests import caller, invalid, read_object
from mcpvisor.daemon.handlers.contract import HandlerAnswer
from mcpvisor.daemon.questions.desk import DoesNotFit, NotOpen
from mcpvisor.daemon.questions.open_questions import OpenQuestion
from mcpvisor.supervisor.asking import decline
from mcpvisor.supervisor.questions import Question

JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)


class OpenDesk(Protocol):
    """What the control socket asks of the desk."""

    @property
    def waiting_for_operator(self) -> int:
        """How many questions an operator is to answer."""
        ...

    def open(self) -> Iterable[OpenQuestion]:
        """All open questions, the oldest first."""
        ...

    def answer(self, identity: str, answer: HandlerAnswer) -> OpenQuestion:
        """Answer a question for the operator, and return it. Raises NotOpen, and DoesNotFit while it stays open."""
        ...

    async def ask(self, question: Question) -> JsonObject:
        """The raw result for a server that has asked within a call of an operator. Raises PeerRefusal."""
        ...

    def has_handler(self, server: str, tool: str | None) -> bool:
        """Whether a handler answers elicitations of such a call."""
        ...


class NoDesk:
    """A daemon in which nothing is asked."""

    waiting_for_operator = 0

    def open(self) -> Iterable[OpenQuestion]:
        """See `OpenDesk`."""
        return ()

    def answer(self, identity: str, answer: HandlerAnswer) -> OpenQuestion:
        """See `OpenDesk`."""
        del answer
        raise NotOpen(f"no open question has the id {identity!r}")

    async def ask(self, question: Question) -> JsonObject:
        """See `OpenDesk`."""
        return await decline(question)

    def has_handler(self, server: str, tool: str | None) -> bool:  # noqa: ARG002 - there is none, whatever the call
        """See `OpenDesk`."""
        return False


class Elicitations:
    """The routes below /v1/elicitations."""

    def __init__(self, desk: OpenDesk, told: Callable[[str, Any], Any] = lambda _server, value: value) -> None:
        """`told` takes the secrets of a server out of what it has said."""
        self._desk = desk
        self._told = told

    async def listed(self, _: Request) -> Response:
        """GET /v1/elicitations: the questions that are open, whoever they wait for."""
        return json_response({"elicitations": [self._view(one) for one in self._desk.open()], "now": time.time()})

    def _view(self, one: OpenQuestion) -> JsonObject:
        """A question without secrets: whoever may answer it need not see what else the server knows."""
        view = question_view(one)
        return view | {key: self._told(view["server"], view[key]) for key in ("message", "schema", "url", "tool")}

    async def answer(self, request: Request) -> Response:
        """POST /v1/elicitations/{id}:answer {"action", "content"}: answer one that waits for the operator."""
        identity, who = request.path_params["id"], caller(request).name
        answer = _answer(await read_object(request))
        try:
            one = self._desk.answer(identity, answer)
        except NotOpen as error:
            raise ApiError("NOT_FOUND", "NOT_OPEN", str(error)) from None
        except DoesNotFit as error:
            raise invalid("ANSWER", str(error)) from None
        server = one.prepared.question.server
        told = {"audit": True, "peer": request.client, "question": identity, "properties": sorted(answer.content or ())}
        _log.info("%s answered question %s of %s: %s", who, identity, server, answer.action, extra=told)
        return json_response({"id": identity, "server": server, "action": answer.action})


def question_view(one: OpenQuestion) -> JsonObject:
    """One open question, whoever it waits for; of what is asked of programs no more than whose it is."""
    question, prepared = one.prepared.question, one.prepared
    principal = question.principal
    passed = anyio.current_time() - one.opened_at
    return {
        "id": one.id,
        "server": question.server,
        "method": question.method,
        "mode": prepared.mode,
        "tool": question.tool,
        "principal": principal.name if principal is not None else None,
        "waiting_for": one.whom,
        "since": one.since,
        "open_seconds": passed,
        "deadline": time.time() + one.seconds - passed,
        "message": prepared.message,
        "schema": prepared.params.get("requestedSchema"),
        "url": prepared.url,
    }


def _answer(body: JsonObject) -> HandlerAnswer:
    action, content = body.get("action"), body.get("content")
    if action not in ("accept", "decline", "cancel"):
        raise invalid("FIELD", "'action' must be accept, decline or cancel")
    if content is not None and not isinstance(content, dict):
        raise invalid("FIELD", "'content' must be an object")
    return HandlerAnswer(action=action, content=content)
