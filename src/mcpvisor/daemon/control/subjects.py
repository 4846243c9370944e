"""Owns how an event that nobody has sent is asked about in the control API: what it is, and whom it would reach."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from mcpvisor.daemon.control.requests import invalid, text_of
from mcpvisor.daemon.handlers.contract import EventKind
from mcpvisor.daemon.handlers.routing import KINDS, Routing, Subject

_TEXTS: Final = ("uri", "tool", "level")


def subject_asked(event: Any) -> Subject:
    """What `{"kind", "server", "uri", "tool", "level"}` is routed by. Raises ApiError."""
    if not isinstance(event, dict):
        raise invalid("FIELD", "'event' must be an object")
    kind, server = text_of(event, "kind"), text_of(event, "server")
    if not _is_kind(kind):
        raise invalid("FIELD", f"no kind of event is called {kind!r}: {', '.join(KINDS)}")
    texts = {key: text_of(event, key) for key in _TEXTS if event.get(key) is not None}
    return Subject(kind=kind, server=server, uri=texts.get("uri"), tool=texts.get("tool"), level=texts.get("level"))


def _is_kind(word: str) -> TypeGuard[EventKind]:
    return word in KINDS


def ways_view(routing: Routing, subject: Subject) -> list[dict[str, str]]:
    """The handlers that such an event would reach, each with the place of its route."""
    return [{"handler": way.handler, "route": way.origin} for way in routing.ways(subject)]
