"""Owns the credentials of one server over all its generations: what is sent now, and the one flight that renews it.

Whoever needs a credential that has to be fetched wakes the one task of `run` and waits for its result; a caller that leaves
takes nothing with it. What a source refused is not asked again before its time, however many callers there are.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final

import anyio

from mcpvisor.supervisor.auth.challenge import challenge_parameters
from mcpvisor.supervisor.auth.credential import (
    Credential,
    CredentialsMissing,
    fixed_credential,
    with_entry_headers,
)
from mcpvisor.supervisor.auth.kinds import ClientCredentials, HeaderCommand, public_part
from mcpvisor.supervisor.auth.patience import Patience
from mcpvisor.supervisor.auth.source import CredentialWatcher, Source, SourceOf
from mcpvisor.supervisor.auth.token import Obtained, lasting
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec

_log = logging.getLogger(__name__)

FLIGHT_SECONDS: Final = 30.0
"""The most that one fetch may take, all its requests together."""

KEEP_SECONDS: Final = 10.0
"""How long a store may take to keep what was fetched, which is in use by then; it goes on by itself."""

LONGEST_LOOK: Final = 60.0
"""Seconds after which the wall clock, by which credentials expire, is looked at again: it may have been set."""

LAST_MOMENT: Final = 0.5
"""Seconds before its deadline at which a caller is told that there is no credential, instead of being cut off."""


class ServerCredentials:
    """See `Credentials`; `run` must be going for anything to be fetched."""

    def __init__(self, spec: ServerSpec, watcher: CredentialWatcher, source_of: SourceOf) -> None:
        self._watcher = watcher
        self._source_of = source_of
        self._target: HttpTarget | None = None
        self._source: Source | None = None
        self._fixed: Credential | None = None
        self._fault: CredentialsMissing | None = None
        self._held: Obtained | None = None
        self._challenge: dict[str, str] = {}
        self._patience = Patience(random.random)
        self._is_worthless = False
        """Whether what the source has kept was refused, and may not be taken from there again."""
        self._is_drop_due = False
        """Whether the watcher still takes what was refused for what is held."""
        self._changed = anyio.Event()
        """Set, and replaced, when there is something new for `attend`."""
        self._wanted = anyio.Event()
        self._landed: anyio.Event | None = None
        """Set when the flight that is wanted or under way is over; None while there is none."""
        self._flying = anyio.CancelScope()
        self._scope = anyio.CancelScope()
        self._change(spec)

    @property
    def expires_at(self) -> float | None:
        """Wall-clock expiry of what was fetched; None where nothing was, or nothing is known of it."""
        return self._held.expires_at if self._held is not None else None

    @property
    def is_penniless(self) -> bool:
        """Whether the last try to have credentials failed, and none that were fetched before are good."""
        held = self._held is not None and self._held.is_good(time.time())
        return self._fault is not None or (self._patience.failure is not None and self._fixed is None and not held)

    # Orders of the actor

    def respecified(self, spec: ServerSpec) -> None:
        """A new spec: what it says holds from the next request on; what was fetched stays where it is for the same client."""
        if isinstance(spec.target, HttpTarget) and spec.target != self._target:
            self._change(spec)

    def try_again(self) -> None:
        """Whatever failed may be asked for at once: somebody may have mended it."""
        self._patience.afresh()
        self._note_change()

    def stop(self) -> None:
        """Let `run` return. What is held can still be sent; nothing is fetched any more."""
        self._source = None
        self._scope.cancel()
        self._note_change()

    async def run(self) -> None:
        """Fetch whenever a caller wants it, until `stop`."""
        try:
            with self._scope:
                while True:
                    await self._wanted.wait()
                    self._wanted = anyio.Event()
                    await self._fly()
        finally:
            self._land()

    def _land(self) -> None:
        landed, self._landed = self._landed, None
        if landed is not None:
            landed.set()
        self._note_change()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _change(self, spec: ServerSpec) -> None:
        before, target = self._target, spec.target
        if not isinstance(target, HttpTarget):
            self._fixed = Credential()
            return
        self._target, self._fault = target, None
        self._flying.cancel()  # whatever it brings is not wanted any more
        self.try_again()
        try:
            written = with_entry_headers(Credential(), target)
            self._source = self._source_of(spec, target)
            self._fixed = None
            if self._source is None:
                self._fixed = with_entry_headers(fixed_credential(target.auth), target) if target.auth else written
        except SpecError as error:
            self._source, self._fixed, self._fault = None, None, CredentialsMissing("auth", str(error))
        if before is not None and not _same_client(before, target):
            self._is_worthless = False
            if self._held is not None:
                self._held = None
                self._watcher.credentials_dropped("entry")

    # What a wire asks: see `Credentials`

    async def current(self) -> Credential:
        """See `Credentials`."""
        while True:
            if self._fault is not None:
                raise self._fault
            if self._fixed is not None:
                return self._fixed
            held, now = self._usable(), time.time()
            if held is not None:
                if held.is_due(now) and self._source is not None and self._may_fly():
                    self._want()
                return held.credential
            if self._source is None:
                raise CredentialsMissing("auth", "its entry was changed")
            if not self._may_fly():
                raise self._patience.told(anyio.current_time())
            await self._flight()

    async def instead_of(self, refused: Credential, challenge: str) -> Credential | None:
        """See `Credentials`. A source whose last credential was refused as well is asked again ever more rarely."""
        if self._fixed is not None:
            return self._fixed if self._fixed is not refused else None
        held = self._held
        if held is not None and held.credential is refused:
            if not self._patience.may_renew(anyio.current_time()):
                return None
            self._patience.refused()
            self._challenge = challenge_parameters(challenge)
            self._held, self._is_worthless, self._is_drop_due = None, True, True
            if not self._may_fly():
                self._tell_drop()
        other = await self.current()
        return other if other is not refused else None

    def accepted(self, credential: Credential) -> None:
        """See `Credentials`."""
        if self._held is not None and self._held.credential is credential:
            self._patience.accepted()

    async def attend(self, told: Callable[[str], None]) -> None:
        """See `Credentials`. Several sessions may stand on the same ones."""
        while True:
            changed, now = self._changed, anyio.current_time()
            due, lost = self._next_flight(now)
            if due <= now:
                self._want()
                continue
            told(self._lacking())
            with anyio.move_on_at(min(due, lost, now + LONGEST_LOOK)):
                await changed.wait()

    def _lacking(self) -> str:
        """Why nothing can be sent; empty while something can, and while nobody has tried yet."""
        if self._fault is not None:
            return self._fault.detail
        failure = self._patience.failure
        return failure.detail if failure is not None and self._fixed is None and self._usable() is None else ""

    def _next_flight(self, now: float) -> tuple[float, float]:
        """When the source should be asked though nobody calls, and when what is held runs out: monotonic, `inf` for never."""
        never = float("inf")
        if self._source is None or self._landed is not None:
            return never, never
        held, ahead = self._usable(), now - time.time()
        if held is None:
            return self._patience.not_before, never
        if held.renew_at is None or held.expires_at is None:
            return never, never
        return max(self._patience.not_before, held.renew_at + ahead), held.expires_at + ahead

    # The flight

    def _usable(self) -> Obtained | None:
        may_be_kept = not (self._patience.is_tried or self._is_worthless)
        if self._held is None and self._source is not None and may_be_kept:
            kept = self._source.kept()
            if kept is not None and kept.is_good(time.time()):
                self._hold(kept, "store")
        return self._held if self._held is not None and self._held.is_good(time.time()) else None

    def _may_fly(self) -> bool:
        return anyio.current_time() >= self._patience.not_before or self._landed is not None

    def _want(self) -> anyio.Event:
        if self._landed is None:
            self._landed = anyio.Event()
            self._wanted.set()
        return self._landed

    async def _flight(self) -> None:
        """Wait for the end of the flight; the caller's own deadline is met with an answer. Raises CredentialsMissing."""
        landed, began = self._want(), anyio.current_time()
        left = anyio.current_effective_deadline() - began
        with anyio.move_on_after(max(0.0, left - min(LAST_MOMENT, left / 10))):
            await landed.wait()
            return
        waited = anyio.current_time() - began
        raise CredentialsMissing("auth_unavailable", f"no credentials after {waited:.1f} s: their source has not answered yet")

    async def _fly(self) -> None:
        source = self._source
        fetched = await self._fetch(source) if source is not None else None
        self._land()
        if source is not None and (fetched is not None or self._is_worthless):
            with anyio.move_on_after(KEEP_SECONDS):
                await (source.keep(fetched) if fetched is not None else source.forget())

    async def _fetch(self, source: Source) -> Obtained | None:
        """What the source gives, in use already; None where it gives nothing, or is not the source any more."""
        failure = CredentialsMissing("auth_unavailable", f"no credentials within {FLIGHT_SECONDS:g} s")
        with anyio.move_on_after(FLIGHT_SECONDS) as self._flying:
            try:
                fetched = await source.fetch(self._challenge)
            except CredentialsMissing as missing:
                failure = missing
            except Exception as error:  # noqa: BLE001 - a fault of ours must cost this fetch only
                _log.exception("credentials of a server cannot be fetched")
                failure = CredentialsMissing("auth_unavailable", f"a fault of mcpvisor itself: {type(error).__name__}")
            else:
                if source is not self._source:
                    return None
                self._patience.came()
                self._is_worthless = False
                fetched = lasting(fetched, time.time(), random.random())  # noqa: S311 - spreads load
                self._hold(fetched, source.kind)
                return fetched
        if source is self._source:
            delay = self._patience.failed(failure, anyio.current_time())
            self._watcher.credentials_failed(failure.cause, failure.detail, delay)
            self._tell_drop()
        return None

    def _tell_drop(self) -> None:
        if self._is_drop_due:
            self._is_drop_due = False
            self._watcher.credentials_dropped("refused")

    def _hold(self, held: Obtained, kind: str) -> None:
        assert self._target is not None
        self._watcher.secrets_fetched(held.secrets)
        credential = with_entry_headers(held.credential, self._target)
        self._held = Obtained(credential=credential, secrets=held.secrets, expires_at=held.expires_at, renew_at=held.renew_at)
        self._patience.held(anyio.current_time())
        self._is_drop_due = False
        self._watcher.credentials_refreshed(kind, held.expires_at)


def _same_client(before: HttpTarget, after: HttpTarget) -> bool:
    """Whether what was fetched for the one is good for the other."""
    if before.url != after.url or before.headers != after.headers:
        return False
    if isinstance(after.auth, ClientCredentials):
        return public_part(before.auth) == public_part(after.auth)
    return isinstance(after.auth, HeaderCommand) and before.auth == after.auth
