"""What a server offers, as its lists said it, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

JsonObject = dict[str, Any]

MAX_OFFER: Final = 16 * 1024 * 1024
"""Bytes of JSON of an offer; a larger one is not kept, and after a restart such a server is waited for as a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The checked entries of a server's lists, raw, and what it said of itself when the session was opened."""

    tools: tuple[JsonObject, ...] = ()
    resources: tuple[JsonObject, ...] = ()
    resource_templates: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()
    capabilities: JsonObject = field(default_factory=dict[str, Any])
    server_info: JsonObject = field(default_factory=dict[str, Any])
    instructions: str = ""


NOTHING = Offer()
"""The offer of a server that was never reached."""
