"""Owns the families that are worked out at the moment of a scrape, on its thread: those of the loop and the store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mcpvisor.metrics.families import Book

_LAST_TICK = ("mcpvisor_event_loop_last_tick_timestamp_seconds", "When the event loop last ran its own tick.")
_LAG = (
    "mcpvisor_event_loop_lag_seconds",
    "By how much the event loop's next tick is overdue at the moment of the scrape; 0 while it is in time.",
)
_STORE_UP = ("mcpvisor_state_store_up", "1 while the state store can be written, 0 while not; absent without a store.")


class AtScrape(Collector):
    """Exposes what the loop wrote into plain fields, so that a loop that is stuck still shows as stuck.

    `interval` is the number of seconds between two ticks of a healthy loop. Each field has one writer, the loop; reading
    a float or a bool from another thread needs no lock.
    """

    def __init__(self, book: Book, *, interval: float) -> None:
        self._interval = interval
        self._ticked_at: float | None = None
        self._ticked: float = 0.0
        self.state_store_up: bool | None = None
        for name, text in (_LAST_TICK, _LAG, _STORE_UP):
            book.note(name, "gauge", text)
        book.registry.register(self)

    def ticked(self) -> None:
        """The loop is alive at this moment."""
        self._ticked = time.monotonic()
        self._ticked_at = time.time()

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(name, text) for name, text in (_LAST_TICK, _LAG, _STORE_UP)]

    def collect(self) -> Iterator[Metric]:
        if self._ticked_at is not None:
            yield GaugeMetricFamily(*_LAST_TICK, value=self._ticked_at)
            overdue = time.monotonic() - self._ticked - self._interval
            yield GaugeMetricFamily(*_LAG, value=max(0.0, overdue))
        if self.state_store_up is not None:
            yield GaugeMetricFamily(*_STORE_UP, value=float(self.state_store_up))
