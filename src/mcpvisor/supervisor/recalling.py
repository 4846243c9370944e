"""Owns what outlives the sessions, and the daemon, of one server: what its store knows at the start, and what is new since."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any, Final

from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.negotiation import EraMemory
from mcpvisor.supervisor.offer import MAX_OFFER, NOTHING, Offer
from mcpvisor.supervisor.pace import Pace
from mcpvisor.supervisor.spec import Era, ServerSpec
from mcpvisor.supervisor.store import Remembered, StandingOrder, Store
from mcpvisor.supervisor.target import target_digest
from mcpvisor.supervisor.transports.codec import encode

_NOTHING_KNOWN: Final = Remembered()
_AT_ONCE: Final = 64 * 1024
"""Bytes of JSON that are masked in one step."""

_APART: Final = 8
"""Levels of an entry that are taken apart for that."""

_PARTS: Final = tuple(part.name for part in fields(Offer))


def _size(value: Any) -> int:
    """Bytes of JSON of a value; none of one that JSON cannot say, of which nothing is kept."""
    try:
        return len(encode(value))
    except ValueError:
        return 0


class Recall:
    """The memory of one server, over generations and runs of the daemon."""

    def __init__(self, store: Store, spec: ServerSpec, mask: Mask) -> None:
        self._store = store
        self._mask = mask
        self._name = spec.name
        self._target = target_digest(spec)
        self._known = store.recall(self._name, self._target) or _NOTHING_KNOWN
        known = self._known
        self.era = EraMemory(verdict=known.era, skip_probe=known.skip_probe, only_sse=known.only_sse)
        """What negotiations read and write."""
        self.offer: Offer = known.offer or NOTHING
        """What the server offered last, without what it may have put there of its secrets."""
        self._told: Offer = self.offer
        """The same as the server said it."""
        self._turn = 0

    async def offered(self, offer: Offer) -> None:
        """What the server offers now; others have their turns while it is masked. Of two at a time the newer one is kept."""
        self._turn += 1
        turn = self._turn
        masked = await self._masked(offer)
        if turn == self._turn:
            self.offer, self._told = masked, offer if masked is not NOTHING else NOTHING
            self.keep()

    async def told(self, offer: Offer) -> Offer:
        """An offer as it may be shown; what is kept of it costs nothing, else others have their turns meanwhile."""
        if offer is self._told:
            return self.offer
        pace = Pace()
        changed: dict[str, Any] = {}
        for name in _PARTS:
            part = getattr(offer, name)
            told: list[Any] = []
            for one in part if isinstance(part, tuple) else (part,):
                told.append(await self._masked_value(one, pace))
                await pace.pause()
            changed[name] = tuple(told) if isinstance(part, tuple) else told[0]
        return replace(offer, **changed)

    async def _masked(self, offer: Offer) -> Offer:
        """The offer without secrets; nothing where it is too large to be kept."""
        size = 0
        changed: dict[str, Any] = {}
        pace = Pace()
        for name in _PARTS:
            part = getattr(offer, name)
            told: list[Any] = []
            is_same = part is getattr(self._told, name)
            for one in part if isinstance(part, tuple) else (part,):
                size += _size(one)
                if size > MAX_OFFER:
                    return NOTHING
                told.append(one if is_same else await self._masked_value(one, pace))
                await pace.pause()
            if not is_same:
                changed[name] = tuple(told) if isinstance(part, tuple) else told[0]
        return replace(self.offer, **changed)

    async def _masked_value(self, value: Any, pace: Pace, depth: int = 0) -> Any:
        """The value without secrets; a large one is taken apart, as far as anybody writes them, so that no step is long."""
        if depth == _APART or not isinstance(value, dict | list) or _size(value) <= _AT_ONCE:
            return self._mask.told(value)
        await pace.pause()
        if isinstance(value, list):
            parts: list[Any] = []
            for one in value:
                parts.append(await self._masked_value(one, pace, depth + 1))
                await pace.pause()
            return parts
        told: dict[str, Any] = {}
        for key, one in value.items():
            told[self._mask.told(key)] = await self._masked_value(one, pace, depth + 1)
            await pace.pause()
        return told

    def respecified(self, spec: ServerSpec) -> None:
        """A new spec may lead to another server, of which nothing is known yet."""
        target = target_digest(spec)
        if target != self._target:
            self._target = target
            self._turn += 1  # what is being masked is another server's
            self.era.verdict, self.era.skip_probe, self.era.only_sse = None, False, False
            self.offer = self._told = NOTHING
            self._keep()

    def keep(self) -> None:
        """Hand over what has changed; costs next to nothing where nothing has."""
        if self._now() != self._known:
            self._keep()

    def _keep(self) -> None:
        self._known = self._now()
        self._store.remember(self._name, self._target, self._known)

    def _now(self) -> Remembered:
        era = self.era
        verdict = era.verdict if era.verdict in (Era.LEGACY, Era.MODERN) else None
        offer = None if self.offer == NOTHING else self.offer
        return Remembered(era=verdict, skip_probe=era.skip_probe, only_sse=era.only_sse, offer=offer)

    # Orders

    @property
    def order(self) -> StandingOrder | None:
        """The order of an operator that stands, whoever ran the daemon then."""
        return self._store.standing_order(self._name)

    def ordered(self, order: str, who: str) -> None:
        """A disable stands until an enable ends it; a stop, a start and a restart are for this run of the daemon."""
        if order == "disable":
            self._store.keep_order(self._name, StandingOrder(wanted=Wanted.DISABLED, who=who, at=time.time()))
        elif order == "enable":
            self.no_order()

    def no_order(self) -> None:
        """Nothing that an operator has ordered stands any more."""
        if self.order is not None:
            self._store.keep_order(self._name, None)
