"""Owns what an HTTP address is for a wire: an origin and a path on it, and which redirects stay within that origin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.secret import MASK, Secret, reveal

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_KEPT: Final = "!#$%&'()*+,/:;=?@[]~-._"
"""Characters of a path that are sent as they were written; all others are percent-encoded."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port: what cookies, credentials and sessions are bound to."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The value of the Host header: the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go: `path` is the request target, query included, and starts with a slash.

    Printed without its query, and without its path where a secret went into it.
    """

    origin: Origin
    path: str
    is_secret: bool = False

    def __str__(self) -> str:
        return f"{self.origin}/{MASK}" if self.is_secret else f"{self.origin}{self.path.partition('?')[0]}"


def parse_address(text: str | Secret) -> Address:
    """The address of an `http` or `https` URL; a fragment is cut. Raises SpecError, with the remedy."""
    is_secret = isinstance(text, Secret)
    try:
        return replace(_parse(reveal(text)), is_secret=is_secret)
    except SpecError as error:
        if is_secret:
            raise SpecError("url, which a secret went into, is no valid http address") from None
        raise error from None


def _parse(url: str) -> Address:
    if any(character <= " " or character == "\x7f" for character in url):
        raise SpecError(f"url {url!r} holds a space or a control character: remove it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SpecError(f"url {url!r} cannot be read ({error}): write it as https://host:port/path") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise SpecError(f"url {url!r} does not start with http:// or https://")
    if not parts.hostname:
        raise SpecError(f"url {url!r} names no host")
    if parts.username is not None:
        raise SpecError("url holds a user name or a password: give them as a header or as a bearer token")
    origin = Origin(parts.scheme, _ascii_host(parts.hostname), _DEFAULT_PORTS[parts.scheme] if port is None else port)
    path = quote(parts.path or "/", safe=_KEPT)
    return Address(origin, f"{path}?{quote(parts.query, safe=_KEPT)}" if parts.query else path)


def _ascii_host(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise SpecError(f"host {host!r} is no valid name") from None


def join_address(base: Address, location: str) -> Address | None:
    """The address that `location` names, seen from `base`; None where it cannot be read."""
    try:
        joined = _parse(urljoin(f"{base.origin}{base.path}", location.strip()))
    except (SpecError, ValueError):
        return None
    return replace(joined, is_secret=base.is_secret and joined.origin == base.origin)
