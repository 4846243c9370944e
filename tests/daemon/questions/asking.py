"""Owns what the tests of questions share: questions, and clients that can be asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcpvisor.daemon.questions.contract import CanBeAsked
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import ELICITATION, Belongs, Question

JsonObject = dict[str, Any]

ALL = CanBeAsked(form=True, url=True, sampling=True, roots=True)
NAME_FORM: JsonObject = {
    "message": "Who?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
ACCEPTED: JsonObject = {"action": "accept", "content": {"name": "octocat"}}
DECLINED: JsonObject = {"action": "decline"}


def question(
    params: JsonObject | None = None,
    *,
    server: str = "git",
    method: str = ELICITATION,
    belongs: Belongs = Belongs.CALL,
    principal: str | None = "uid:1",
) -> Question:
    """A question of a server, by default for a name and for the sake of a call of `uid:1`."""
    return Question(
        server=server,
        method=method,
        params=NAME_FORM if params is None else params,
        belongs=belongs,
        principal=Principal(principal, "s1") if principal is not None else None,
        tool="commit",
    )


class Client:
    """A client that answers as it is told, and knows what it was asked."""

    def __init__(self, answer: Callable[[], Awaitable[JsonObject]], can: CanBeAsked = ALL) -> None:
        self._answer = answer
        self.can = can
        self.asked: list[tuple[str, JsonObject]] = []

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """See `ClientDoor`."""
        self.asked.append((method, params))
        return await self._answer()
