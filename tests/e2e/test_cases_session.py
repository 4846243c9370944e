"""How sessions end in the field: each way run by a puppet over HTTP, and what its header says a client must do."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.e2e.case import Case, are_steps
from tests.supervisor.transports.http_rig import Puppet
from tests.supervisor.transports.http_rig import puppet as http_puppet

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import Event, ServerStateChanged, SessionLost
from mcpvisor.supervisor.spec import HttpTarget, RestartPolicy, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

MODES = ("404-json", "404-empty", "404-html", "400", "200-sse", "late")


class TestLostSession:
    @pytest.fixture
    async def session(self, supervisor: Supervisor, tmp_path: Path, quick: RestartPolicy) -> AsyncIterator[Callable[..., Any]]:
        """Puts an HTTP puppet under supervision: `await session("404-html")`; gives the case and the puppet."""
        with ExitStack() as puppets:

            async def start(*args: str) -> tuple[Case, Puppet]:
                puppet = puppets.enter_context(http_puppet("http_session_expiry.py", *args))
                await supervisor.apply([ServerSpec(name="http", target=HttpTarget(url=puppet.url), restart=quick)])
                case = Case(supervisor, "http", tmp_path / "http.log")
                await case.reach(State.READY)
                return case, puppet

            yield start

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_read_does_not_notice(self, session, mode):
        """The id is dropped, the handshake made without it, and what only reads is repeated once: the caller has its answer."""
        case, puppet = await session(mode)
        before = puppet.state()
        puppet.control("expire")
        result = await case.request("tools/list")
        after = puppet.state()

        assert ["echo", "add_one"] == [tool["name"] for tool in result["tools"]]
        assert 1 == after["dead_requests"] - before["dead_requests"]
        assert (2, 0) == (after["initializes"], after.get("init_with_session", 0))
        assert ["session_lost"] == [event.cause for event in case.told(SessionLost)]

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_tool_is_not_called_twice(self, session, mode):
        """The server may have run it before it said so: the caller is told that nobody knows, and the next call works."""
        case, puppet = await session(mode)
        puppet.control("expire")
        failure = await case.failure("tools/call", {"name": "add_one", "arguments": {}})
        once = puppet.state().get("added", 0)
        await case.call("add_one")

        assert (Outcome.MAYBE_EXECUTED, "session_lost") == (failure.outcome, failure.cause)
        assert (1 if mode == "late" else 0) == once
        assert once + 1 == puppet.state()["added"]
        assert (2, 0) == (puppet.state()["initializes"], puppet.state().get("init_with_session", 0))

    @pytest.mark.parametrize("mode", MODES)
    async def test_many_that_fail_together_share_one_recovery(self, session, mode):
        """Ten calls meet the loss at once, and there is one handshake for all of them."""
        case, puppet = await session(mode, "--every", "50")
        puppet.control("expire")
        failures: list[RequestFailed] = []

        async def call() -> None:
            try:
                await case.call("add_one")
            except RequestFailed as failure:
                failures.append(failure)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(call)
        added = puppet.state().get("added", 0)
        with anyio.fail_after(20):
            await case.supervisor.wait_until("http", lambda status: status.generation > 1 and status.state is State.READY)

        assert 2 == puppet.state()["initializes"]
        assert {Outcome.MAYBE_EXECUTED} == {failure.outcome for failure in failures}
        assert (10 if mode == "late" else 10 - len(failures)) == added

    async def test_sessions_that_run_out_are_renewed_again_and_again(self, session):
        """Five requests a session, twenty reads: every one has its answer."""
        case, puppet = await session("404-json")
        for _ in range(20):
            await case.request("tools/list")

        assert 5 <= puppet.state()["initializes"] <= 7

    async def test_a_session_that_ends_at_once_is_backed_off_from(self, session):
        """Where each new session ends at once too, tries become rarer, whatever callers do."""
        case, puppet = await session("404-json", "--every", "1")
        heard: list[Event] = []
        case.supervisor.bus.attach(heard.append)
        before = puppet.state()["initializes"]
        began = time.monotonic()
        waits: list[float] = []
        while time.monotonic() - began < 2.0 or (len(waits) < 4 and time.monotonic() - began < 20.0):
            with suppress(RequestFailed):
                await case.request("tools/list", deadline=0.5)
            changes = [event for event in heard if isinstance(event, ServerStateChanged)]
            waits = [event.next_attempt - event.at for event in changes if event.new is State.BACKOFF]
        tries = puppet.state()["initializes"] - before

        assert 4 <= len(waits) <= tries + 1 <= 30
        assert are_steps([0.4] * len(waits), waits)
        assert max(waits) > 0.05
