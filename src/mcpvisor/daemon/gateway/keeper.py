"""Owns what of a session is to outlive the daemon, as a protocol; the default keeps it in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """A session as it is kept: enough to go on with it, too little to speak in it."""

    id_hash: str
    """SHA-256 of its id, in hex. An id is 192 random bits, which nobody guesses however fast a hash is: a salt or a slow
    hash, which passwords need, would add nothing."""
    principal: str
    view: str | None
    """The one server that its endpoint shows; None for all of them."""
    opened_with: JsonObject
    """What `initialize` settled: `protocolVersion`, `capabilities`, `clientInfo`."""
    used_at: float
    """When it was used last, in wall-clock seconds since the epoch; up to a minute old."""


class SessionKeeper(Protocol):
    """What keeps sessions. Nothing here raises or waits: whoever cannot write says so on its own account."""

    def sessions(self) -> list[KeptSession]:
        """All that are kept, in any order."""
        ...

    def keep_session(self, session: KeptSession) -> None:
        """Keep a session, in place of what was kept under the same hash."""
        ...

    def forget_session(self, id_hash: str) -> None:
        """Keep a session no longer; one that is not kept is no error."""
        ...


class MemoryKeeper:
    """A keeper that ends with the process."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptSession] = {}

    def sessions(self) -> list[KeptSession]:
        """See `SessionKeeper`."""
        return list(self._kept.values())

    def keep_session(self, session: KeptSession) -> None:
        """See `SessionKeeper`."""
        self._kept[session.id_hash] = session

    def forget_session(self, id_hash: str) -> None:
        """See `SessionKeeper`."""
        self._kept.pop(id_hash, None)
