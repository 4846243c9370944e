"""What of an HTTP server outlives its generations, and when it is forgotten."""

from __future__ import annotations

from mcpvisor.supervisor.transports.address import Origin
from mcpvisor.supervisor.transports.http_memory import MAX_UNENDED, HttpMemory

HERE = Origin("https", "a.test", 443)


def test_cookies_and_sessions_stay_with_their_origin() -> None:
    """The next generation finds what the last one left; an entry that names another origin begins with nothing."""
    memory = HttpMemory()
    memory.bind(HERE)
    memory.jar.store(["replica=b; Path=/"], "/mcp", 0.0)
    memory.owe({"mcp-session-id": "s1"})
    memory.bind(HERE)
    kept = memory.jar.header("/mcp", 0.0), memory.next_owed()
    memory.owe({"mcp-session-id": "s2"})
    memory.bind(Origin("https", "b.test", 443))

    assert ("replica=b", {"mcp-session-id": "s1"}) == kept
    assert ("", None) == (memory.jar.header("/mcp", 0.0), memory.next_owed())


def test_sessions_that_are_remembered_are_few() -> None:
    """A server that is away at every end costs no more memory each time: the oldest are forgotten."""
    memory = HttpMemory()
    for number in range(100):
        memory.owe({"mcp-session-id": str(number)})
    owed = list(iter(memory.next_owed, None))

    assert [{"mcp-session-id": str(number)} for number in range(100 - MAX_UNENDED, 100)] == owed


def test_what_names_us_is_told_to_be_secret():
    """Ids and cookies that are long enough not to be guessed, of any origin."""
    learnt: list[str] = []
    memory = HttpMemory(learnt.extend)
    memory.bind(Origin("https", "a.test", 443))
    memory.jar.store(["sid=0123456789abcdef; Path=/", "lang=en"], "/", 0.0)
    memory.given("session-1")
    memory.given("f81d4fae-7dec-11d0", "")

    assert ["0123456789abcdef", "f81d4fae-7dec-11d0"] == learnt
