"""Owns what one session says of the wanted URIs of its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio

from mcpvisor.supervisor.subscriptions.record import Record
from mcpvisor.supervisor.subscriptions.standing import SubscriptionState, SubscriptionWatcher


class Attachment:
    """How URIs stand, as the session sees it; of no effect once another session is attached."""

    def __init__(self, records: Mapping[str, Record], watcher: SubscriptionWatcher, changed: Callable[[Record], None]) -> None:
        self.is_over = False
        """Whether another session is attached, or none; set by the table."""
        self._records = records
        self._watcher = watcher
        self._changed = changed

    def wanted(self) -> dict[str, bool]:
        """The URIs that are wanted, in the order in which they were first wanted, and whether each is forced."""
        return {record.uri: record.is_forced for record in self._records.values()}

    def is_forced(self, uri: str) -> bool:
        """Whether a URI is to be asked for whatever the server says of itself; False for one that nobody wants."""
        record = self._records.get(uri)
        return record is not None and record.is_forced

    def pending(self, uri: str, why: str = "") -> None:
        """The subscription is on its way."""
        self._mark(uri, SubscriptionState.PENDING, why, None)

    def active(self, uri: str) -> None:
        """Updates are pushed from now on; what happened before may have been missed, and that is told."""
        self._mark(uri, SubscriptionState.ACTIVE, "", None)

    def failed(self, uri: str, why: str, retry_at: float | None) -> None:
        """There is no subscription, and why; `retry_at` in monotonic seconds, None where no try by itself is due."""
        self._mark(uri, SubscriptionState.FAILED, why, retry_at)

    def overdue(self) -> None:
        """The server becomes ready, and what is still on its way takes too long."""
        for record in list(self._records.values()):
            if record.state is SubscriptionState.PENDING and not record.why:
                self.failed(record.uri, "the server has not answered yet", None)

    def _mark(self, uri: str, push: SubscriptionState, why: str, retry_at: float | None) -> None:
        record = self._records.get(uri)
        if record is not None and not self.is_over:
            record.push, record.why, record.retry_at = push, why, retry_at
            self._changed(record)

    # Reads

    def to_read(self) -> list[tuple[str, float]]:
        """The URIs that are to be polled, each with the monotonic time of its next read."""
        if self.is_over:
            return []
        return [
            (record.uri, float("-inf") if record.read_at is None else record.read_at)
            for record in self._records.values()
            if record.poll is not None and not record.may_be_pushed
        ]

    def has_read(self, uri: str, digest: bytes, jitter: float) -> None:
        """A resource was read; tells a change since the last read, or that what happened before this one is unknown.

        `jitter` is a factor for the time until the next read.
        """
        record = self._being_read(uri, jitter)
        if record is None:
            return
        before, record.digest = record.digest, digest
        record.is_read, record.read_failure = True, ""
        self._changed(record)
        if before != digest:
            self._watcher.resource_updated(uri, "resync" if before is None else "polled")

    def has_not_read(self, uri: str, why: str, jitter: float) -> None:
        """A resource could not be read, and why."""
        record = self._being_read(uri, jitter)
        if record is not None:
            record.is_read, record.read_failure = False, why
            self._changed(record)

    def _being_read(self, uri: str, jitter: float) -> Record | None:
        record = self._records.get(uri)
        if record is None or record.poll is None or record.may_be_pushed or self.is_over:
            return None
        record.read_at = anyio.current_time() + record.poll * jitter
        return record
