"""Owns what a server may ask of those who use it, and what whoever answers promises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mcpvisor.supervisor.principal import Principal

JsonObject = dict[str, Any]

ELICITATION: Final = "elicitation/create"
SAMPLING: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"
QUESTION_METHODS: Final = frozenset({ELICITATION, SAMPLING, ROOTS})


class Belongs(StrEnum):
    """What is known of the call that caused a question."""

    CALL = "call"
    """It came within the answer to one call, or while calls of one client alone were open."""
    NOBODY = "nobody"
    """No call was open, or it is known to belong to none."""
    AMBIGUOUS = "ambiguous"
    """Calls of several clients were open, and the wire does not say which of them is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request that a server makes: `method` is one of `QUESTION_METHODS`, `params` are as the server sent them."""

    server: str
    method: str
    params: JsonObject
    belongs: Belongs
    principal: Principal | None = None
    """For whom the call was made that caused it; None unless `belongs` is `call`."""
    tool: str | None = None
    """The original name of the tool that was called, where the call was one of a tool."""


QuestionSink = Callable[[Question], Awaitable[JsonObject]]
"""Answers a question with the raw result for the server. Raises `PeerRefusal`; cancelled when the server withdraws the
question, or when the call that caused it has ended."""
