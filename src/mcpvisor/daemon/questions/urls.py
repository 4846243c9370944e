"""Owns which addresses a person may be sent to, and what they are warned of. No address is ever fetched or opened here."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from mcpvisor.daemon.questions.wording import shown

MOST_URL: Final = 2048

_LETTERS: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")
"""Those of RFC 3986. A browser reads a backslash as a slash, and drops line ends: what is shown would not be what is opened."""
_LABELS: Final = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_MOST_HOST: Final = 253
_PUNYCODE: Final = "xn--"


class UnsafeUrl(Exception):
    """An address that nobody is sent to; the text says why, and is clean."""


def check_url(url: object) -> str:
    """What a person has to know of an address beyond reading it; empty where it is plain. Raises UnsafeUrl."""
    if not isinstance(url, str) or not url:
        raise UnsafeUrl("it has no URL")
    if len(url) > MOST_URL:
        raise UnsafeUrl(f"its URL has more than {MOST_URL} characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise UnsafeUrl("its URL cannot be read") from None
    if "@" in parts.netloc:
        raise UnsafeUrl("its URL names a user before the host")
    # The scheme and the host are compared with what is written: urlsplit drops characters on its own account.
    if not url.lower().startswith((f"https://{parts.netloc.lower()}", f"http://{parts.netloc.lower()}")) or port == 0:
        raise UnsafeUrl("its URL must begin with https:// and a host")
    if _LETTERS.fullmatch(_without_host(url, host)) is None:
        raise UnsafeUrl("its URL has characters that no URL has")
    warning = _warning(host)
    if parts.scheme == "http" and not _is_loopback(host):
        raise UnsafeUrl("its URL is not https, and does not lead to this machine")
    return warning


def _without_host(url: str, host: str) -> str:
    """The URL without the first mention of its host, which alone may have letters of other alphabets."""
    start = url.lower().find(host)
    return url if start < 0 else url[:start] + url[start + len(host) :]


def _warning(host: str) -> str:
    if ":" in host:
        return _of_address(host)
    if len(host) > _MOST_HOST:
        raise UnsafeUrl("the host of its URL is too long")
    if not host.isascii():
        return f"beware: the host is not written in plain letters, it is {_in_ascii(host)}"
    if _LABELS.fullmatch(host) is None:
        raise UnsafeUrl("the host of its URL is none")
    if _PUNYCODE not in host:
        return ""
    return f"beware: the host {host} stands for {_in_letters(host)}"


def _of_address(host: str) -> str:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise UnsafeUrl("the host of its URL is none") from None
    return ""


def _in_ascii(host: str) -> str:
    try:
        written = host.encode("idna").decode("ascii")
    except UnicodeError:
        written = ""
    if not written or _LABELS.fullmatch(written) is None:
        raise UnsafeUrl("the host of its URL is none")
    return written


def _in_letters(host: str) -> str:
    """The host as a browser may show it, made fit to be shown."""
    labels = [_label(one) for one in host.split(".")]
    return shown(".".join(labels), _MOST_HOST) or "a name that cannot be shown"


def _label(label: str) -> str:
    if not label.startswith(_PUNYCODE):
        return label
    try:
        return label.removeprefix(_PUNYCODE).encode("ascii").decode("punycode")
    except UnicodeError:
        return label


def _is_loopback(host: str) -> bool:
    if host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
