"""Owns who answers a question: a pure function of whose it is, who can be asked, and what is allowed. Nobody is guessed at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mcpvisor.daemon.questions.contract import CanBeAsked, Mode
from mcpvisor.supervisor.questions import ELICITATION, SAMPLING, Belongs, Question


class To(StrEnum):
    """Where a question goes."""

    CLIENT = "client"
    """The client whose call has caused it."""
    HANDLER = "handler"
    """The handler that the routes name."""
    NOBODY = "nobody"
    """An elicitation is declined; anything else is refused as a method that is not there."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a question goes, and why it does not go to the client; `why` is empty where it does."""

    to: To
    why: str = ""


def decide(
    question: Question, mode: Mode | None, can: CanBeAsked | None, *, has_handler: bool, allowed: frozenset[str]
) -> Decision:
    """Who is asked. `can` is None where no client is at the other end; `allowed` is what the server's `allow` has."""
    word = "elicitation" if question.method == ELICITATION else "sampling" if question.method == SAMPLING else "roots"
    if word != "elicitation" and word not in allowed:
        return Decision(To.NOBODY, f"{word} is not allowed to this server")
    why = _why_not_client(question, mode, can, word)
    if not why:
        return Decision(To.CLIENT)
    if word == "elicitation" and has_handler:
        return Decision(To.HANDLER, why)
    return Decision(To.NOBODY, why + (", and no route names a handler" if word == "elicitation" else ""))


def _why_not_client(question: Question, mode: Mode | None, can: CanBeAsked | None, word: str) -> str:
    if question.belongs is not Belongs.CALL:
        return _WHY_NOBODY[question.belongs]
    if can is None:
        return "no client that can be asked has made the call"
    if not can.covers(question.method, mode):
        return f"the client has not declared {word}{f' in the mode {mode}' if mode else ''}"
    return ""


_WHY_NOBODY: Final = {
    Belongs.AMBIGUOUS: "several clients were calling, and which of them is meant cannot be known",
    Belongs.NOBODY: "it belongs to no call",
}
