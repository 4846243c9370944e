"""Events, calls and reports end up in the right series, and go with their server."""

from __future__ import annotations

from time import monotonic, thread_time

import pytest

from mcpvisor.metrics.families import OTEL_SECONDS
from mcpvisor.supervisor import events as ev
from mcpvisor.supervisor import host_events
from mcpvisor.supervisor.observer import CallObserver
from mcpvisor.supervisor.states import State


def test_the_recorder_is_a_call_observer(scene):
    """The supervisor takes the recorder as its observer: the type checker agrees."""
    observer: CallObserver = scene.recorder

    assert observer is scene.recorder


def test_state_is_one_hot(scene):
    """Exactly the state a server is in has the value 1, and every state has a series."""
    scene.add("docs")
    scene.move("docs", State.STARTING, State.READY)
    scene.move("docs", State.READY, State.BACKOFF, at=12.0)

    values = {state.value: scene.value("mcpvisor_server_state", server="docs", state=state.value) for state in State}
    assert {state.value: float(state is State.BACKOFF) for state in State} == values


@pytest.mark.parametrize(
    ("state", "up"), [(State.READY, 1.0), (State.DEGRADED, 1.0), (State.BACKOFF, 0.0), (State.STOPPED, 0.0)]
)
def test_up_means_ready_or_degraded(scene, state, up):
    """`mcpvisor_server_up` is 1 only while calls are answered."""
    scene.add("docs")
    scene.move("docs", State.STARTING, state)

    assert up == scene.value("mcpvisor_server_up", server="docs")


def test_since_is_the_entry_into_the_state(scene):
    """A new reason within a state does not make the state younger."""
    scene.add("docs")
    scene.move("docs", State.READY, State.DEGRADED, at=20.0)
    scene.move("docs", State.DEGRADED, State.DEGRADED, at=30.0)

    assert 20.0 == scene.value("mcpvisor_server_state_since_timestamp_seconds", server="docs")


def test_the_expiry_of_a_token_is_absent_while_none_is_known(scene):
    """The gauge is there from the first token that says when it expires, and goes with it."""
    name = "mcpvisor_auth_token_expiry_timestamp_seconds"
    scene.add("docs", transport="http")
    seen = [scene.value(name, server="docs")]
    for expires_at in (99.0, None, 100.0):
        scene.recorder(ev.CredentialsRefreshed(at=1.0, server="docs", source="store", expires_at=expires_at))
        seen.append(scene.value(name, server="docs"))
    scene.recorder(ev.CredentialsDropped(at=1.0, server="docs"))
    seen.append(scene.value(name, server="docs"))

    assert [None, 99.0, None, 100.0, None] == seen


def test_next_attempt_is_absent_while_none_is_due(scene):
    """The time of the next try is shown only while there is one."""
    name = "mcpvisor_server_next_attempt_timestamp_seconds"
    scene.add("docs")
    scene.move("docs", State.STARTING, State.BACKOFF, next_attempt=99.0)
    shown = scene.value(name, server="docs")
    scene.move("docs", State.BACKOFF, State.STARTING)

    assert (99.0, None) == (shown, scene.value(name, server="docs"))


def test_a_removed_server_leaves_no_series(scene):
    """All series of a server go with it at once, and what is still heard of it brings none back (field case K2)."""
    scene.fill(3)
    scene.recorder(ev.SessionLost(at=1.0, server="server-1", generation=1, cause="process_exited", detail=""))
    scene.open("server-1")
    scene.recorder.notification_received("server-1", "notifications/progress")
    scene.recorder(ev.ServerRemoved(at=2.0, server="server-1"))
    scene.recorder.call_ended("server-1", "stdio", "tools/call", "maybe_executed", "error", 1.0)
    scene.recorder.notification_received("server-1", "notifications/progress")
    scene.move("server-1", State.READY, State.STOPPED)

    assert [] == scene.series_of("server-1")
    assert scene.series_of("server-2")


def test_two_thousand_servers_are_removed_without_holding_the_loop(scene):
    """A server's series are found by its own labels, not looked for among those of all others."""
    scene.fill(2000)
    began = thread_time()
    for number in range(2000):
        scene.recorder(ev.ServerRemoved(at=2.0, server=f"server-{number}"))
    took = thread_time() - began

    assert [] == scene.series_of("server-1999")
    assert took < 5  # 0.2 s; looking through the series of all others took 50


