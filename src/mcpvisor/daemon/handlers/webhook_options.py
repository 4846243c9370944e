"""Owns what can be said of a handler that is an HTTP address."""

from __future__ import annotations

from dataclasses import dataclass

from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """`type = "webhook"`: each event is one signed POST."""

    url: Text
    secret: Secret | None = None
    """What requests are signed with."""
    headers: tuple[tuple[str, Text], ...] = ()
    ca: str | None = None
    """A file of certificates that are trusted for this address instead of the system's."""
