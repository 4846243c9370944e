"""Owns what is taken out of a log record before it is queued: secrets, credentials in headers and in URLs."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from mcpvisor.supervisor.secret import MASK, Secret
from mcpvisor.supervisor.secret_looks import without_credentials
from mcpvisor.supervisor.secret_names import field_names_secret

TEXT_CHARACTERS: Final = 64 * 1024
"""A longer text is cut: one record must not fill the queue."""
ITEMS: Final = 200
DEPTH: Final = 6


def clean_text(text: str) -> str:
    """The text without credentials: header values, bearer tokens, the user part and secret parameters of URLs."""
    if len(text) > TEXT_CHARACTERS:
        text = f"{text[:TEXT_CHARACTERS]}... ({len(text) - TEXT_CHARACTERS} characters cut)"
    return without_credentials(text)


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
            clean_text(str(key)): MASK if field_names_secret(key) else clean(item, depth - 1)
            for key, item in list(value.items())[:ITEMS]
        }
    if isinstance(value, tuple) and len(value) == 2 and field_names_secret(value[0]):
        return [value[0], MASK]  # a header as a pair
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item, depth - 1) for item in list(value)[:ITEMS]]
    return clean_text(str(value))


def redact(_logger: object, _method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The structlog processor: every value of the record, whatever its name, is cleaned."""
    return {name: MASK if field_names_secret(name) else clean(value) for name, value in event_dict.items()}
