"""Owns what is put back after each new session, and kept in step while it lasts: the lists of what a server offers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import anyio

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.listing import CAPABILITY, METHODS, Ask, Listed, read_list
from mcpvisor.supervisor.offer import NOTHING, Offer
from mcpvisor.supervisor.sdk import Handshake
from mcpvisor.supervisor.signs import CatalogDrop

KINDS: Final[tuple[CatalogKind, ...]] = ("tools", "resources", "resource_templates", "prompts")
CHANGED: Final[dict[str, tuple[CatalogKind, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resource_templates"),
}
"""Which lists a notification makes stale."""

SETTLE: Final = 0.1
"""Seconds for which further notices of the same storm are gathered before a list is read again."""

LIST_RETRY: Final = 5.0
LIST_RETRY_MAX: Final = 60.0
LIST_WAIT_MAX: Final = 3600.0
"""For how long a server is obeyed at the most that does not want to be asked for its lists (`Retry-After`)."""

WHY: Final = 200
"""Characters that are kept of why a list cannot be had; a server may answer with any number."""

LISTEN_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
"""The answer to our own stream of notifications, and nobody else's business."""


@dataclass(frozen=True, slots=True)
class ListFaults:
    """What is left out of a list or repaired in it: the first of these in words that may be shown, and how many they are."""

    shown: tuple[CatalogDrop, ...]
    count: int


class OfferWatcher(Protocol):
    """Who is told what a server offers."""

    def offered(self, offer: Offer, changed: tuple[CatalogKind, ...]) -> None:
        """The whole offer, and which of its lists differ from before."""
        ...

    async def keep_offer(self, offer: Offer) -> None:
        """Keep the offer for the next run, without holding anybody up for long."""
        ...

    def dropped(self, kind: CatalogKind, listed: Listed) -> ListFaults:
        """Entries of a list were left out or repaired, or it was cut short; returns them as they may be shown."""
        ...


Lacking = Callable[[str], None]
"""Takes what does not work of the lists now; empty when all of it does."""


class Restorer:
    """The offer of one server over all its generations; one generation at a time restores and follows it."""

    def __init__(self, watcher: OfferWatcher) -> None:
        self.offer: Offer = NOTHING
        self._faults: dict[CatalogKind, ListFaults] = {}
        """Of the lists of the offer as it is now."""
        self._watcher = watcher
        self._dirty: set[CatalogKind] = set()
        self._woken = anyio.Event()
        self._failed: dict[CatalogKind, str] = {}
        self._not_before = float("-inf")
        """When the server wants to be asked again, as it has said, in monotonic seconds."""
        self.next_at: float | None = None
        """When lists that could not be had are asked for again, in monotonic seconds; None where none has failed."""

    @property
    def is_asked_to_wait(self) -> bool:
        """Whether `next_at` is when the server has said that it wants to be asked again."""
        return self.next_at is not None and self.next_at <= self._not_before

    @property
    def faults(self) -> ListFaults:
        """What is left out of the lists on offer, or repaired in them."""
        found = [self._faults[kind] for kind in KINDS if kind in self._faults]
        return ListFaults(tuple(drop for one in found for drop in one.shown), sum(one.count for one in found))

    def notified(self, method: str) -> bool:
        """Take a notification; True when it was one of a changed list. O(1), however many come."""
        kinds = CHANGED.get(method)
        if kinds is None:
            return method == LISTEN_ACKNOWLEDGED
        self._dirty.update(kinds)
        self._woken.set()
        return True

    def reread(self) -> None:
        """Read every list again: notices of changes may have been missed."""
        self._dirty.update(KINDS)
        self._woken.set()

    def input_schema(self, tool: Any) -> Any:
        """The input schema of a tool by its own name; None when the server lists no such tool."""
        return next((entry.get("inputSchema") for entry in self.offer.tools if entry.get("name") == tool), None)

    async def restore(self, handshake: Handshake, ask: Ask) -> str:
        """Read every list that the server says it has; returns what could not be had, empty when all could."""
        self._dirty.clear()
        self._failed.clear()
        self._not_before, self.next_at = float("-inf"), None
        self._describe(handshake)
        kinds = self._offered_kinds(handshake)
        gone: tuple[CatalogKind, ...] = tuple(kind for kind in KINDS if kind not in kinds and getattr(self.offer, kind))
        self._faults = {kind: found for kind, found in self._faults.items() if kind in kinds}
        for kind in gone:  # a server that was replaced has lists no more that are still on show
            self.offer = _with_list(self.offer, kind, ())
        if gone:
            self._watcher.offered(self.offer, gone)
        await self._read(kinds, ask)
        self._plan(LIST_RETRY)
        return self._lacking()

    async def follow(self, handshake: Handshake, ask: Ask, lacking: Lacking) -> None:
        """Keep the lists in step with the server until cancelled."""
        delay = LIST_RETRY
        while True:
            if not self._dirty:
                self._woken = anyio.Event()
                with anyio.move_on_at(math.inf if self.next_at is None else self.next_at):
                    await self._woken.wait()
                self._dirty.update(self._failed)
            await anyio.sleep(SETTLE)
            await anyio.sleep_until(self._not_before)  # also after notices of changes: a storm of them would ask without end
            self._describe(handshake)
            kinds, self._dirty = self._dirty & set(self._offered_kinds(handshake)), set()
            await self._read([kind for kind in KINDS if kind in kinds], ask)
            delay = min(delay * 2, LIST_RETRY_MAX) if self._failed else LIST_RETRY
            self._plan(delay)
            lacking(self._lacking())

    def _plan(self, delay: float) -> None:
        """Have what failed read again in so many seconds, and no earlier than the server wants."""
        self.next_at = max(anyio.current_time() + delay, self._not_before) if self._failed else None

    def _describe(self, handshake: Handshake) -> None:
        """What is offered is offered by this session: another one may have begun to take over, and was given up."""
        self.offer = replace(
            self.offer,
            capabilities=handshake.capabilities,
            server_info=handshake.server_info,
            instructions=handshake.instructions,
        )

    async def _read(self, kinds: Iterable[CatalogKind], ask: Ask) -> None:
        changed: list[CatalogKind] = []
        for kind in kinds:
            try:
                listed = await read_list(kind, ask)
            except RequestFailed as failure:
                self._failed[kind] = clean_text(failure.message, WHY)
                if failure.retry_after_s is not None:
                    self._not_before = anyio.current_time() + min(failure.retry_after_s, LIST_WAIT_MAX)
                continue
            self._failed.pop(kind, None)
            self._faults.pop(kind, None)
            if listed.dropped or listed.cut:
                self._faults[kind] = self._watcher.dropped(kind, listed)
            if getattr(self.offer, kind) != listed.entries:
                self.offer = _with_list(self.offer, kind, listed.entries)
                changed.append(kind)
        self._watcher.offered(self.offer, tuple(changed))
        await self._watcher.keep_offer(self.offer)

    def _lacking(self) -> str:
        return "; ".join(f"{METHODS[kind]} failed: {why}" for kind, why in sorted(self._failed.items()))

    @staticmethod
    def _offered_kinds(handshake: Handshake) -> list[CatalogKind]:
        return [kind for kind in KINDS if CAPABILITY[kind] in handshake.capabilities]


def _with_list(offer: Offer, kind: CatalogKind, entries: tuple[dict[str, Any], ...]) -> Offer:
    match kind:
        case "tools":
            return replace(offer, tools=entries)
        case "resources":
            return replace(offer, resources=entries)
        case "resource_templates":
            return replace(offer, resource_templates=entries)
        case "prompts":
            return replace(offer, prompts=entries)
