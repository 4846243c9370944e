"""What a server offers, as its lists said it, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]


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
