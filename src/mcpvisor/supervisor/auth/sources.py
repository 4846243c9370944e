"""Owns which source the credentials of a spec have."""

from __future__ import annotations

from dataclasses import dataclass

from mcpvisor.supervisor.auth.command_source import CommandSource
from mcpvisor.supervisor.auth.kinds import ClientCredentials, HeaderCommand
from mcpvisor.supervisor.auth.source import Source
from mcpvisor.supervisor.auth.token_source import TokenSource
from mcpvisor.supervisor.masking import Mask
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
                return CommandSource(command, self.instance, spec.name, self.mask)
            case _:
                return None
