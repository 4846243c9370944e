"""Owns what is told of what comes on the wires of one server: notifications, requests, noise, and messages that are refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcpvisor.supervisor import events
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.observer import CallObserver
from mcpvisor.supervisor.open_calls import Origin
from mcpvisor.supervisor.teller import Teller
from mcpvisor.supervisor.transports.exchange import PeerRefusal, WireHooks
from mcpvisor.supervisor.wire_faults import FIRST, FaultsByGeneration

JsonObject = dict[str, Any]

EXCERPT: Final = 120
METHOD_NOT_FOUND: Final = -32601

RESOURCE_UPDATED: Final = "notifications/resources/updated"

_MAY_BE_UPDATES: Final = frozenset({"values", "syntax"})
"""Why a message is refused that may have been an update; one that is too large or too deep is none."""


class WireReports:
    """Hands what a server says unasked to where it belongs, and tells of it; the wire of each generation has its `hooks_of`."""

    def __init__(self, teller: Teller, bus: EventBus, observer: CallObserver) -> None:
        self.on_list_notice: Callable[[str], bool] = lambda _: False
        """Takes the method of a notification; true when it was one about lists, which has events of its own."""
        self.on_update: Callable[[object], None] = lambda _: None
        """Takes the `uri` of each notification of an updated resource, which has events of its own, whatever it is."""
        self.on_request: Callable[[str, JsonObject, Origin], Awaitable[JsonObject]] = _answer_nothing
        """Answers the requests of the server. Raises PeerRefusal."""
        self.on_missed: Callable[[], None] = lambda: None
        """Called when a message was refused that may have been such a notification."""
        self._teller = teller
        self._bus = bus
        self._observer = observer
        self._counts: Counter[str] = Counter()
        self.faults = FaultsByGeneration()

    def hooks_of(self, generation: int) -> WireHooks:
        """What the wire of a generation tells."""
        return _Hooks(self, generation)

    def notified(self, method: str, params: JsonObject, *, to_caller: bool = False, private: bool = False) -> None:
        """See `WireHooks`."""
        self._observer.notification_received(self._teller.server, method)
        if method == RESOURCE_UPDATED:
            self.on_update(params.get("uri"))
        elif not self.on_list_notice(method):
            self._bus.emit(
                events.ServerNotified(
                    at=time.time(),
                    server=self._teller.server,
                    method=self._teller.clean(method, EXCERPT),
                    params=self._teller.mask.told(params),
                    to_caller=to_caller,
                    private=private,
                )
            )

    async def answer(self, method: str, params: JsonObject, origin: Origin) -> JsonObject:
        """See `WireHooks`: a ping is answered at any time, and what we have not offered is refused, never left unanswered."""
        if method == "ping":
            return {}
        return await self.on_request(method, params, origin)

    def noise(self, generation: int, excerpt: bytes) -> None:
        """See `WireHooks`. Every line is counted; told of are the first few, then each power of ten."""
        self._count_noise(generation, 1, excerpt)

    def noise_dropped(self, generation: int, lines: int) -> None:
        """See `WireHooks`."""
        self._count_noise(generation, lines, None)

    def _count_noise(self, generation: int, lines: int, excerpt: bytes | None) -> None:
        self._observer.noise_received(self._teller.server, lines)
        is_told = self.faults.count_noise(generation, lines)
        faults = self.faults.at(generation)
        if excerpt is not None and (is_told or faults.noise <= FIRST):
            text = self._teller.clean(excerpt, EXCERPT)
            faults.show(text)
        else:
            text = faults.excerpt
        if is_told:
            count = self.faults.noise
            self._teller.emit(events.StdoutNoise(at=time.time(), server=self._teller.server, excerpt=text, count=count))

    def refused(self, reason: str, detail: str, generation: int | None = None) -> None:
        """See `WireHooks`. Every refusal is counted; told of are the first of a kind and each power of ten."""
        self._observer.message_refused(self._teller.server, reason)
        self.faults.at(self._teller.generation if generation is None else generation).refused = reason
        self._counts[reason] += 1
        if reason in _MAY_BE_UPDATES:
            self.on_missed()
        if _is_round(self._counts[reason]):
            text = self._teller.clean(detail, EXCERPT * 2)
            self._teller.emit(events.MessageRefused(at=time.time(), server=self._teller.server, reason=reason, detail=text))


class _Hooks:
    """What one wire tells; see `WireHooks`."""

    def __init__(self, reports: WireReports, generation: int) -> None:
        self._reports = reports
        self._generation = generation
        self.notified = reports.notified
        self.answer = reports.answer

    def noise(self, excerpt: bytes) -> None:
        """See `WireHooks`."""
        self._reports.noise(self._generation, excerpt)

    def noise_dropped(self, lines: int) -> None:
        """See `WireHooks`."""
        self._reports.noise_dropped(self._generation, lines)

    def refused(self, reason: str, detail: str) -> None:
        """See `WireHooks`."""
        self._reports.refused(reason, detail, self._generation)


async def _answer_nothing(method: str, _params: JsonObject, _origin: Origin) -> JsonObject:
    raise PeerRefusal(METHOD_NOT_FOUND, f"Method not found: {clean_text(method, EXCERPT)}")


def _is_round(count: int) -> bool:
    while count >= 10 and count % 10 == 0:
        count //= 10
    return count == 1
