"""The verdicts of the probes, decided from values."""

from __future__ import annotations

import json

import anyio
import pytest

from mcpvisor.daemon.health import HealthFacts, live, ready
from mcpvisor.daemon.heartbeat import Heartbeat
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus


def status(name: str, state: State, *, required: bool = True) -> ServerStatus:
    """A server in a state; the reason quotes the server."""
    return ServerStatus(
        name=name,
        state=state,
        reason="canary: words of the server",
        since=0.0,
        state_seconds=0.0,
        transport="stdio",
        era=None,
        protocol_version=None,
        implementation="",
        pid=None,
        generation=1,
        restarts=0,
        next_attempt=None,
        required=required,
        wanted="running",
        wanted_by="config",
        in_flight=0,
        queued=0,
        tools=0,
        resources=0,
        resource_templates=0,
        prompts=0,
        stale=False,
        last_exit="",
        handshake_seconds=None,
        subscriptions_wanted=0,
        subscriptions_active=0,
        origin="",
        shown_name="",
    )


def facts(*, tick_age: float = 0.1, config_applied: bool = True, stopping: bool = False) -> HealthFacts:
    """A daemon that is well unless said otherwise."""
    return HealthFacts(tick_age=tick_age, config_applied=config_applied, stopping=stopping)


@pytest.mark.parametrize(("age", "code"), [(0.0, 200), (5.0, 200), (5.1, 503)])
def test_live_means_that_the_loop_turned_lately(age, code):
    """The daemon is alive while its loop's last tick is at most five seconds old."""
    assert code == live(facts(tick_age=age)).status


def test_a_drain_is_no_reason_to_be_killed():
    """Neither a drain nor a configuration that is not applied makes the daemon dead."""
    assert live(facts(config_applied=False, stopping=True)).passed


@pytest.mark.parametrize(
    ("servers", "code", "line"),
    [
        ([], 200, "ok"),
        ([status("docs", State.READY)], 200, "ok"),
        ([status("docs", State.DEGRADED)], 200, "ok"),
        ([status("docs", State.BACKOFF, required=False)], 200, "ok"),
        ([status("docs", State.BACKOFF)], 503, "required servers not ready: docs (backoff)"),
        (
            [status("a", State.STARTING), status("b", State.READY), status("c", State.STOPPED)],
            503,
            "required servers not ready: a (starting), c (stopped)",
        ),
    ],
)
def test_ready_asks_for_every_required_server(servers, code, line):
    """Readiness fails with the list of required servers that answer no calls, and with nothing else."""
    verdict = ready(facts(), servers)

    assert (code, line) == (verdict.status, verdict.line)


def test_a_daemon_without_configuration_is_not_ready():
    """Before the first configuration is applied there is nothing to be ready with."""
    assert "no configuration is applied yet" == ready(facts(config_applied=False), []).line


def test_a_draining_daemon_is_not_ready_and_says_so():
    """While stopping, clients are sent elsewhere, whatever the servers do."""
    verdict = ready(facts(stopping=True), [status("docs", State.BACKOFF)])

    assert (503, "draining") == (verdict.status, verdict.line)


def test_the_long_answer_holds_states_but_no_words_of_servers():
    """The verbose body is JSON with every state, and quotes no server: whoever reaches the port may read it."""
    body = json.dumps(ready(facts(), [status("docs", State.FAILED), status("ok", State.READY)]).body)
    parsed = json.loads(body)

    assert {"docs": "failed", "ok": "ready"} == parsed["checks"]["servers"]["states"]
    assert [{"name": "docs", "state": "failed"}] == parsed["checks"]["required"]["missing"]
    assert "canary" not in body


@pytest.mark.anyio
async def test_the_heart_beats_while_its_task_runs():
    """Ticks come by themselves, tell their listener, and age when the task is gone."""
    ticks: list[None] = []
    enough = anyio.Event()

    def on_tick() -> None:
        ticks.append(None)
        if len(ticks) == 3:
            enough.set()

    heart = Heartbeat(on_tick, interval=0.01)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(heart.run)
            await enough.wait()
            tasks.cancel_scope.cancel()

    assert heart.is_fresh(5.0)
    assert 0.0 <= heart.age() < 5.0
    assert not heart.is_fresh(-1.0)
