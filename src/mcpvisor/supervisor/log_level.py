"""Owns the log level that is wanted of one server, over all its generations, and how each session is brought to it."""

from __future__ import annotations

from typing import Final, Protocol

import anyio

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.listing import Ask
from mcpvisor.supervisor.sdk import Handshake

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The most verbose first."""

AT_REST: Final = "info"
"""What a session is set to when nobody wants a level any more: the protocol knows no way to take one back."""

SETTLE: Final = 0.1
"""Seconds for which further changes of the wanted level are gathered before a session is told."""

ANSWER_SECONDS: Final = 5.0
"""How long a server may take to answer; it holds up the lists of a new session no longer."""

RETRY: Final = 5.0
RETRY_MAX: Final = 60.0


class LevelWatcher(Protocol):
    """Who is told when a server does not take a level."""

    def log_level_asked(self, level: str, why: str) -> None:
        """The server did not take the level, and why; or it took it after all, and `why` is empty."""
        ...


class WantedLevel:
    """The level that is wanted of one server; None where nobody wants any."""

    def __init__(self, watcher: LevelWatcher) -> None:
        self.level: str | None = None
        self.changed = anyio.Event()
        """Set, and replaced, each time another level is wanted."""
        self.watcher = watcher

    def want(self, level: str | None) -> None:
        """Want this level from now on."""
        if level != self.level:
            self.level = level
            changed, self.changed = self.changed, anyio.Event()
            changed.set()


class SessionLevel:
    """One session's level. A session of the newer era has none: there the level is a matter of each request."""

    def __init__(self, wanted: WantedLevel, handshake: Handshake, ask: Ask) -> None:
        self._wanted = wanted
        self._ask = ask
        self._has_levels = not handshake.modern and "logging" in handshake.capabilities
        self._asked: str | None = None
        """The level that the session was asked for last."""
        self._failure = ""
        """Why it did not take that one; empty when it did."""

    @property
    def refused(self) -> tuple[str, str]:
        """Which level the session does not take, and why; two empty texts where it takes what is wanted."""
        return (self._asked or "", self._failure) if self._failure else ("", "")

    async def bring(self) -> None:
        """Ask for the wanted level, if it is another than last time or failed then; a failure is kept for `follow`."""
        level = self._due()
        if level == self._asked and not self._failure:
            return
        assert level is not None  # once a level was asked for, there always is one
        self._asked = level
        failure = await self._failure_of(level)
        if failure != self._failure:
            self._wanted.watcher.log_level_asked(level, failure)
        self._failure = failure

    async def follow(self) -> None:
        """Ask again whenever another level is wanted, and for what failed; one request at a time, until cancelled."""
        delay = RETRY
        while True:
            changed = self._wanted.changed
            if self._due() == self._asked:
                with anyio.move_on_after(delay if self._failure else None):
                    await changed.wait()
            await anyio.sleep(SETTLE)
            await self.bring()
            delay = min(delay * 2, RETRY_MAX) if self._failure else RETRY

    def _due(self) -> str | None:
        if not self._has_levels:
            return None
        return self._wanted.level or (AT_REST if self._asked is not None else None)

    async def _failure_of(self, level: str) -> str:
        with anyio.move_on_after(ANSWER_SECONDS):
            try:
                await self._ask("logging/setLevel", {"level": level})
            except RequestFailed as failure:
                return failure.message
            return ""
        return f"no answer within {ANSWER_SECONDS:g} s"
