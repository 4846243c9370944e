"""Owns the Prometheus families: their names, labels, buckets and help texts, declared in a registry that is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, disable_created_metrics

OTEL_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The buckets OpenTelemetry prescribes for `mcp.client.operation.duration`."""
HANDSHAKE_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
PROBE_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5)

_Family = TypeVar("_Family", Counter, Gauge, Histogram, Info)


@dataclass(frozen=True, slots=True)
class Declared:
    """One family as a reader of the reference sees it."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class Book:
    """Declares families in one registry and remembers each, for the reference."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.declared: list[Declared] = []

    def note(self, name: str, kind: str, text: str, labels: tuple[str, ...] = ()) -> None:
        """Remember a family that a collector of its own exposes."""
        self.declared.append(Declared(name, kind, labels, text))

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return self._keep(Gauge(name, text, labels, registry=self.registry), name, "gauge", text, labels)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return self._keep(Counter(name, text, labels, registry=self.registry), name, "counter", text, labels)

    def histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(name, text, labels, buckets=buckets, registry=self.registry)
        return self._keep(family, name, "histogram", text, labels)

    def info(self, name: str, text: str, *labels: str, shown: tuple[str, ...]) -> Info:
        """An info family; `labels` tell its series apart, `shown` are the further labels each carries."""
        family = Info(name.removesuffix("_info"), text, labels, registry=self.registry)
        return self._keep(family, name, "info", text, labels, shown)

    def _keep(
        self, family: _Family, name: str, kind: str, text: str, labels: tuple[str, ...], shown: tuple[str, ...] = ()
    ) -> _Family:
        self.note(name, kind, text, labels + shown)
        return family


class ServerFamilies:
    """What is known of each server and its processes."""

    def __init__(self, book: Book) -> None:
        shown = ("transport", "protocol_version", "implementation")
        self.info = book.info("mcpvisor_server_info", "What a server said of itself; always 1.", "server", shown=shown)
        self.up = book.gauge("mcpvisor_server_up", "1 while a server is ready or degraded, else 0.", "server")
        self.state = book.gauge(
            "mcpvisor_server_state", "1 for the state a server is in, 0 for every other.", "server", "state"
        )
        self.since = book.gauge("mcpvisor_server_state_since_timestamp_seconds", "When a server entered its state.", "server")
        self.next_attempt = book.gauge(
            "mcpvisor_server_next_attempt_timestamp_seconds",
            "When a server is tried again by itself; absent while no try is due.",
            "server",
        )
        self.connects = book.counter(
            "mcpvisor_server_connects_total", "Tries to connect that ended, by how.", "server", "outcome"
        )
        self.restarts = book.counter(
            "mcpvisor_server_restarts_total",
            "Generations started after the first, by reason: one that replaces another once it takes over, and none for a "
            "start that only leaves out the question for the protocol era.",
            "server",
            "reason",
        )
        self.handshake = book.histogram(
            "mcpvisor_server_handshake_duration_seconds",
            "How long the handshake of a session took.",
            "server",
            buckets=HANDSHAKE_SECONDS,
        )
        self.probe = book.histogram(
            "mcpvisor_probe_duration_seconds",
            "How long a server took to answer a liveness probe.",
            "server",
            buckets=PROBE_SECONDS,
        )
        self.recoveries = book.counter(
            "mcpvisor_session_recoveries_total",
            "Sessions that stand again after one was lost, by the cause of the loss.",
            "server",
            "cause",
        )
        self.token_expiry = book.gauge(
            "mcpvisor_auth_token_expiry_timestamp_seconds",
            "When the credentials that were fetched for a server expire; absent where none were, or nobody said.",
            "server",
        )


class ProcessFamilies:
    """What the processes of stdio servers use and write; an HTTP server has no such series."""

    def __init__(self, book: Book) -> None:
        self.processes = book.gauge("mcpvisor_server_processes", "Processes of a server; 0 while none runs.", "server")
        self.resident = book.gauge(
            "mcpvisor_server_resident_memory_bytes", "Resident memory of a server's processes.", "server"
        )
        self.cpu = book.counter(
            "mcpvisor_server_cpu_seconds_total", "CPU time used by a server's processes, sampled.", "server"
        )
        self.stderr_lines = book.counter(
            "mcpvisor_server_stderr_lines_total",
            "Lines a server wrote to stderr, those over the rate included.",
            "server",
        )
        self.noise_lines = book.counter(
            "mcpvisor_server_stdout_noise_lines_total", "Lines on stdout that were no JSON-RPC message.", "server"
        )


