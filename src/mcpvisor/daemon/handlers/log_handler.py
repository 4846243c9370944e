"""Owns the handler that writes events into the daemon's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcpvisor.daemon.handlers.contract import HandlerEvent
from mcpvisor.daemon.handlers.specs import LogOptions
from mcpvisor.daemon.redaction import clean, clean_text
from mcpvisor.supervisor import cleaning

Emit = Callable[[str, str, dict[str, Any]], None]
"""Level, message, fields; all cleaned of secrets."""

_SHOWN: Final = 500
"""Characters of one value of an event."""


class LogHandler:
    """Writes one line for each event; it never fails and never waits."""

    def __init__(self, name: str, options: LogOptions, emit: Emit) -> None:
        self._name = name
        self._level = options.level.value
        self._emit = emit

    async def deliver(self, event: HandlerEvent) -> None:
        """See `EventHandler`."""
        data = {key: _shown(value) for key, value in event.data.items() if value is not None}
        about = "".join(f" {key}={value}" for key, value in data.items())
        fields = {
            "handler": self._name,
            "server": event.server,
            "event_kind": event.kind,
            "event_id": event.id,
            "coalesced": event.coalesced,
            **{f"event_{key}": value for key, value in data.items()},
        }
        self._emit(self._level, clean_text(f"{event.server}: {event.kind}:{about}"), clean(fields))


def _shown(value: Any) -> str | int | float | bool:
    """A value of a server on one line, with nothing in it that could steer a terminal."""
    if isinstance(value, bool | int | float):
        return value
    return cleaning.clean_text(value if isinstance(value, str) else repr(value), _SHOWN)
