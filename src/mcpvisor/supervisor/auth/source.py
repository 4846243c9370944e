"""Owns what the credentials of a server need of others: where they are fetched, and who is told of them."""

from __future__ import annotations

from typing import Protocol

from mcpvisor.supervisor.auth.token import Obtained
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec


class Source(Protocol):
    """Where a credential is fetched."""

    kind: str
    """A word of a closed set: `token_endpoint` or `header_command`."""

    def kept(self) -> Obtained | None:
        """What was fetched before this process began, where that is still known."""
        ...

    async def fetch(self, challenge: dict[str, str]) -> Obtained:
        """A new credential; `challenge` is what the server said to the last one. Raises CredentialsMissing."""
        ...

    async def keep(self, fetched: Obtained) -> None:
        """Let what was fetched outlive this process, where it should."""
        ...

    async def forget(self) -> None:
        """What was kept is of no use any more: the server has refused it."""
        ...


class CredentialWatcher(Protocol):
    """Who is told of credentials; every method is quick."""

    def secrets_fetched(self, secrets: tuple[str, ...]) -> None:
        """These are never to be shown; told before anything else of them is."""
        ...

    def credentials_refreshed(self, source: str, expires_at: float | None) -> None:
        """There is a new credential from `source`."""
        ...

    def credentials_failed(self, cause: str, detail: str, retry_in: float) -> None:
        """None could be had; the source is not asked again for `retry_in` seconds."""
        ...

    def credentials_dropped(self, cause: str) -> None:
        """What was fetched is of no use any more, and nothing else is known yet; `cause` is `entry` or `refused`."""
        ...


class SourceOf(Protocol):
    """Makes the source of a spec."""

    def __call__(self, spec: ServerSpec, target: HttpTarget) -> Source | None:
        """None where the spec says the credential itself."""
        ...
