"""Cookies: kept for one origin, sent back by path and date, bounded."""

from __future__ import annotations

import pytest

from mcpvisor.supervisor.transports.cookies import MAX_COOKIES, CookieJar

NOW = 1_800_000_000.0


def sent(line: str, *, at: str = "/a/mcp", to: str = "/a/mcp", later: float = 0.0) -> str:
    jar = CookieJar()
    jar.store([line], at, NOW)
    return jar.header(to, NOW + later)


@pytest.mark.parametrize(
    ("line", "options", "expected"),
    [
        ("lb=1", {}, "lb=1"),
        ("lb=1; Path=/; Secure; HttpOnly; SameSite=Lax; Partitioned", {}, "lb=1"),
        ('lb="a b"', {}, 'lb="a b"'),
        ("lb=1", {"to": "/b"}, ""),
        ("lb=1; Path=/a", {"to": "/a"}, "lb=1"),
        ("lb=1; Path=/a", {"to": "/ab"}, ""),
        ("lb=1; Max-Age=10", {"later": 9}, "lb=1"),
        ("lb=1; Max-Age=10", {"later": 10}, ""),
        ("lb=1; Max-Age=0", {}, ""),
        ("lb=1; Max-Age=-5", {}, ""),
        ("lb=1; Max-Age=--5", {"later": 1e9}, "lb=1"),
        ("lb=1; Max-Age=5-", {"later": 1e9}, "lb=1"),
        ("lb=1; Expires=Fri, 15 Jan 2027 08:00:30 GMT", {"later": 29}, "lb=1"),
        ("lb=1; Expires=Fri, 15 Jan 2027 08:00:30 GMT", {"later": 31}, ""),
        ("lb=1; Expires=whenever; Max-Age=x", {}, "lb=1"),
        ("no pair", {}, ""),
        ("=value", {}, ""),
        ("lb=\x01", {}, ""),
        ("lb=" + "x" * 5000, {}, ""),
    ],
)
def test_cookie(line: str, options: dict, expected: str) -> None:
    """A cookie comes back where its path and date say so; a malformed one never does."""
    assert expected == sent(line, **options)


def test_nothing_in_a_cookie_raises() -> None:
    """Whatever a server writes where numbers, dates and paths stand, the cookie is taken or left out."""
    odd = ["", "-", "--5", "5-", "+5", "\u0663", "\u00b2", "9" * 15, "9" * 400, "1e9", "nan", "99 Jan 99999",
           "31 Feb 2026 24:61:61 +9999", "Mon, 01 Jan 0000 00:00:00 GMT", ":::",
           "12:00:00 -99999999", "\x00", "\ud800", "(", '"']  # fmt: skip
    jar = CookieJar()
    for key in ("Max-Age", "Expires", "Path", "Other", ""):
        for first in odd:
            jar.store([f"a=b; {key}={first} {second}" for second in odd], "/mcp", NOW)
            jar.store([f"{first}=b; {key}", f"a={first}; {key}"], "/mcp", NOW)
            jar.header("/mcp", NOW)


def test_replaced_and_removed() -> None:
    """A cookie of the same name and path takes the place of the old one; one that is over removes it."""
    jar = CookieJar()
    jar.store(["lb=1; Path=/", "other=x; Path=/"], "/", NOW)
    jar.store(["lb=2; Path=/"], "/", NOW)

    assert "other=x; lb=2" == jar.header("/mcp?q", NOW)

    jar.store(["lb=; Path=/; Max-Age=0"], "/", NOW)

    assert "other=x" == jar.header("/mcp", NOW)


def test_bounded() -> None:
    """A server cannot fill the jar without end."""
    jar = CookieJar()
    jar.store([f"c{n}=1; Path=/" for n in range(1000)], "/", NOW)

    assert MAX_COOKIES == jar.header("/", NOW).count("=")
