"""Owns the cookies of one server: what its origin set, sent back to that origin only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

MAX_COOKIES: Final = 50
MAX_COOKIE: Final = 4096

_SECONDS: Final = re.compile(r"-?[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Cookie:
    """One cookie as it is sent back; `expires` in wall-clock seconds, None for the life of the jar."""

    name: str
    value: str
    path: str
    expires: float | None

    def applies(self, path: str, now: float) -> bool:
        """Whether it goes with a request for `path` (RFC 6265, section 5.1.4)."""
        if self.expires is not None and self.expires <= now:
            return False
        return path == self.path or path.startswith(self.path if self.path.endswith("/") else self.path + "/")


class CookieJar:
    """The cookies of one origin. Load balancers keep a session on its replica by them.

    `Domain` is not looked at, since nothing is ever sent to another host; `Secure` neither, since the scheme cannot change.
    """

    def __init__(self, on_value: Callable[[str], None] = lambda _: None) -> None:
        """`on_value` takes each value that is to be sent back."""
        self._on_value = on_value
        self._cookies: dict[tuple[str, str], Cookie] = {}

    def store(self, lines: list[str], request_path: str, now: float) -> None:
        """Take `Set-Cookie` values; what is malformed or over a limit is left out."""
        for line in lines:
            cookie = _parse(line, request_path.partition("?")[0], now) if len(line) <= MAX_COOKIE else None
            if cookie is None:
                continue
            key = (cookie.name, cookie.path)
            self._cookies.pop(key, None)
            if cookie.expires is not None and cookie.expires <= now:
                continue
            if len(self._cookies) >= MAX_COOKIES:
                del self._cookies[next(iter(self._cookies))]
            self._cookies[key] = cookie
            self._on_value(cookie.value)

    def header(self, request_path: str, now: float) -> str:
        """The `Cookie` value for a request; empty where there is none."""
        if not self._cookies:
            return ""
        path = request_path.partition("?")[0]
        return "; ".join(f"{one.name}={one.value}" for one in self._cookies.values() if one.applies(path, now))


def _parse(line: str, request_path: str, now: float) -> Cookie | None:
    """One `Set-Cookie` value (RFC 6265, section 5.2); unknown attributes are skipped.

    Done by hand since http.cookies gives up on attributes it does not know, such as `Partitioned`.
    """
    pair, *attributes = line.split(";")
    name, separator, value = pair.partition("=")
    name, value = name.strip(), value.strip()
    if not separator or not name or not (name + value).isprintable() or not (name + value).isascii():
        return None
    path, expires, max_age = "", None, None
    for attribute in attributes:
        key, _, text = attribute.partition("=")
        match key.strip().lower():
            case "path":
                path = text.strip()
            case "max-age":
                max_age = _seconds(text)
            case "expires":
                expires = _date(text)
            case _:
                pass
    if max_age is not None:
        expires = now + max_age
    return Cookie(name, value, path if path.startswith("/") else _default_path(request_path), expires)


def _default_path(request_path: str) -> str:
    return request_path[: request_path.rfind("/")] or "/"


def _seconds(text: str) -> float | None:
    digits = text.strip()
    return float(digits) if _SECONDS.fullmatch(digits) else None


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None
