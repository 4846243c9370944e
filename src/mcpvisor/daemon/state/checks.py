"""Owns what is asked of each field that is read from the state file: somebody may have edited it. All raise ValueError."""

from __future__ import annotations

from typing import Any, Final

from mcpvisor.supervisor.transports.codec import decode

_LATEST: Final = 250_000_000_000.0
"""Wall-clock seconds that every calendar can still say, in any time zone."""


class NotOurs(ValueError):
    """A field that no mcpvisor has written."""


def text(value: object) -> str:
    """A text that JSON can say."""
    if not isinstance(value, str):
        raise NotOurs("no text")
    value.encode()
    return value


def moment(value: object) -> float:
    """Wall-clock seconds since the epoch."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise NotOurs("no time")
    return value


def flag(value: object) -> bool:
    """A number that stands for whether."""
    if not isinstance(value, int):
        raise NotOurs("no flag")
    return bool(value)


def json_object(data: object, max_bytes: int) -> dict[str, Any]:
    """An object from its JSON text."""
    if not isinstance(data, bytes | str):
        raise NotOurs("no JSON text")
    value = decode(data.encode() if isinstance(data, str) else data, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise NotOurs("no JSON object")
    return value
