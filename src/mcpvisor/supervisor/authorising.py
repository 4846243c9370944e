"""Owns which credentials of a server are in force: the same ones while an edit only rotates them, others for another client.

Those of the former client go on for as long as a generation lives on them: an edit that does not come up leaves the session
that serves what it needs.
"""

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
        self._current = ServerCredentials(spec, watcher, source_of)
        self._given: dict[int, ServerCredentials] = {}
        """What each generation that is not gone lives on, by its number."""

    @property
    def expires_at(self) -> float | None:
        """Wall-clock expiry of what was fetched for the entry as it is now; else of what the former one still lives on."""
        known = (one.expires_at for one in (self._current, *self._given.values()))
        return next((at for at in known if at is not None), None)

    @property
    def is_penniless(self) -> bool:
        """Whether what the entry names as credentials cannot be had, and there is nothing to send."""
        return self._current.is_penniless

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Fetch, in these tasks, whatever has to be fetched, until `end`."""
        self._tasks = tasks
        tasks.start_soon(self._current.run)

    def end(self) -> None:
        """Fetch nothing any more; the tasks of `begin` return."""
        for one in (self._current, *self._given.values()):
            one.stop()

    def given(self, generation: int) -> ServerCredentials:
        """What a new generation lives on until it is `gone`."""
        self._given[generation] = self._current
        return self._current

    def gone(self, generation: int) -> None:
        """Nothing is left of a generation, and of the credentials that only it had."""
        left = self._given.pop(generation, None)
        if left is not None:
            self._stop_unused(left)

    def try_again(self) -> None:
        """Whatever failed may be asked for at once."""
        for one in {self._current, *self._given.values()}:
            one.try_again()

    def respecified(self, spec: ServerSpec) -> None:
        """Other credentials of the same client are for the sessions that stand, too; those of another are not for them."""
        before, self._spec = self._spec, spec
        if rotates(before.target, spec.target):
            self._current.respecified(spec)
            return
        former, self._current = self._current, ServerCredentials(spec, self._watcher, self._source_of)
        self._stop_unused(former)
        if self._tasks is not None:
            self._tasks.start_soon(self._current.run)

    def _stop_unused(self, former: ServerCredentials) -> None:
        if former is self._current or former in self._given.values():
            return
        former.stop()
        if former.expires_at is not None and self.expires_at is None:
            self._watcher.credentials_dropped("entry")
