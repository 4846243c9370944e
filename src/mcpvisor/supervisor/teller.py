"""Owns what the parts that tell of a server need to do so: its name, a way out for events, and its words made fit for them."""

from __future__ import annotations

from typing import AnyStr, Protocol

from mcpvisor.supervisor import events
from mcpvisor.supervisor.masking import Mask


class Teller(Protocol):
    """Who keeps and hands on the events of one server."""

    server: str
    generation: int
    """The newest one."""
    mask: Mask
    cause: str
    """The cause of the newest failure; empty where there was none since the server was last ready."""

    def emit(self, event: events.Event) -> None:
        """Keep an event for `explain` and hand it to everybody."""
        ...

    def clean(self, text: AnyStr, limit: int) -> str:
        """Words of the server without secrets and control characters, cut to so many characters."""
        ...
