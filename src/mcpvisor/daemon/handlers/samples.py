"""Owns what a test event holds: all that a real one of its kind does, so that whoever takes events can take it too. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpvisor.daemon.handlers.contract import EventKind, HandlerEvent, JsonObject
from mcpvisor.daemon.handlers.sources import made

_SAID: Final = "a test event"

SAMPLES: Final[Mapping[EventKind, JsonObject]] = {
    "resource_updated": {"uri": None, "reason": "notified"},
    "list_changed": {"list": "tools", "count": 0},
    "state_changed": {"old": "ready", "new": "ready", "reason": _SAID},
    "log_message": {"level": "info", "logger": None, "data": _SAID},
    "progress": {"tool": None, "call": "test", "progress": 1, "total": 1, "message": _SAID},
    "elicitation": {"tool": None},
}
"""The data of each kind, by the names that docs/handlers.md has. A question's is what it is routed by: nobody gets one."""


def sample_event(kind: EventKind, server: str, data: JsonObject, at: float) -> HandlerEvent:
    """An event of a kind with `data` in place of the sample's, marked by `test`; `at` in wall-clock seconds.

    Raises ValueError for data that no event of the kind has, and where it lacks the URI that only the caller can know.
    """
    sample = SAMPLES[kind]
    if strange := [key for key in data if key not in sample]:
        raise ValueError(f"an event of kind {kind} has no {strange[0]!r}; its data is: {', '.join(sample)}")
    told: dict[str, Any] = {**sample, **data}
    if kind == "resource_updated" and not isinstance(told["uri"], str):
        raise ValueError("a resource_updated is of a resource: give its 'uri'")
    return made(kind, server, {**told, "test": True}, at)
