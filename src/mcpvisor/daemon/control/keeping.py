"""Owns what the control socket asks of the state store; that one lives elsewhere."""

from __future__ import annotations

from typing import Any, BinaryIO, Protocol

JsonObject = dict[str, Any]


class NoCopy(Exception):
    """The state store cannot be copied now; the text says why."""


class Keeping(Protocol):
    """What outlives the daemon."""

    def state_store(self) -> JsonObject | None:
        """How the store is: `up`, `reason`, `since` and `path`; None where there is none."""
        ...

    def past(self, server: str | None = None) -> list[JsonObject]:
        """Events that no server of this run tells, oldest first: those of earlier runs (`earlier`), and the daemon's own."""
        ...

    def numbered(self, server: str | None = None) -> list[tuple[int, JsonObject]]:
        """The same, each with its number in the order of `EventBus.next_number`; those of earlier runs have 0."""
        ...

    async def copy(self) -> BinaryIO:
        """A consistent copy of the state file, open for reading; nobody else can reach it. Raises NoCopy."""
        ...


class NothingKept:
    """No store at all."""

    def state_store(self) -> JsonObject | None:
        """See `Keeping`."""
        return None

    def past(self, server: str | None = None) -> list[JsonObject]:
        """See `Keeping`."""
        return [view for _, view in self.numbered(server)]

    def numbered(self, server: str | None = None) -> list[tuple[int, JsonObject]]:
        """See `Keeping`."""
        del server
        return []

    async def copy(self) -> BinaryIO:
        """See `Keeping`."""
        raise NoCopy("this daemon has no state store")
