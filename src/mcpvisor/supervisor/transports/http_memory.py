"""Owns what of an HTTP server outlives its generations: its cookies, and the sessions that could not be ended in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mcpvisor.supervisor.transports.address import Origin
from mcpvisor.supervisor.transports.cookies import CookieJar

MAX_UNENDED: Final = 8
"""Sessions that are remembered; the oldest go first, and run out at the server."""

LEAST_GIVEN: Final = 16
"""Characters from which on a session's id, a cookie or an event's id counts as a secret: shorter ones can be guessed."""

Learn = Callable[[Iterable[str]], None]
"""Takes what must not be shown."""


class HttpMemory:
    """What is kept of one server. It is bound to one origin, and forgotten when the entry names another."""

    def __init__(self, learn: Learn = lambda _: None) -> None:
        """`learn` takes what the server gives to be known again by: whoever has it could speak in our name."""
        self._learn = learn
        self.jar = CookieJar(self.given)
        self._origin: Origin | None = None
        self._unended: list[Mapping[str, str]] = []

    def bind(self, origin: Origin) -> None:
        """The origin that is spoken to from now on."""
        if origin != self._origin:
            self.jar, self._unended = CookieJar(self.given), []
        self._origin = origin

    def given(self, *values: str) -> None:
        """The server has given these to be sent back to it."""
        if told := [value for value in values if len(value) >= LEAST_GIVEN]:
            self._learn(told)

    def owe(self, session: Mapping[str, str]) -> None:
        """Remember a session, by the headers that name it: it may still stand, and nobody could be told of its end."""
        self._unended = [*self._unended, session][-MAX_UNENDED:]

    def next_owed(self) -> Mapping[str, str] | None:
        """Take the oldest of those sessions; None when there is none."""
        return self._unended.pop(0) if self._unended else None