def test_a_server_that_comes_back_starts_at_zero(scene):
    """A call that outlived its server's entry does not take the new entry's calls in flight below zero."""
    scene.add("docs")
    scene.recorder.call_started("docs")
    scene.recorder(ev.ServerRemoved(at=2.0, server="docs"))
    scene.add("docs")
    scene.recorder.call_ended("docs", "stdio", "tools/call", "cancelled", "error", 1.0)

    assert 0.0 == scene.value("mcpvisor_requests_in_flight", server="docs")


def test_a_call_is_timed_and_its_outcome_counted(scene):
    """A call feeds the operation histogram, the outcome counter and the calls in flight."""
    scene.add("docs", transport="http")
    scene.recorder.call_started("docs")
    scene.recorder.call_started("docs")
    scene.recorder.call_ended("docs", "http", "tools/call", "timeout", "error", 0.3)
    labels = {
        "server": "docs",
        "mcp_method_name": "tools/call",
        "error_type": "error",
        "network_transport": "tcp",
    }

    assert 1.0 == scene.value("mcp_client_operation_duration_seconds_count", **labels)
    assert 1.0 == scene.value("mcpvisor_request_outcomes_total", server="docs", outcome="timeout")
    assert 1.0 == scene.value("mcpvisor_requests_in_flight", server="docs")


def test_operations_have_the_buckets_of_opentelemetry(scene):
    """The histogram of operations has exactly the buckets that OpenTelemetry prescribes."""
    scene.fill(1)
    bounds = {
        sample.labels["le"]
        for family in scene.registry.collect()
        for sample in family.samples
        if sample.name == "mcp_client_operation_duration_seconds_bucket"
    }

    assert {*(str(float(bound)) for bound in OTEL_SECONDS), "+Inf"} == bounds


def test_words_of_a_server_never_become_labels(scene):
    """Methods, reasons and causes outside the closed sets are `_OTHER`, so a server cannot grow the series."""
    scene.add("docs")
    for number in range(100):
        scene.recorder.notification_received("docs", f"notifications/evil-{number}")
        scene.recorder.call_ended("docs", "stdio", f"evil/{number}", f"evil{number}", f"evil{number}", 0.1)
        scene.recorder.message_refused("docs", f"evil-{number}")
        scene.recorder(ev.ConnectEnded(at=1.0, server="docs", generation=1, outcome=f"Evil {number}", seconds=1.0))

    values = {v for f in scene.registry.collect() for s in f.samples for v in s.labels.values() if "vil" in v}
    assert set() == values
    assert 100.0 == scene.value("mcpvisor_notifications_received_total", server="docs", mcp_method_name="_OTHER")


def test_info_is_one_series_per_server_and_cut(scene):
    """A server that changes its word for itself has one series, of at most 64 characters."""
    scene.add("docs", transport="http")
    scene.open("docs", implementation="one")
    scene.open("docs", transport="sse", implementation="x" * 1000)

    infos = [s.labels for f in scene.registry.collect() for s in f.samples if s.name == "mcpvisor_server_info"]
    expected = {"server": "docs", "transport": "sse", "protocol_version": "2025-06-18", "implementation": "x" * 64}
    assert [expected] == infos


def test_cpu_time_only_grows(scene):
    """A sample that falls, because a process ended or was replaced, never counts time twice."""
    scene.add("docs")
    for generation, seconds in ((1, 5.0), (1, 3.0), (1, 4.0), (2, 2.0)):
        if generation == 2:
            scene.recorder(ev.ProcessStarted(at=1.0, server="docs", pid=2, generation=2))
        scene.recorder(ev.ProcessesSampled(at=1.0, server="docs", processes=1, resident_bytes=1, cpu_seconds=seconds))

    assert 8.0 == scene.value("mcpvisor_server_cpu_seconds_total", server="docs")


def test_an_ended_process_uses_no_memory(scene):
    """Gauges of a process go to 0 with it, unless its successor runs already (field case K2)."""
    ended = {"at": 3.0, "server": "docs", "exit_code": 1, "signal": None, "seconds": 1.0, "wanted": False}
    scene.add("docs")
    scene.recorder(ev.ProcessStarted(at=1.0, server="docs", pid=1, generation=1))
    scene.recorder(ev.ProcessesSampled(at=2.0, server="docs", processes=3, resident_bytes=4096, cpu_seconds=1.0))
    scene.recorder(ev.ProcessEnded(pid=1, generation=1, **ended))
    gone = scene.value("mcpvisor_server_resident_memory_bytes", server="docs")
    scene.recorder(ev.ProcessStarted(at=4.0, server="docs", pid=2, generation=3))
    scene.recorder(ev.ProcessEnded(pid=1, generation=2, **ended))

    assert (0.0, 1.0) == (gone, scene.value("mcpvisor_server_processes", server="docs"))


