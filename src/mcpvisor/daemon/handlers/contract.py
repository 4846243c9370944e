"""Owns what a handler is: what it is given, what it answers, and how it says that it could not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

JsonObject = dict[str, Any]

EventKind = Literal["resource_updated", "list_changed", "elicitation", "state_changed", "log_message", "progress"]
"""What can be routed. `elicitation` is a question and has an answer; all others are told, and only have to arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerEvent:
    """One event as handlers get it; `as_json` is what leaves the daemon."""

    id: str
    """The idempotency key: the same for every delivery of this event, also by a later run of the daemon."""
    kind: EventKind
    server: str
    at: float
    """Wall-clock seconds of the first of what was coalesced into it."""
    data: JsonObject = field(default_factory=dict[str, Any])
    """What depends on the kind: `uri` and `reason` of an update, `list` of a change, `old`, `new` and `reason` of a state,
    `level`, `logger` and `data` of a log message, `tool`, `progress`, `total` and `message` of progress."""
    coalesced: int = 1
    """How many events of the server this one stands for."""

    def as_json(self) -> JsonObject:
        """The event as one JSON object, for stdin of a program or the body of a request."""
        return {
            "id": self.id,
            "kind": self.kind,
            "server": self.server,
            "at": self.at,
            "coalesced": self.coalesced,
            "data": self.data,
        }


class DeliveryFailed(Exception):
    """A handler did not take an event; the text is for people and holds no secret."""

    def __init__(self, why: str, *, retry_after: float | None = None, is_final: bool = False, was_tried: bool = True) -> None:
        """`retry_after` in seconds where the receiver named it. `is_final`: trying again would not help.

        Without `was_tried` nobody has seen the event, and the failure says nothing of it.
        """
        super().__init__(why)
        self.retry_after = retry_after
        self.is_final = is_final
        self.was_tried = was_tried


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerQuestion:
    """A question of a server as handlers get it."""

    id: str
    server: str
    mode: Literal["form", "url"]
    message: str
    """What the server says to the person, already under the server's name."""
    schema: JsonObject | None = None
    """The JSON Schema of the wanted content, of a form."""
    url: str | None = None
    tool: str | None = None
    meta: JsonObject = field(default_factory=dict[str, Any])

    def as_json(self) -> JsonObject:
        """The question as one JSON object, of kind `elicitation`."""
        return {
            "id": self.id,
            "kind": "elicitation",
            "server": self.server,
            "mode": self.mode,
            "message": self.message,
            "schema": self.schema,
            "url": self.url,
            "tool": self.tool,
            "meta": self.meta,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAnswer:
    """How a question is answered; `content` only with `accept` of a form. Whoever asked for it validates it."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


class EventHandler(Protocol):
    """Takes events. The engine owns queue, order, deadline, retries and circuit; a handler only delivers one event once."""

    async def deliver(self, event: HandlerEvent) -> None:
        """Return once the event is handled. Raises DeliveryFailed; may be cancelled at its deadline."""
        ...


@runtime_checkable
class SaysTrouble(Protocol):
    """A handler that knows of itself, before any event, that it takes nothing now."""

    @property
    def trouble(self) -> str:
        """Why it takes nothing, in one clause without secrets; empty while it does."""
        ...


@runtime_checkable
class QuestionHandler(Protocol):
    """Answers questions. Whatever it raises is a decline."""

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """The answer. Raises DeliveryFailed; may be cancelled at its deadline."""
        ...
