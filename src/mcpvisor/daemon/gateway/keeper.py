"""Owns what of a session is to outlive the daemon, as a protocol; the default keeps it in memory."""

from __future__ import annotations

from typing import Protocol

from mcpvisor.daemon.state.kept import KeptSession


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
