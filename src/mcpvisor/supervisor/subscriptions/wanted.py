"""Owns which resources of one server are watched, for whom, and how each stands; over all sessions of the server.

What is wanted is edited by holders: the configuration, clients of the gateway, handlers. How it stands is written by the one
session that serves now, through the `Attachment` that it was given. URIs are texts: the very same letters are compared, sent
and told, and nothing is ever normalised.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

import anyio

from mcpvisor.supervisor.subscriptions.attachment import Attachment
from mcpvisor.supervisor.subscriptions.record import Record
from mcpvisor.supervisor.subscriptions.standing import (
    WORKING,
    SubscriptionState,
    SubscriptionStatus,
    SubscriptionWatcher,
    Wish,
)

COALESCE: Final = 0.1
"""Seconds within which several updates of one resource are told as one more."""

RESYNC_PAUSE: Final = 10.0
"""Seconds between two rounds of "may have changed" for messages that were lost on the way."""

URI_SHOWN: Final = 120

_PENDING, _ACTIVE, _FAILED, _POLLED = SubscriptionState


class Subscriptions:
    """The wanted URIs of one server, each with its holders, its state, the reason and the next try."""

    def __init__(self, watcher: SubscriptionWatcher) -> None:
        self.stirred = anyio.Event()
        """Set, and replaced, when a session has to look again: at what is wanted, or at what may work now."""
        self.lists_changed_at = float("-inf")
        """When the server last said that its resources are others: what it did not know it may know now."""
        self.strangers = 0
        """Updates of resources that nobody wants."""
        self._watcher = watcher
        self._records: dict[str, Record] = {}
        self._counts: Counter[SubscriptionState] = Counter()
        self._attached: Attachment | None = None
        self._due: dict[str, None] = {}
        self._has_moved = False
        """Whether the counts have changed since they were told."""
        self._is_missing = False
        self._resynced_at = float("-inf")
        self._held_back = anyio.Event()

    # What is wanted

    def want(self, uri: str, holder: str, *, poll: float | None = None, force: bool = False) -> None:
        """Watch a resource for a holder; wanting it again replaces the holder's wish. See `Wish`. Returns at once.

        A holder is any text that is one's own; `config` is the server's entry.
        """
        if self._want(uri, holder, Wish(poll=poll, force=force)):
            self._rewished()

    def drop(self, uri: str, holder: str) -> None:
        """Watch a resource for a holder no more; what nobody holds is ended. One that is not held is no error."""
        if self._drop(uri, holder):
            self._rewished()

    def drop_all(self, holder: str) -> None:
        """The holder wants nothing any more."""
        self.replace(holder, {})

    def replace(self, holder: str, wishes: Mapping[str, Wish]) -> None:
        """Make these the wishes of a holder; what is the same in both stays untouched."""
        gone = [uri for uri, record in self._records.items() if holder in record.wishes and uri not in wishes]
        changed = [self._drop(uri, holder) for uri in gone]
        changed += [self._want(uri, holder, wish) for uri, wish in wishes.items()]
        if any(changed):
            self._rewished()

    def _want(self, uri: str, holder: str, wish: Wish) -> bool:
        record = self._records.get(uri)
        if record is None:
            record = self._records[uri] = Record(uri)
            self._counts[_PENDING] += 1
        if record.wishes.get(holder) == wish:
            return False
        record.wishes[holder] = wish
        self._fit_reads(record)
        return True

    def _drop(self, uri: str, holder: str) -> bool:
        record = self._records.get(uri)
        if record is None or record.wishes.pop(holder, None) is None:
            return False
        if record.wishes:
            self._fit_reads(record)
        else:
            del self._records[uri]
            self._counts[record.shown[0]] -= 1
            self._due.pop(uri, None)
            self._watcher.subscription_dropped(uri)
        return True

    def _fit_reads(self, record: Record) -> None:
        """Let the reads follow another wish."""
        if record.poll is None:
            record.forget_reads()
        elif record.read_at is not None:
            record.read_at = min(record.read_at, anyio.current_time() + record.poll)
        self._shift(record)

    def _rewished(self) -> None:
        self._tell_counts()
        self.stir()

    # What comes in

    def updated(self, uri: object) -> None:
        """The server says that a resource has changed. O(1); a flood of one resource is told as a few updates."""
        record = self._records.get(uri) if isinstance(uri, str) else None
        if record is None:
            self.strangers += 1
        elif anyio.current_time() - record.told_at >= COALESCE:
            self._tell_update(record)
        else:
            self._due[record.uri] = None
            self._held_back.set()

    def lists_changed(self) -> None:
        """The server says that it has other resources."""
        self.lists_changed_at = anyio.current_time()
        self.stir()

    def missed(self) -> None:
        """A message of the server was lost that may have been an update of any resource."""
        self._is_missing = True
        self._held_back.set()

    async def pass_on(self) -> None:
        """Tell what is held back, for as long as a session lasts; a new one tells all of it anew."""
        while True:
            await self._held_back.wait()
            await anyio.sleep(COALESCE)
            self._held_back = anyio.Event()
            due, self._due = self._due, {}
            for record in [self._records[uri] for uri in due if uri in self._records]:
                self._tell_update(record)
            if self._is_missing:
                self._tell_missed()
            if self._has_moved:
                self._tell_counts()

    def _tell_missed(self) -> None:
        if anyio.current_time() - self._resynced_at < RESYNC_PAUSE:
            self._held_back.set()  # looked at again a moment later, until the pause is over
            return
        self._is_missing, self._resynced_at = False, anyio.current_time()
        for record in list(self._records.values()):
            if record.state is _ACTIVE:
                self._watcher.resource_updated(record.uri, "resync")

    def _tell_update(self, record: Record) -> None:
        record.told_at = anyio.current_time()
        self._watcher.resource_updated(record.uri, "notified")

    # What is

    def __len__(self) -> int:
        return len(self._records)

    @property
    def working(self) -> int:
        """How many URIs are served, by push or by polling."""
        return sum(self._counts[state] for state in WORKING)

    def statuses(self) -> list[SubscriptionStatus]:
        """Every wanted URI as it is now, in the order in which they were first wanted."""
        return [self._status(record) for record in self._records.values()]

    def state(self, uri: str) -> SubscriptionState | None:
        """Where a URI has got to; None for one that nobody wants."""
        record = self._records.get(uri)
        return record.state if record is not None else None

    async def outcome(self, uri: str, seconds: float) -> SubscriptionStatus | None:
        """How a URI stands once its session has asked for it, or after `seconds`; at once where there is no session.

        None for one that nobody wants.
        """
        with anyio.move_on_after(seconds):
            while self._attached is not None and uri in self._records and self._records[uri].is_on_its_way:
                await self.stirred.wait()
        record = self._records.get(uri)
        return self._status(record) if record is not None else None

    def lacking(self) -> str:
        """What is wanted and does not work, in words; empty when all of it does or is on its way."""
        faulty = [record for record in self._records.values() if record.is_faulty]
        if not faulty:
            return ""
        verb = "does" if len(faulty) == 1 else "do"
        return f"{len(faulty)} of {len(self)} subscriptions {verb} not work, such as {_cut(faulty[0].uri)}: {faulty[0].reason}"

    def _status(self, record: Record) -> SubscriptionStatus:
        dues = [at for at in (record.retry_at, record.read_at) if at is not None]
        waits = record.state in (_FAILED, _POLLED) and dues
        return SubscriptionStatus(
            uri=record.uri,
            state=record.state,
            reason=self._watcher.quoted(record.reason),
            next_retry=time.time() + min(dues) - anyio.current_time() if waits else None,
            holders=tuple(record.wishes),
            poll=record.poll,
        )

    # Sessions

    def attach(self) -> Attachment:
        """Begin a new session: it alone says from now on how URIs stand, and all of them are pending."""
        self._end_attachment("")
        self._attached = Attachment(self._records, self._watcher, self._changed)
        return self._attached

    def resume(self, attachment: Attachment) -> None:
        """The session of an attachment goes on after all, since the one that was to take over has been given up."""
        if self._attached is attachment:
            return
        self._end_attachment("")
        attachment.is_over, self._attached = False, attachment
        self.stir()

    def detach(self, why: str) -> None:
        """No session serves any more, and why."""
        self._end_attachment(why)
        self.stir()

    def restored(self) -> None:
        """The session has been brought to what is wanted, as far as it goes for now."""
        if self._records:
            self._tell_counts()
            self._watcher.subscriptions_restored(self._counted())

    def stir(self) -> None:
        """Let the session look again."""
        stirred, self.stirred = self.stirred, anyio.Event()
        stirred.set()

    def _end_attachment(self, why: str) -> None:
        if self._attached is not None:
            self._attached.is_over, self._attached = True, None
        for record in self._records.values():
            record.push, record.why, record.retry_at = _PENDING, why, None
            record.forget_reads()
            self._shift(record)
        self._due.clear()
        self._is_missing = False
        if self._records:
            self._tell_counts()

    def _changed(self, record: Record) -> None:
        before = record.shown
        self._shift(record)
        if record.shown != before:
            self._has_moved = True
            self._held_back.set()
            self.stir()

    def _shift(self, record: Record) -> None:
        """Tell where a record has got to; whoever begins to be served may have missed what happened before."""
        (before, why), (state, reason) = record.shown, (record.state, record.reason)
        record.shown = (state, reason)
        if state is before and reason == why:
            return
        self._counts[before] -= 1
        self._counts[state] += 1
        self._watcher.subscription_moved(self._status(record))
        if state is _ACTIVE and before is not _ACTIVE:
            record.digest = None
            record.forget_reads()
            self._watcher.resource_updated(record.uri, "resync")

    def _tell_counts(self) -> None:
        self._has_moved = False
        self._watcher.subscriptions_counted(self._counted())

    def _counted(self) -> dict[SubscriptionState, int]:
        return {state: self._counts[state] for state in SubscriptionState}


def _cut(uri: str) -> str:
    return uri if len(uri) <= URI_SHOWN else uri[: URI_SHOWN - 1] + "\u2026"
