"""Owns the order of log levels and what a client gets before it has asked for a level."""

from __future__ import annotations

from typing import Any, Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DEFAULT_LEVEL: Final = "info"

MESSAGE_METHOD: Final = "notifications/message"


def admits(wanted: str, level: Any) -> bool:
    """Whether a message of `level` is sent to a client that wants `wanted` and above; an unknown level counts as `info`."""
    return LEVELS.index(level if level in LEVELS else DEFAULT_LEVEL) >= LEVELS.index(wanted)


def named(server: str, params: dict[str, Any]) -> dict[str, Any]:
    """A server's log message with the server named in it: clients see one logger per server."""
    logger = params.get("logger")
    return {**params, "logger": f"{server}/{logger}" if isinstance(logger, str) and logger else server}
