"""Owns the series of one server: finds each once and keeps it, so that counting a call costs no look-up by labels."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Counter, Histogram

from mcpvisor.metrics.families import Families
from mcpvisor.metrics.labels import (
    ERROR_TYPES,
    NOTIFICATION_METHODS,
    OUTCOMES,
    QUESTION_ACTIONS,
    QUESTION_MODES,
    REQUEST_METHODS,
    RESTART_REASONS,
    RESTORE_OUTCOMES,
    SUBSCRIPTION_STATES,
    among,
)
from mcpvisor.supervisor.states import UP, State

IMPLEMENTATION_CHARACTERS = 64


class ServerSeries:
    """One server from its `ServerAdded` to its `ServerRemoved`."""

    def __init__(self, families: Families, server: str, transport: str) -> None:
        self._families = families
        self._server = server
        self._transport = transport
        self._in_flight = 0
        self._generation = 0
        self._cpu_seen = 0.0
        self._noise_seen = 0
        self._lost: str | None = None
        self._durations: dict[tuple[str, str, str], Histogram] = {}
        self._outcomes: dict[str, Counter] = {o: families.call.outcomes.labels(server, o) for o in sorted(OUTCOMES)}
        self._notifications: dict[str, Counter] = {}
        self._in_flight_gauge = families.call.in_flight.labels(server)
        self._stderr_lines = families.process.stderr_lines.labels(server) if transport == "stdio" else None
        self._begin()

    def _begin(self) -> None:
        """Start the counters at 0: a rate needs a first value to grow from."""
        server = self._families.server
        server.up.labels(self._server).set(0)
        server.connects.labels(self._server, "ready")
        for reason in sorted(RESTART_REASONS):
            server.restarts.labels(self._server, reason)
        self.described(self._transport, "", "")
        if self._transport == "stdio":
            process = self._families.process
            process.processes.labels(self._server).set(0)
            process.resident.labels(self._server).set(0)
            process.cpu.labels(self._server)
            process.noise_lines.labels(self._server)

    def described(self, transport: str, protocol_version: str, implementation: str) -> None:
        """What the handshake told; an empty `transport` leaves the known one."""
        self._transport = transport or self._transport
        self._families.server.info.labels(self._server).info(
            {
                "transport": self._transport,
                "protocol_version": protocol_version[:IMPLEMENTATION_CHARACTERS],
                "implementation": implementation[:IMPLEMENTATION_CHARACTERS],
            }
        )

    def moved(self, old: State, new: State, at: float, next_attempt: float | None) -> None:
        server = self._families.server
        server.up.labels(self._server).set(new in UP)
        for state in State:
            server.state.labels(self._server, state.value).set(state is new)
        if old is not new:
            server.since.labels(self._server).set(at)
        if next_attempt is None:
            server.next_attempt.remove(self._server)
        else:
            server.next_attempt.labels(self._server).set(next_attempt)

    def connect_ended(self, outcome: str) -> None:
        self._families.server.connects.labels(self._server, outcome).inc()

    def restarted(self, reason: str) -> None:
        self._families.server.restarts.labels(self._server, among(RESTART_REASONS, reason)).inc()

    def session_lost(self, cause: str) -> None:
        self._lost = cause

    def session_opened(self, seconds: float) -> None:
        self._families.server.handshake.labels(self._server).observe(seconds)
        if self._lost is not None:
            self._families.server.recoveries.labels(self._server, self._lost).inc()
            self._lost = None

    def credentials_expire(self, at: float | None) -> None:
        if at is None:
            self._families.server.token_expiry.remove(self._server)
        else:
            self._families.server.token_expiry.labels(self._server).set(at)

    def probe_answered(self, seconds: float) -> None:
        self._families.server.probe.labels(self._server).observe(seconds)

    def process_started(self, generation: int) -> None:
        self._generation = generation
        self._cpu_seen = 0.0  # a new process counts its CPU time from 0
        self._families.process.processes.labels(self._server).set(1)

    def process_ended(self, generation: int) -> None:
        if generation == self._generation:  # an older one may end while its successor serves already
            self._families.process.processes.labels(self._server).set(0)
            self._families.process.resident.labels(self._server).set(0)

    def processes_sampled(self, processes: int, resident_bytes: int, cpu_seconds: float) -> None:
        family = self._families.process
        family.processes.labels(self._server).set(processes)
        family.resident.labels(self._server).set(resident_bytes)
        # A sample falls when a process of the tree has ended; its time was counted while it ran.
        family.cpu.labels(self._server).inc(max(0.0, cpu_seconds - self._cpu_seen))
        self._cpu_seen = cpu_seconds

    def stderr_written(self, lines: int) -> None:
        if self._stderr_lines is None:
            self._stderr_lines = self._families.process.stderr_lines.labels(self._server)
        self._stderr_lines.inc(lines)

    def noise_counted(self, total: int) -> None:
        """`total` is what the server has reached; a smaller number than before is a count that began again."""
        grown = total - self._noise_seen if total > self._noise_seen else total
        self._noise_seen = total
        self._families.process.noise_lines.labels(self._server).inc(grown)

    def subscriptions_counted(self, counts: Mapping[str, int]) -> None:
        family = self._families.subscription
        for state in sorted(SUBSCRIPTION_STATES):
            family.number.labels(self._server, state).set(counts.get(state, 0))
        for outcome in sorted(set(RESTORE_OUTCOMES.values())):
            family.restores.labels(self._server, outcome)

    def subscriptions_restored(self, counts: Mapping[str, int]) -> None:
        for state, outcome in RESTORE_OUTCOMES.items():
            self._families.subscription.restores.labels(self._server, outcome).inc(counts.get(state, 0))

    def question_settled(self, mode: str, action: str) -> None:
        """A question is over; only an elicitation has a mode."""
        if mode:
            family = self._families.question.elicitations
            family.labels(self._server, among(QUESTION_MODES, mode), among(QUESTION_ACTIONS, action)).inc()

    def call_started(self) -> None:
        self._in_flight += 1
        self._in_flight_gauge.set(self._in_flight)

    def call_ended(self, transport: str, method: str, outcome: str, error_type: str, seconds: float) -> None:
        # A call may outlive its server's entry and end under a new entry of that name: never below 0.
        self._in_flight = max(0, self._in_flight - 1)
        self._in_flight_gauge.set(self._in_flight)
        self._duration(transport, method, error_type).observe(seconds)
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._families.call.outcomes.labels(self._server, among(OUTCOMES, outcome))
        counter.inc()

    def _duration(self, transport: str, method: str, error_type: str) -> Histogram:
        method = among(REQUEST_METHODS, method)
        series = self._durations.get((transport, method, error_type))
        if series is None:
            series = self._families.call.duration.labels(
                self._server, method, among(ERROR_TYPES, error_type), "pipe" if transport == "stdio" else "tcp"
            )
            self._durations[transport, method, error_type] = series
        return series

    def notification_received(self, method: str) -> None:
        method = among(NOTIFICATION_METHODS, method)
        counter = self._notifications.get(method)
        if counter is None:
            counter = self._families.call.notifications.labels(self._server, method)
            self._notifications[method] = counter
        counter.inc()
