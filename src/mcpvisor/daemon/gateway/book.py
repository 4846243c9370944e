"""Owns which sessions are known beyond the end of a daemon: open ones, and those that sleep until they are used again."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from mcpvisor.daemon.gateway.keeper import SessionKeeper
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.state.kept import KeptSession
from mcpvisor.supervisor.transports.codec import encode

JsonObject = dict[str, Any]

MAX_OPENED_WITH: Final = 4096
"""Bytes of JSON that are kept of an opening. A session whose client said more ends with the daemon."""

WRITE_SECONDS: Final = 60.0
"""How often at the most it is written that a session was used; what is lost of that when the daemon is killed."""

_log = logging.getLogger(__name__)


def hash_of(session_id: str) -> str:
    """Under what a session is kept: enough to know its id again, too little to speak in it.

    An id is 192 random bits, which nobody guesses however fast a hash is: a salt or a slow hash, which passwords need, would
    add nothing.
    """
    return hashlib.sha256(session_id.encode()).hexdigest()


class Book:
    """The sessions of former runs that sleep, least recently used first, and what is written of those that are open.

    Sleepers count against the same limits as open sessions, so that one can be woken whenever it is asked for.
    """

    def __init__(
        self,
        keeper: SessionKeeper,
        limits: GatewayLimits,
        now: Callable[[], float] = time.time,
        forgotten: Callable[[KeptSession], None] = lambda _: None,
    ) -> None:
        """`now` gives wall-clock seconds: they are all that two runs have in common.

        `forgotten` is told of each session that is kept no longer.
        """
        self._keeper = keeper
        self._limits = limits
        self._now = now
        self._forgotten = forgotten
        self._asleep: dict[str, KeptSession] = {}
        self._sleepers: Counter[str] = Counter()
        self._load()

    def __len__(self) -> int:
        """How many sessions sleep."""
        return len(self._asleep)

    def asleep_of(self, principal: str) -> int:
        """How many of a principal's sessions sleep."""
        return self._sleepers[principal]

    @property
    def sleepers(self) -> frozenset[str]:
        """The principals whose sessions sleep."""
        return frozenset(self._sleepers)

    def asleep(self) -> list[KeptSession]:
        """The sessions that sleep."""
        return list(self._asleep.values())

    def find(self, session_id: str, principal: str, view: str | None) -> KeptSession | None:
        """The sleeping session of that id; None where it is not this principal's, or of another endpoint, or expired."""
        kept = self._asleep.get(hash_of(session_id))
        if kept is None or (kept.principal, kept.view) != (principal, view):
            return None
        if self._is_expired(kept):
            self.forget(kept)
            return None
        return kept

    def wake(self, kept: KeptSession) -> bool:
        """Count a session among the open ones from now on; False where it was forgotten meanwhile."""
        return self._drop(kept)

    def opened(self, session_id: str, principal: str, view: str | None, opened_with: JsonObject) -> KeptSession | None:
        """Keep a new session; None where it is too large for that."""
        self.forget_expired()
        if len(encode(opened_with)) > MAX_OPENED_WITH:
            _log.info("a session is not kept beyond the daemon's end: its client said too much when it was opened")
            return None
        kept = KeptSession(
            id_hash=hash_of(session_id), principal=principal, view=view, opened_with=opened_with, used_at=self._now()
        )
        self._keeper.keep_session(kept)
        return kept

    def used(self, kept: KeptSession) -> KeptSession:
        """Write that an open session is in use."""
        kept = replace(kept, used_at=self._now())
        self._keeper.keep_session(kept)
        return kept

    def watches(self, kept: KeptSession, uris: tuple[str, ...]) -> KeptSession:
        """Write what the client of an open session watches."""
        kept = replace(kept, watched=uris, used_at=self._now())
        self._keeper.keep_session(kept)
        return kept

    def forget(self, kept: KeptSession) -> None:
        """Keep a session no longer, open or asleep."""
        self._drop(kept)
        self._keeper.forget_session(kept.id_hash)
        self._forgotten(kept)

    def forget_least_used(self, principal: str) -> bool:
        """Forget the sleeper of a principal that was not used for longest; False where none sleeps."""
        for kept in self._asleep.values():
            if kept.principal == principal:
                self.forget(kept)
                return True
        return False

    def forget_view(self, view: str) -> None:
        """Forget the sleepers of an endpoint that is gone."""
        for kept in [kept for kept in self._asleep.values() if kept.view == view]:
            self.forget(kept)

    def forget_expired(self) -> None:
        """Forget the sleepers that were not used for their time."""
        for kept in list(self._asleep.values()):
            if not self._is_expired(kept):
                return  # they come in the order of their use
            self.forget(kept)

    def _is_expired(self, kept: KeptSession) -> bool:
        return self._now() - kept.used_at > self._limits.session_idle_seconds

    def _load(self) -> None:
        """Take in what former runs have kept, the newest first, as far as it is not expired and within the limits."""
        now = self._now()
        for kept in sorted(self._keeper.sessions(), key=lambda kept: kept.used_at, reverse=True):
            is_over = (
                len(self._asleep) >= self._limits.sessions
                or self._sleepers[kept.principal] >= self._limits.sessions_per_principal
            )
            if is_over or self._is_expired(kept):
                self._keeper.forget_session(kept.id_hash)
                continue
            # A clock that was set back must not keep a session for longer than its time.
            self._asleep[kept.id_hash] = replace(kept, used_at=min(kept.used_at, now))
            self._sleepers[kept.principal] += 1
        self._asleep = dict(reversed(self._asleep.items()))

    def _drop(self, kept: KeptSession) -> bool:
        if self._asleep.pop(kept.id_hash, None) is None:
            return False
        self._sleepers[kept.principal] -= 1
        if not self._sleepers[kept.principal]:
            del self._sleepers[kept.principal]
        return True
