"""Owns what is taken out of a log record before it is queued: secrets, credentials in headers and in URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from mcpvisor.supervisor.secret import MASK, Secret

TEXT_CHARACTERS: Final = 64 * 1024
"""A longer text is cut: one record must not fill the queue."""
ITEMS: Final = 200
DEPTH: Final = 6

SECRET_NAMES: Final = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "x-api-key",
        "api-key",
        "mcp-session-id",
        "access-token",
        "refresh-token",
        "id-token",
        "client-secret",
        "password",
        "secret",
        "token",
    }
)
"""Header and key names, lower case with `-` for `_`, whose values are never shown."""

_HEADER: Final = re.compile(
    r"(?i)\b((?:proxy[-_])?authorization|(?:set[-_])?cookie|(?:x[-_])?api[-_]key|mcp[-_]session[-_]id)"
    r"(['\"]?\s*[:=,]\s*)(?!\s)[^\r\n]+"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{4,}")
_USERINFO: Final = re.compile(r"(?i)(?<=[a-z0-9+.-]://)[^\s/?#]*@")
"""Looks back from `://` instead of ahead from each word, which took as many steps as a long text has characters, squared."""
_QUERY: Final = re.compile(r"(?i)([?&](?:[\w-]*token|[\w-]*secret|password|api[-_]?key|key|sig|signature|code)=)[^\s&#\"']+")


def clean_text(text: str) -> str:
    """The text without credentials: header values, bearer tokens, the user part and secret parameters of URLs."""
    if len(text) > TEXT_CHARACTERS:
        text = f"{text[:TEXT_CHARACTERS]}... ({len(text) - TEXT_CHARACTERS} characters cut)"
    if "@" in text and "://" in text:
        text = _USERINFO.sub(f"{MASK}@", text)
    if "=" in text:
        text = _QUERY.sub(rf"\1{MASK}", text)
    if ":" in text or "=" in text or "," in text:
        text = _HEADER.sub(rf"\1\2{MASK}", text)
    return _BEARER.sub(rf"\1 {MASK}", text)


def is_secret_name(name: object) -> bool:
    """Whether a value of that name is never shown."""
    return isinstance(name, str) and name.lower().replace("_", "-") in SECRET_NAMES


def clean(value: Any, depth: int = DEPTH) -> Any:
    """A copy of plain values without secrets; whatever is no plain value becomes its text, then is cleaned as one."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, str):
        return clean_text(str(value))
    if depth == 0:
        return "..."
    if isinstance(value, Mapping):
        return {
            clean_text(str(key)): MASK if is_secret_name(key) else clean(item, depth - 1)
            for key, item in list(value.items())[:ITEMS]
        }
    if isinstance(value, tuple) and len(value) == 2 and is_secret_name(value[0]):
        return [value[0], MASK]  # a header as a pair
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item, depth - 1) for item in list(value)[:ITEMS]]
    return clean_text(str(value))


def redact(_logger: object, _method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The structlog processor: every value of the record, whatever its name, is cleaned."""
    return {name: MASK if is_secret_name(name) else clean(value) for name, value in event_dict.items()}