def test_a_recovery_is_counted_when_the_session_stands_again(scene):
    """A loss alone is no recovery; the next session is one, with the cause of the loss."""
    scene.add("docs")
    scene.open("docs")
    scene.recorder(ev.SessionLost(at=1.0, server="docs", generation=1, cause="session_lost", detail="404"))
    before = scene.value("mcpvisor_session_recoveries_total", server="docs", cause="session_lost")
    scene.open("docs")
    scene.open("docs")

    after = scene.value("mcpvisor_session_recoveries_total", server="docs", cause="session_lost")
    assert (None, 1.0) == (before, after)


def test_stderr_and_noise_are_counted_by_line(scene):
    """Dropped lines count as written; noise is counted by its lines, and not by the events that tell of some of it."""
    scene.add("docs")
    scene.recorder(ev.StderrWritten(at=1.0, server="docs", lines=("a", "b"), dropped=3))
    scene.recorder(ev.StdoutNoise(at=1.0, server="docs", excerpt="hello", count=1000))
    for lines in (1, 89):
        scene.recorder.noise_received("docs", lines)

    assert 5.0 == scene.value("mcpvisor_server_stderr_lines_total", server="docs")
    assert 90.0 == scene.value("mcpvisor_server_stdout_noise_lines_total", server="docs")


def test_restarts_and_connects_have_a_zero_to_grow_from(scene):
    """A rate sees the first restart, because the series is there before it."""
    scene.add("docs")
    before = scene.value("mcpvisor_server_restarts_total", server="docs", reason="exit")
    scene.recorder(ev.ServerRestarted(at=1.0, server="docs", generation=2, reason="exit"))

    assert (0.0, 1.0) == (before, scene.value("mcpvisor_server_restarts_total", server="docs", reason="exit"))


@pytest.mark.parametrize(("outcome", "ok", "at"), [("applied", 1.0, 7.0), ("partial", 0.0, 3.0), ("rejected", 0.0, 3.0)])
def test_a_rejected_reload_is_seen(scene, outcome, ok, at):
    """The last load is successful only when all of it was applied, and only such a load has its time kept."""
    scene.recorder.config_reloaded("start", "applied", 3.0)
    scene.recorder.config_reloaded("file", outcome, 7.0)

    assert ok == scene.value("mcpvisor_config_last_reload_successful")
    assert at == scene.value("mcpvisor_config_last_reload_success_timestamp_seconds")
    assert 1.0 == scene.value("mcpvisor_config_reloads_total", trigger="file", outcome=outcome)


def test_the_daemon_reports_directly(scene):
    """Gateway sessions and requests, refusals, lost log records and swept processes each have their series."""
    scene.recorder.session_opened("modern")
    scene.recorder.session_opened("modern")
    scene.recorder.session_closed("modern")
    scene.recorder.request_ended("tools/call", "ok", 0.1)
    scene.recorder.refused("client", "host")
    scene.recorder.log_dropped("journal", 3)
    scene.recorder.rejected_entries(2)
    scene.recorder(ev.OrphansSwept(at=1.0, count=4))

    seen = [
        scene.value("mcpvisor_gateway_sessions", era="modern"),
        scene.value("mcpvisor_gateway_request_duration_seconds_count", mcp_method_name="tools/call", outcome="ok"),
        scene.value("mcpvisor_refused_total", side="client", reason="host"),
        scene.value("mcpvisor_log_dropped_total", sink="journal"),
        scene.value("mcpvisor_config_rejected_entries"),
        scene.value("mcpvisor_orphans_swept_total"),
    ]
    assert [1.0, 1.0, 1.0, 3.0, 2.0, 4.0] == seen


def test_lag_is_worked_out_at_the_scrape(scene, monkeypatch):
    """A loop that ticked in time has no lag; one that stopped ticking is behind by all the time since."""
    scene.recorder.loop_ticked()
    in_time = scene.value("mcpvisor_event_loop_lag_seconds")
    later = monotonic() + 10.25
    monkeypatch.setattr("mcpvisor.metrics.scrape.time.monotonic", lambda: later)

    assert 0.0 == in_time
    assert 10.0 == pytest.approx(scene.value("mcpvisor_event_loop_lag_seconds"), abs=0.2)


