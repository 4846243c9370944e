"""Owns the seams of the desk: the client that can be asked, a question made fit to be asked, and what became of its answer.

`preparing.prepare(question)` makes a `Prepared` of a question, or raises `Unaskable`; `preparing.judge(prepared, answer)` says
what the server gets. Both are pure, for whoever carries questions and answers on ways of their own. `desk.Desk` does all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, Self

from mcpvisor.daemon.questions.form import Form
from mcpvisor.supervisor.questions import ELICITATION, ROOTS, SAMPLING, Question, QuestionSink

JsonObject = dict[str, Any]

Mode = Literal["form", "url"]
Action = Literal["accept", "decline", "cancel"]
ACTIONS: Final[tuple[Action, ...]] = ("accept", "decline", "cancel")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanBeAsked:
    """What a client has declared that it can be asked."""

    form: bool = False
    url: bool = False
    sampling: bool = False
    roots: bool = False

    @classmethod
    def of(cls, capabilities: Mapping[str, Any] | None) -> Self:
        """What the capabilities of a client declare, in either era; an empty `elicitation` means forms alone."""
        declared = capabilities or {}
        elicitation = declared.get("elicitation")
        modes: Mapping[str, Any] = elicitation if isinstance(elicitation, Mapping) else {}
        # null is how a model of the SDK writes what is not there.
        asked = {mode for mode in ("form", "url") if modes.get(mode) is not None}
        return cls(
            form=isinstance(elicitation, Mapping) and ("form" in asked or not asked),
            url="url" in asked,
            sampling=declared.get("sampling") is not None,
            roots=declared.get("roots") is not None,
        )

    def covers(self, method: str, mode: Mode | None) -> bool:
        """Whether a question of that method, and of that mode where it is an elicitation, may be put to the client."""
        if method == ELICITATION:
            return self.url if mode == "url" else self.form
        return {SAMPLING: self.sampling, ROOTS: self.roots}.get(method, False)


class ClientDoor(Protocol):
    """The one client whose call has caused a question; lives as long as that call."""

    @property
    def can(self) -> CanBeAsked:
        """What it has declared."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """The client's own result, unchecked; `params` are prepared already.

        Raises `PeerRefusal` with the error by which the client has answered; whatever else it raises means that the client
        could not be asked. It is cancelled at the deadline of the question, and then takes the question back from the client.
        """
        ...


class Unaskable(Exception):
    """A question that is put to nobody; the text says why, is for people, and clean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A question that is fit to be put to somebody."""

    question: Question
    params: JsonObject
    """What whoever is asked gets: the text under the server's name, everything in it clean, nothing that only we may know."""
    mode: Mode | None
    """None for sampling and roots."""
    message: str = ""
    """The text under the server's name."""
    form: Form | None = None
    """What an accepted answer must be; None unless `mode` is `form`."""
    url: str | None = None

    @property
    def properties(self) -> tuple[str, ...]:
        """The names of what is asked for."""
        return self.form.names if self.form is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the server gets for an answer."""

    result: JsonObject
    action: Action | None
    """None for sampling and roots."""
    why: str = ""
    """Why an answer was not taken as it was, for people; empty where it was."""


class QuestionDesk(Protocol):
    """The one place through which questions of servers pass."""

    async def ask(self, question: Question, client: ClientDoor | None) -> JsonObject:
        """The raw result for the server. Raises PeerRefusal."""
        ...

    def sink(self, client: ClientDoor | None = None) -> QuestionSink:
        """The same for one client, as the supervisor takes it."""
        ...

    def has_handler(self, server: str, tool: str | None) -> bool:
        """Whether a handler answers elicitations of such a call where its client cannot be asked."""
        ...
