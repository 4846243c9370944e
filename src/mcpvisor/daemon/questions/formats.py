"""Owns the formats that a text of a form can have: each is checked in time that is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Final

_MOST_EMAIL: Final = 254
_MOST_LOCAL: Final = 64
_MOST_LABEL: Final = 63

_LOCAL: Final = re.compile(r"[^\s@\x00-\x1f\x7f\"(),:;<>\[\]\\]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def is_email(text: str) -> bool:
    """An address as RFC 5321 has it, without quoted names; the domain may be a name without dots."""
    local, at, domain = text.rpartition("@")
    if not at or len(text) > _MOST_EMAIL or len(local) > _MOST_LOCAL or _LOCAL.fullmatch(local) is None:
        return False
    return all(_is_label(label) for label in domain.split("."))


def is_uri(text: str) -> bool:
    """An absolute URI in the letters of RFC 3986."""
    return _URI.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """A day as RFC 3339 writes it."""
    return _DATE.fullmatch(text) is not None and _reads(date.fromisoformat, text)


def is_date_time(text: str) -> bool:
    """A moment as RFC 3339 writes it, with its offset; the 60th second of a leap minute is one."""
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return False
    day, minute, second, _, offset = found.groups()
    second = "59" if second == "60" else second
    return _reads(datetime.fromisoformat, f"{day}T{minute}:{second}{'+00:00' if offset in 'Zz' else offset}")


def _is_label(label: str) -> bool:
    return 0 < len(label) <= _MOST_LABEL and label.replace("-", "").isalnum() and label[0] != "-" and label[-1] != "-"


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {"email": is_email, "uri": is_uri, "date": is_date, "date-time": is_date_time}
)
"""The formats of the protocol, each with its check."""
