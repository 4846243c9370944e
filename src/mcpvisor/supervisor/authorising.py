"""Owns which credentials of a server are in force: the same ones while an edit only rotates them, others for another client."""

from __future__ import annotations

import anyio.abc

from mcpvisor.supervisor.auth.server_credentials import ServerCredentials
from mcpvisor.supervisor.auth.source import CredentialWatcher, SourceOf
from mcpvisor.supervisor.spec import ServerSpec, rotates


class Authorising:
    """The credentials of one server over all that its entry has said."""

    def __init__(self, spec: ServerSpec, watcher: CredentialWatcher, source_of: SourceOf) -> None:
        self._watcher = watcher
        self._source_of = source_of
        self._tasks: anyio.abc.TaskGroup | None = None
        self._spec = spec
        self.current = ServerCredentials(spec, watcher, source_of)
        """What the next generation asks; a generation keeps those that it began with."""

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Fetch, in these tasks, whatever has to be fetched, until `end`."""
        self._tasks = tasks
        tasks.start_soon(self.current.run)

    def end(self) -> None:
        """Fetch nothing any more; the task of `begin` returns."""
        self.current.stop()

    def respecified(self, spec: ServerSpec) -> None:
        """Other credentials of the same client are for the sessions that stand, too; those of another are not for them."""
        before, self._spec = self._spec, spec
        if rotates(before.target, spec.target):
            self.current.respecified(spec)
            return
        self.current.stop()
        if self.current.expires_at is not None:
            self._watcher.credentials_dropped("entry")
        self.current = ServerCredentials(spec, self._watcher, self._source_of)
        if self._tasks is not None:
            self._tasks.start_soon(self.current.run)