class CallFamilies:
    """What happens once per call or notification."""

    def __init__(self, book: Book) -> None:
        self.duration = book.histogram(
            "mcp_client_operation_duration_seconds",
            "How long a request to a server took.",
            "server",
            "mcp_method_name",
            "error_type",
            "network_transport",
            buckets=OTEL_SECONDS,
        )
        self.in_flight = book.gauge("mcpvisor_requests_in_flight", "Requests to a server without an answer.", "server")
        self.outcomes = book.counter(
            "mcpvisor_request_outcomes_total", "Requests to a server that are over, by outcome.", "server", "outcome"
        )
        self.notifications = book.counter(
            "mcpvisor_notifications_received_total",
            "Notifications a server sent, by method.",
            "server",
            "mcp_method_name",
        )


class SubscriptionFamilies:
    """What is wanted of the resources of servers; a server of which nothing is wanted has no such series."""

    def __init__(self, book: Book) -> None:
        self.number = book.gauge(
            "mcpvisor_subscriptions", "Resources of a server whose changes are wanted, by how that stands.", "server", "state"
        )
        self.restores = book.counter(
            "mcpvisor_subscription_restores_total",
            "Subscriptions that were brought to a new session, by what became of them.",
            "server",
            "outcome",
        )


class QuestionFamilies:
    """What servers ask people."""

    def __init__(self, book: Book) -> None:
        self.elicitations = book.counter(
            "mcpvisor_elicitations_total",
            "Elicitations of a server that are over, by their mode and what became of them; `withdrawn` ones had no answer.",
            "server",
            "mode",
            "action",
        )


class HandlerFamilies:
    """What becomes of events that are routed to handlers."""

    def __init__(self, book: Book) -> None:
        self.events = book.counter(
            "mcpvisor_handler_events_total",
            "Events of a handler, by kind and by what became of them; an event may be `failed` more than once, and is then "
            "`handled` or `dead`.",
            "handler",
            "kind",
            "outcome",
        )
        self.queue = book.gauge("mcpvisor_handler_queue_length", "Events that wait for a handler, or are with it.", "handler")
        self.duration = book.histogram(
            "mcpvisor_handler_duration_seconds",
            "How long a handler took for one try of an event, whatever became of it.",
            "handler",
            buckets=OTEL_SECONDS,
        )
        self.circuit = book.gauge(
            "mcpvisor_handler_circuit_open",
            "1 while a handler is left alone after failures in a row, else 0.",
            "handler",
        )

    def remove(self, handler: str) -> None:
        """Remove every series of a handler; one without any is no error."""
        for family in (self.events, self.queue, self.duration, self.circuit):
            family.remove_by_labels({"handler": handler})


class DaemonFamilies:
    """What concerns the daemon as a whole; the event loop's own are in `scrape`."""

    def __init__(self, book: Book) -> None:
        self.build = book.info("mcpvisor_build_info", "The version that runs; always 1.", shown=("version", "python_version"))
        self.gateway_sessions = book.gauge("mcpvisor_gateway_sessions", "Sessions of gateway clients, by era.", "era")
        self.gateway_duration = book.histogram(
            "mcpvisor_gateway_request_duration_seconds",
            "How long a request of a gateway client took.",
            "mcp_method_name",
            "outcome",
            buckets=OTEL_SECONDS,
        )
        self.reload_ok = book.gauge(
            "mcpvisor_config_last_reload_successful", "1 when the last load of the configuration applied all of it."
        )
        self.reload_ok_at = book.gauge(
            "mcpvisor_config_last_reload_success_timestamp_seconds", "When all of the configuration was last applied."
        )
        self.reloads = book.counter(
            "mcpvisor_config_reloads_total",
            "Loads of the configuration, by what asked for them and what became of them.",
            "trigger",
            "outcome",
        )
        self.rejected_entries = book.gauge(
            "mcpvisor_config_rejected_entries",
            "Entries whose last good version, or none, runs because of an error, be it of another entry with daemon.strict.",
        )
        self.log_dropped = book.counter(
            "mcpvisor_log_dropped_total", "Log records lost because a sink did not keep up.", "sink"
        )
        self.refused = book.counter(
            "mcpvisor_refused_total", "Messages and requests refused, by who sent them and why.", "side", "reason"
        )
        self.orphans = book.counter(
            "mcpvisor_orphans_swept_total", "Processes of a former run of the daemon that were found and ended."
        )


class Families:
    """Every family in one registry. Use one registry per process: two sets in one registry raise ValueError."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # `_created` doubles the number of series, and nothing here reads it.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves this one untyped
        self.book = Book(registry)
        self.server = ServerFamilies(self.book)
        self.process = ProcessFamilies(self.book)
        self.call = CallFamilies(self.book)
        self.subscription = SubscriptionFamilies(self.book)
        self.question = QuestionFamilies(self.book)
        self.handler = HandlerFamilies(self.book)
        self.daemon = DaemonFamilies(self.book)
        for own in ProcessCollector(registry=registry).collect():
            name = f"{own.name}_total" if own.type == "counter" else own.name
            self.book.note(name, own.type, own.documentation)