def test_what_is_not_known_is_absent(scene):
    """Before the first tick there is no lag, and without a state store it is neither up nor down."""
    before = (scene.value("mcpvisor_event_loop_lag_seconds"), scene.value("mcpvisor_state_store_up"))
    scene.recorder.state_store(up=False)

    assert (None, None, 0.0) == (*before, scene.value("mcpvisor_state_store_up"))


def test_the_state_store_is_up_or_down_as_its_events_say(scene):
    """It is down from the event that it is degraded to the one that it has recovered."""
    seen = []
    for event in (
        host_events.StateStoreDegraded(at=1.0, reason="full"),
        host_events.StateStoreReplaced(at=1.5, reason="damaged", aside=""),
        host_events.StateStoreRecovered(at=2.0, seconds=1.0, lost=0),
    ):
        scene.recorder(event)
        seen.append(scene.value("mcpvisor_state_store_up"))

    assert [0.0, 0.0, 1.0] == seen


@pytest.mark.alone
def test_counting_a_call_is_cheap(scene):
    """A call costs its counting less than 50 microseconds, however many servers there are."""
    scene.fill(200)
    start = monotonic()
    for _ in range(2000):
        scene.recorder.call_started("server-7")
        scene.recorder.call_ended("server-7", "stdio", "tools/call", "ok", "", 0.01)
    each = (monotonic() - start) / 2000

    assert each < 50e-6


def test_subscriptions_are_counted_by_state(scene):
    """The states of the wanted resources as they are now, and what became of them at each new session."""
    scene.add("docs", "plain")
    scene.recorder(ev.SubscriptionsCounted(at=1.0, server="docs", counts={"active": 2, "failed": 1}))
    for counts in ({"active": 2, "failed": 1}, {"active": 1, "polled": 1, "pending": 1}):
        scene.recorder(ev.SubscriptionsRestored(at=1.0, server="docs", generation=1, counts=counts))
    states = ("pending", "active", "failed", "polled")
    outcomes = ("restored", "polled", "failed")

    assert [0, 2, 1, 0] == [scene.value("mcpvisor_subscriptions", server="docs", state=state) for state in states]
    assert [3, 1, 2] == [
        scene.value("mcpvisor_subscription_restores_total", server="docs", outcome=outcome) for outcome in outcomes
    ]
    assert None is scene.value("mcpvisor_subscriptions", server="plain", state="active")


def test_subscriptions_go_with_their_server(scene):
    """No series is left of a server that was removed."""
    scene.add("docs")
    scene.recorder(ev.SubscriptionsCounted(at=1.0, server="docs", counts={"active": 2}))
    scene.recorder(ev.ServerRemoved(at=2.0, server="docs"))

    assert [] == scene.series_of("docs")


def test_events_of_handlers(scene):
    """Events are counted by handler, kind and outcome, with the queue and the time of each try; other words are not let in."""
    scene.recorder.handler_added("hook")
    scene.handle("hook")
    scene.handle("hook", "earthquake", "disaster")

    assert 0 == scene.value("mcpvisor_handler_events_total", handler="hook", kind="list_changed", outcome="dead")
    assert 1 == scene.value("mcpvisor_handler_events_total", handler="hook", kind="resource_updated", outcome="handled")
    assert 1 == scene.value("mcpvisor_handler_events_total", handler="hook", kind="_OTHER", outcome="_OTHER")
    assert 0 == scene.value("mcpvisor_handler_queue_length", handler="hook")
    assert 2 == scene.value("mcpvisor_handler_duration_seconds_count", handler="hook")


def test_the_circuit_of_a_handler(scene):
    """That a handler is left alone shows from then until it takes events again, and what is known of it goes with it."""
    scene.recorder.handler_added("hook")
    found = [scene.value("mcpvisor_handler_circuit_open", handler="hook")]
    scene.recorder(host_events.HandlerCircuitOpened(at=1.0, handler="hook", failures=5, why="x", next_try=31.0))
    found.append(scene.value("mcpvisor_handler_circuit_open", handler="hook"))
    scene.recorder(host_events.HandlerCircuitClosed(at=2.0, handler="hook", seconds=1.0))
    found.append(scene.value("mcpvisor_handler_circuit_open", handler="hook"))
    scene.handle("hook")
    scene.handle("other")
    scene.recorder.handler_removed("hook")
    left = {s.labels.get("handler") for f in scene.registry.collect() for s in f.samples}

    assert [0, 1, 0] == found
    assert {None, "other"} == left
