"""Owns the series of one server: finds each once and keeps it, so that counting a call costs no look-up by labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from prometheus_client import Counter, Gauge, Histogram, Info

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

IMPLEMENTATION_CHARACTERS: Final = 64

_Family = TypeVar("_Family", Counter, Gauge, Histogram, Info)


class ServerSeries:
    """One server from its `ServerAdded` to its `ServerRemoved`."""

    def __init__(self, families: Families, server: str, transport: str) -> None:
        self._families = families
        self._server = server
        self._transport = transport
        self._in_flight = 0
        self._generation = 0
        self._cpu_seen = 0.0
        self._lost: str | None = None
        self._children: dict[tuple[Counter | Gauge | Histogram | Info, tuple[str, ...]], Any] = {}
        """The server's series by their family and the labels that follow its name."""
        self._begin()

    def forget(self) -> None:
        """Remove every series of the server.

        Each by its labels: looking for them among those of all servers would take as long as all of them together.
        """
        for family, labels in list(self._children):
            self._drop(family, *labels)

    def _child(self, family: _Family, *labels: str) -> _Family:
        """The server's series in a family, by the labels that follow its name."""
        child: _Family | None = self._children.get((family, labels))
        if child is None:
            child = self._children[family, labels] = family.labels(self._server, *labels)
        return child

    def _drop(self, family: Counter | Gauge | Histogram | Info, *labels: str) -> None:
        """Remove a series; one that is not there is no error."""
        if self._children.pop((family, labels), None) is not None:
            family.remove(self._server, *labels)

    def _begin(self) -> None:
        """Start the counters at 0: a rate needs a first value to grow from."""
        server = self._families.server
        self._child(server.up).set(0)
        self._child(server.connects, "ready")
        for reason in sorted(RESTART_REASONS):
            self._child(server.restarts, reason)
        for outcome in sorted(OUTCOMES):
            self._child(self._families.call.outcomes, outcome)
        self._child(self._families.call.in_flight)
        self.described(self._transport, "", "")
        if self._transport == "stdio":
            process = self._families.process
            self._child(process.processes).set(0)
            self._child(process.resident).set(0)
            self._child(process.cpu)
            self._child(process.noise_lines)
            self._child(process.stderr_lines)

    def described(self, transport: str, protocol_version: str, implementation: str) -> None:
        """What the handshake told; an empty `transport` leaves the known one."""
        self._transport = transport or self._transport
        self._child(self._families.server.info).info(
            {
                "transport": self._transport,
                "protocol_version": protocol_version[:IMPLEMENTATION_CHARACTERS],
                "implementation": implementation[:IMPLEMENTATION_CHARACTERS],
            }
        )

    def moved(self, old: State, new: State, at: float, next_attempt: float | None) -> None:
        server = self._families.server
        self._child(server.up).set(new in UP)
        for state in State:
            self._child(server.state, state.value).set(state is new)
        if old is not new:
            self._child(server.since).set(at)
        if next_attempt is None:
            self._drop(server.next_attempt)
        else:
            self._child(server.next_attempt).set(next_attempt)

    def connect_ended(self, outcome: str) -> None:
        self._child(self._families.server.connects, outcome).inc()

    def restarted(self, reason: str) -> None:
        self._child(self._families.server.restarts, among(RESTART_REASONS, reason)).inc()

    def session_lost(self, cause: str) -> None:
        self._lost = cause

    def session_opened(self, seconds: float) -> None:
        self._child(self._families.server.handshake).observe(seconds)
        if self._lost is not None:
            self._child(self._families.server.recoveries, self._lost).inc()
            self._lost = None

    def credentials_expire(self, at: float | None) -> None:
        if at is None:
            self._drop(self._families.server.token_expiry)
        else:
            self._child(self._families.server.token_expiry).set(at)

    def probe_answered(self, seconds: float) -> None:
        self._child(self._families.server.probe).observe(seconds)

    def process_started(self, generation: int) -> None:
        self._generation = generation
        self._cpu_seen = 0.0  # a new process counts its CPU time from 0
        self._child(self._families.process.processes).set(1)

    def process_ended(self, generation: int) -> None:
        if generation == self._generation:  # an older one may end while its successor serves already
            self._child(self._families.process.processes).set(0)
            self._child(self._families.process.resident).set(0)

    def processes_sampled(self, processes: int, resident_bytes: int, cpu_seconds: float) -> None:
        family = self._families.process
        self._child(family.processes).set(processes)
        self._child(family.resident).set(resident_bytes)
        # A sample falls when a process of the tree has ended; its time was counted while it ran.
        self._child(family.cpu).inc(max(0.0, cpu_seconds - self._cpu_seen))
        self._cpu_seen = cpu_seconds

    def stderr_written(self, lines: int) -> None:
        self._child(self._families.process.stderr_lines).inc(lines)

    def noise_received(self, lines: int) -> None:
        self._child(self._families.process.noise_lines).inc(lines)

    def subscriptions_counted(self, counts: Mapping[str, int]) -> None:
        family = self._families.subscription
        for state in sorted(SUBSCRIPTION_STATES):
            self._child(family.number, state).set(counts.get(state, 0))
        for outcome in sorted(set(RESTORE_OUTCOMES.values())):
            self._child(family.restores, outcome)

    def subscriptions_restored(self, counts: Mapping[str, int]) -> None:
        for state, outcome in RESTORE_OUTCOMES.items():
            self._child(self._families.subscription.restores, outcome).inc(counts.get(state, 0))

    def question_settled(self, mode: str, action: str) -> None:
        """A question is over; only an elicitation has a mode."""
        if mode:
            family = self._families.question.elicitations
            self._child(family, among(QUESTION_MODES, mode), among(QUESTION_ACTIONS, action)).inc()

    def call_started(self) -> None:
        self._in_flight += 1
        self._child(self._families.call.in_flight).set(self._in_flight)

    def call_ended(self, transport: str, method: str, outcome: str, error_type: str, seconds: float) -> None:
        # A call may outlive its server's entry and end under a new entry of that name: never below 0.
        self._in_flight = max(0, self._in_flight - 1)
        self._child(self._families.call.in_flight).set(self._in_flight)
        labels = (among(REQUEST_METHODS, method), among(ERROR_TYPES, error_type), "pipe" if transport == "stdio" else "tcp")
        self._child(self._families.call.duration, *labels).observe(seconds)
        self._child(self._families.call.outcomes, among(OUTCOMES, outcome)).inc()

    def notification_received(self, method: str) -> None:
        self._child(self._families.call.notifications, among(NOTIFICATION_METHODS, method)).inc()
