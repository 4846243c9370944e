"""Owns the forms in which a header command prints its headers: JSON, or lines. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from mcpvisor.supervisor.auth.credential import Credential, printed_credential
from mcpvisor.supervisor.auth.token import LONGEST_LIFE

DEFAULT_LIFE: Final = 300.0
"""Seconds for which headers are used whose command does not say how long they are good."""

WHERE: Final = "header_command"


def read_printed(output: bytes, now: float) -> tuple[Credential, float]:
    """The headers, and their wall-clock expiry. Raises ValueError, which names the fault and never what was printed.

    JSON is `{"headers": {...}, "expires_in": seconds}` or `"expires_at"` (seconds since the epoch, or an ISO 8601 time), or the
    headers alone; anything else is lines of `Name: value`.
    """
    try:
        text = output.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{WHERE}: printed what is no UTF-8") from None
    if text.lstrip()[:1] == "{":
        told = _json(text)
        expires_at = _expiry(told, now) if "headers" in told else now + DEFAULT_LIFE
        headers = told.get("headers", told)
    else:
        headers, expires_at = _lines(text), now + DEFAULT_LIFE
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise ValueError(f'{WHERE}: "headers" is not an object of texts')
    if not headers:
        raise ValueError(f"{WHERE}: printed no headers")
    return printed_credential(headers, WHERE), expires_at


def _json(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{WHERE}: printed what begins like JSON and is none") from None
    return told if isinstance(told, dict) else {}


def _lines(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon:
            raise ValueError(f"{WHERE}: line {number} of its output is no `Name: value`")
        headers[name.strip()] = value.strip()
    return headers


def _expiry(told: dict[str, Any], now: float) -> float:
    life, moment = told.get("expires_in"), told.get("expires_at")
    try:
        if life is not None:
            expires_at = now + float(life)
        elif isinstance(moment, str):
            expires_at = datetime.fromisoformat(moment).timestamp()
        else:
            expires_at = now + DEFAULT_LIFE if moment is None else float(moment)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{WHERE}: expires_in is a number of seconds, expires_at a time") from None
    if not now < expires_at < float("inf"):
        raise ValueError(f"{WHERE}: what it printed has expired already")
    return min(expires_at, now + LONGEST_LIFE)
