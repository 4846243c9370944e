"""Owns what handlers are told: which events of the supervisor they are, in which words, and what of them is routed by."""

from __future__ import annotations

import secrets
from typing import Any, Final

from mcpvisor.daemon.handlers.contract import EventKind, HandlerEvent, JsonObject
from mcpvisor.daemon.handlers.routing import Subject
from mcpvisor.supervisor.cleaning import clip
from mcpvisor.supervisor.events import CatalogChanged, Event, ResourceUpdated, ServerNotified, ServerStateChanged
from mcpvisor.supervisor.transports.codec import encode

MOST_DATA: Final = 64 * 1024
"""Bytes of JSON of what a server has put into a log message or into progress; more is cut, and told as a text."""

MESSAGE_METHOD: Final = "notifications/message"


def kind_of(event: Event) -> EventKind | None:
    """What an event is for handlers; None for what is none of theirs. Asked of every event, so it looks at types alone."""
    if isinstance(event, ServerNotified):
        return "log_message" if event.method == MESSAGE_METHOD else None
    if isinstance(event, ServerStateChanged):
        return "state_changed" if event.old is not event.new else None
    if isinstance(event, ResourceUpdated):
        return "resource_updated"
    return "list_changed" if isinstance(event, CatalogChanged) else None


def told_of(event: Event) -> HandlerEvent | None:
    """The event as handlers get it, with a new id; None for what is none of theirs."""
    match event:
        case ResourceUpdated():
            return made("resource_updated", event.server, {"uri": event.uri, "reason": event.reason}, event.at)
        case CatalogChanged():
            return made("list_changed", event.server, {"list": event.kind, "count": event.count}, event.at)
        case ServerStateChanged() if event.old is not event.new:
            moved = {"old": event.old.value, "new": event.new.value, "reason": event.reason}
            return made("state_changed", event.server, moved, event.at)
        case ServerNotified() if event.method == MESSAGE_METHOD:
            params = event.params
            data: JsonObject = {"level": params.get("level"), "logger": params.get("logger"), "data": params.get("data")}
            return made("log_message", event.server, data, event.at)
        case _:
            return None


def told_of_progress(server: str, tool: str | None, progress: JsonObject, at: float) -> HandlerEvent:
    """The progress of one request; `call` tells requests of one server apart."""
    data = {
        "tool": tool,
        "call": str(progress.get("progressToken")),
        "progress": progress.get("progress"),
        "total": progress.get("total"),
        "message": progress.get("message"),
    }
    return made("progress", server, data, at)


def made(kind: EventKind, server: str, data: JsonObject, at: float) -> HandlerEvent:
    """A new event, with an id of its own; `at` in wall-clock seconds."""
    return HandlerEvent(id=secrets.token_hex(16), kind=kind, server=server, at=at, data=_bounded(data))


def subject_of(event: HandlerEvent) -> Subject:
    """What an event is routed by."""
    return Subject(
        kind=event.kind,
        server=event.server,
        uri=_text(event.data.get("uri")),
        tool=_text(event.data.get("tool")),
        level=_text(event.data.get("level")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _bounded(data: JsonObject) -> JsonObject:
    """The data with no part in it that is larger than an event may be."""
    if len(encode(data)) <= MOST_DATA:
        return data
    share = MOST_DATA // max(1, len(data))
    return {key: value if len(encode(value)) <= share else _cut(value, share) for key, value in data.items()}


def _cut(value: Any, most: int) -> str:
    """The begin of a text, or of the JSON of what is none, as a text of at most so many bytes of JSON."""
    text = value if isinstance(value, str) else encode(value).decode()
    length = most
    while len(encode(shown := clip(text, length))) > most:
        length = length * 3 // 4
    return shown
