"""Owns which source the credentials of a spec have."""

from __future__ import annotations

from dataclasses import dataclass

from mcpvisor.supervisor.auth.command_source import CommandSource
from mcpvisor.supervisor.auth.kinds import ClientCredentials, HeaderCommand
from mcpvisor.supervisor.auth.source import Source
from mcpvisor.supervisor.auth.token_source import TokenSource
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec
from mcpvisor.supervisor.store import Store


@dataclass(frozen=True, slots=True)
class Sources:
    """Makes the sources of one server."""

    store: Store
    instance: str
    mask: Mask

    def __call__(self, spec: ServerSpec, target: HttpTarget) -> Source | None:
        """See `SourceOf`. Raises SpecError."""
        match target.auth:
            case ClientCredentials() as auth:
                return TokenSource(spec.name, target, auth, self.store, self.mask)
            case HeaderCommand() as command:
                # No generation of a server has this number, so its mark is nobody else's.
                return CommandSource(command, Marker(self.instance, spec.name, 0), self.mask)
            case _:
                return None
