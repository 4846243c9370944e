"""Owns the handler that starts a program for each event."""

from __future__ import annotations

from mcpvisor.daemon.handlers.contract import HandlerEvent
from mcpvisor.daemon.handlers.program import Programs
from mcpvisor.supervisor.transports.codec import encode

_MOST_VARIABLE = 64 * 1024
"""Bytes of one variable; Linux takes 128 KiB. A longer value is on stdin alone."""


class ExecHandler:
    """Gives each event to a run of its program, as JSON on stdin and in the environment; exit code 0 means handled."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    async def deliver(self, event: HandlerEvent) -> None:
        """See `EventHandler`."""
        await self._programs.run(encode(event.as_json()) + b"\n", variables_of(event))


def variables_of(event: HandlerEvent) -> dict[str, str]:
    """`MCPVISOR_EVENT_ID`, `_KIND`, `_SERVER`, `_AT`, `_COALESCED`, and one for each plain value of the event's data."""
    values: dict[str, object] = {
        "ID": event.id,
        "KIND": event.kind,
        "SERVER": event.server,
        "AT": event.at,
        "COALESCED": event.coalesced,
        **{key.upper(): value for key, value in event.data.items() if isinstance(value, str | int | float)},
    }
    shown = {f"MCPVISOR_EVENT_{name}": _written(value) for name, value in values.items()}
    return {name: text for name, text in shown.items() if "\x00" not in text and len(text.encode()) <= _MOST_VARIABLE}


def _written(value: object) -> str:
    """A value as a variable holds it; half characters, which no environment takes, are replaced."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "replace").decode()
