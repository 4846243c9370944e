"""Owns which log level clients want: each session's own, and the one that servers are asked for on behalf of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from mcpvisor.supervisor.log_level import LEVELS

DEFAULT_LEVEL: Final = "info"
"""What a client of the handshake era gets before it has asked for a level."""

MESSAGE_METHOD: Final = "notifications/message"

Want = Callable[[str | None], None]
"""Asks all servers for a level; None where no client has asked for one."""


def admits(wanted: str | None, level: Any) -> bool:
    """Whether a message of `level` is sent to a session that wants `wanted` and above; an unknown level counts as `info`."""
    return LEVELS.index(level if level in LEVELS else DEFAULT_LEVEL) >= LEVELS.index(wanted or DEFAULT_LEVEL)


def named(server: str, params: dict[str, Any]) -> dict[str, Any]:
    """A server's log message with the server named in it: clients see one logger per server."""
    logger = params.get("logger")
    return {**params, "logger": f"{server}/{logger}" if isinstance(logger, str) and logger else server}


class SessionWish:
    """What one session wants to be told, and counts for until it ends; None before it has said so."""

    def __init__(self, count: Callable[[str | None, int], None]) -> None:
        self.level: str | None = None
        self._count = count
        self._has_ended = False
        count(None, 1)

    def change(self, level: str) -> None:
        """The client asked for this level."""
        former, self.level = self.level, level
        if not self._has_ended:  # a request may outlive its session by a moment
            self._count(level, 1)
            self._count(former, -1)

    def end(self) -> None:
        """The session is over; a second time is no error."""
        if not self._has_ended:
            self._has_ended = True
            self._count(self.level, -1)


class LevelWishes:
    """The wishes of all open sessions. Servers are asked for the most verbose one, as soon as it is another than before.

    A session that never asked counts as `info` beside those that did: nobody's wish for less takes away what it gets.
    """

    def __init__(self, want: Want) -> None:
        self._want = want
        self._sessions: Counter[str | None] = Counter()
        self._wanted: str | None = None

    def open(self) -> SessionWish:
        """The wish of a new session."""
        return SessionWish(self._count)

    def _count(self, level: str | None, by: int) -> None:
        self._sessions[level] += by
        levels = {level for level, sessions in self._sessions.items() if sessions}
        wanted = min((level or DEFAULT_LEVEL for level in levels), key=LEVELS.index) if levels - {None} else None
        if wanted != self._wanted:
            self._wanted = wanted
            self._want(wanted)
