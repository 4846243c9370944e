"""Owns the counting: turns events, calls and what the daemon reports into the families of one registry."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, Literal

from prometheus_client import CollectorRegistry

from mcpvisor.metrics.families import Families
from mcpvisor.metrics.labels import (
    ERAS,
    EVENT_KINDS,
    EVENT_OUTCOMES,
    OUTCOMES,
    REFUSAL_REASONS,
    REFUSING_SIDES,
    REQUEST_METHODS,
    Words,
    among,
)
from mcpvisor.metrics.scrape import AtScrape
from mcpvisor.metrics.series import ServerSeries
from mcpvisor.supervisor import events as ev
from mcpvisor.supervisor import host_events

ReloadOutcome = Literal["applied", "partial", "rejected"]
"""`partial`: some entries were rejected and the rest applied."""


class MetricsRecorder:
    """An inline subscriber of the event bus, the `CallObserver` of the supervisor, and the daemon's own counters.

    Every method is O(1) in the number of servers, but for the removal of one. What concerns a server is counted from its
    `ServerAdded` to its `ServerRemoved`, so it must be attached before the first `apply`; later news of a removed server
    count for nothing, which is why its series do not come back. All methods but `log_dropped` and `refused` are for the
    event loop's thread.
    """

    def __init__(self, registry: CollectorRegistry, *, version: str, tick_interval: float = 0.25) -> None:
        self.registry = registry
        self._families = Families(registry)
        self._at_scrape = AtScrape(self._families.book, interval=tick_interval)
        self._servers: dict[str, ServerSeries] = {}
        self._causes = Words({"ready"})
        self._triggers = Words(limit=16)
        self._sinks = Words(limit=8)
        self._readers = self._table()
        daemon = self._families.daemon
        daemon.build.info({"version": version, "python_version": platform.python_version()})
        for era in sorted(ERAS):
            daemon.gateway_sessions.labels(era)

    @property
    def families(self) -> Families:
        """The families this recorder feeds."""
        return self._families

    def __call__(self, event: ev.Event) -> None:
        """Count one event of the bus."""
        if isinstance(event, ev.ServerEvent):
            self._of_server(event)
        elif isinstance(event, ev.OrphansSwept):
            self._families.daemon.orphans.inc(event.count)
        elif isinstance(event, host_events.StateStoreDegraded | host_events.StateStoreRecovered):
            self.state_store(up=isinstance(event, host_events.StateStoreRecovered))
        elif isinstance(event, host_events.HandlerCircuitOpened | host_events.HandlerCircuitClosed):
            opened = isinstance(event, host_events.HandlerCircuitOpened)
            self._families.handler.circuit.labels(event.handler).set(opened)

    def _of_server(self, event: ev.ServerEvent) -> None:
        if isinstance(event, ev.ServerAdded):
            self._remove(event.server)
            self._servers[event.server] = ServerSeries(self._families, event.server, event.transport)
            return
        if isinstance(event, ev.ServerRemoved):
            self._remove(event.server)
            return
        series = self._servers.get(event.server)
        reader = self._readers.get(type(event))
        if series is not None and reader is not None:
            reader(series, event)

    def _remove(self, server: str) -> None:
        series = self._servers.pop(server, None)
        if series is not None:
            series.forget()

    def _table(self) -> dict[type[ev.ServerEvent], Callable[[ServerSeries, Any], None]]:
        """Which event feeds which series. Calls, notifications, refusals and noise come by the observer."""
        return {
            ev.ServerStateChanged: lambda s, e: s.moved(e.old, e.new, e.at, e.next_attempt),
            ev.ServerRestarted: lambda s, e: s.restarted(e.reason),
            ev.ConnectEnded: lambda s, e: s.connect_ended(self._causes.fit(e.outcome)),
            ev.SessionOpened: self._session_opened,
            ev.SessionLost: lambda s, e: s.session_lost(self._causes.fit(e.cause)),
            ev.ProbeAnswered: lambda s, e: s.probe_answered(e.seconds),
            ev.ProcessStarted: lambda s, e: s.process_started(e.generation),
            ev.ProcessEnded: lambda s, e: s.process_ended(e.generation),
            ev.ProcessesSampled: lambda s, e: s.processes_sampled(e.processes, e.resident_bytes, e.cpu_seconds),
            ev.SubscriptionsCounted: lambda s, e: s.subscriptions_counted(e.counts),
            ev.SubscriptionsRestored: lambda s, e: s.subscriptions_restored(e.counts),
            host_events.QuestionSettled: lambda s, e: s.question_settled(e.mode, e.action),
            ev.StderrWritten: lambda s, e: s.stderr_written(len(e.lines) + e.dropped),
            ev.CredentialsRefreshed: lambda s, e: s.credentials_expire(e.expires_at),
            ev.CredentialsDropped: lambda s, _: s.credentials_expire(None),
        }

    @staticmethod
    def _session_opened(series: ServerSeries, event: ev.SessionOpened) -> None:
        series.described(event.transport, event.protocol_version, event.implementation)
        series.session_opened(event.seconds)

    # The CallObserver of the supervisor.

    def call_started(self, server: str) -> None:
        """A request was let through the door."""
        if series := self._servers.get(server):
            series.call_started()

    def call_ended(self, server: str, transport: str, method: str, outcome: str, error_type: str, seconds: float) -> None:
        """A request is over; see `CallObserver`."""
        if series := self._servers.get(server):
            series.call_ended(transport, method, outcome, error_type, seconds)

    def call_progressed(self, server: str, tool: str | None, progress: dict[str, Any]) -> None:
        """Nothing is counted of progress but its notifications, which come by themselves."""

    def notification_received(self, server: str, method: str) -> None:
        """A notification arrived."""
        if series := self._servers.get(server):
            series.notification_received(method)

    def message_refused(self, server: str, reason: str) -> None:
        """A message of a server was refused."""
        if server in self._servers:
            self.refused("server", reason)

    def noise_received(self, server: str, lines: int) -> None:
        """Lines on stdout were no messages."""
        if series := self._servers.get(server):
            series.noise_received(lines)

    # What handlers report; their names are from the configuration.

    def handler_added(self, handler: str) -> None:
        """A handler is there; what alerts ask for is 0 from now on, so that the first of it is seen as an increase."""
        family = self._families.handler
        family.queue.labels(handler).set(0)
        family.circuit.labels(handler).set(0)
        for kind in sorted(EVENT_KINDS):
            for outcome in ("dead", "overflow"):
                family.events.labels(handler, kind, outcome)

    def handler_event(self, handler: str, kind: str, outcome: str) -> None:
        """Something became of an event of a handler, or of one try."""
        self._families.handler.events.labels(handler, among(EVENT_KINDS, kind), among(EVENT_OUTCOMES, outcome)).inc()

    def handler_queue(self, handler: str, length: int) -> None:
        """So many events wait for a handler, or are with it."""
        self._families.handler.queue.labels(handler).set(length)

    def handler_took(self, handler: str, seconds: float) -> None:
        """A handler took so long for one try of an event."""
        self._families.handler.duration.labels(handler).observe(seconds)

    def handler_removed(self, handler: str) -> None:
        """A handler is no more."""
        self._families.handler.remove(handler)

    # What the daemon reports.

    def config_reloaded(self, trigger: str, outcome: ReloadOutcome, at: float) -> None:
        """A load of the configuration is over, the first one at start included. `at` in seconds since the epoch."""
        daemon = self._families.daemon
        daemon.reloads.labels(self._triggers.fit(trigger), outcome).inc()
        daemon.reload_ok.set(outcome == "applied")
        if outcome == "applied":
            daemon.reload_ok_at.set(at)

    def rejected_entries(self, number: int) -> None:
        """So many entries of the configuration are rejected now."""
        self._families.daemon.rejected_entries.set(number)

    def session_opened(self, era: str) -> None:
        """A gateway client opened a session; `era` is `legacy` or `modern`."""
        self._families.daemon.gateway_sessions.labels(among(ERAS, era)).inc()

    def session_closed(self, era: str) -> None:
        """A gateway client's session is over."""
        self._families.daemon.gateway_sessions.labels(among(ERAS, era)).dec()

    def request_ended(self, method: str, outcome: str, seconds: float) -> None:
        """A request of a gateway client is over; `outcome` is `ok` or an `Outcome`."""
        family = self._families.daemon.gateway_duration
        family.labels(among(REQUEST_METHODS, method), among(OUTCOMES, outcome)).observe(seconds)

    def refused(self, side: str, reason: str) -> None:
        """Something was refused to a `server`, a `client`, or at `control` or `metrics`; any thread may say so."""
        self._families.daemon.refused.labels(among(REFUSING_SIDES, side), among(REFUSAL_REASONS, reason)).inc()

    def loop_ticked(self) -> None:
        """The event loop ran its own tick now."""
        self._at_scrape.ticked()

    def state_store(self, *, up: bool) -> None:
        """Whether the state store can be written now."""
        self._at_scrape.state_store_up = up

    def log_dropped(self, sink: str, number: int = 1) -> None:
        """Log records were lost at a sink; any thread may say so."""
        self._families.daemon.log_dropped.labels(self._sinks.fit(sink)).inc(number)
