from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from mcpvisor.daemon.cli.using import _rows
from mcpvisor.supervisor.events import CatalogChanged, ProbeAnswered, ProbeMissed, ProcessStarted, ServerRemoved, StderrWritten
from mcpvisor.supervisor.spec import ToolView
from mcpvisor.supervisor.states import State

pytestmark = pytest.mark.anyio


def info(body):
    return next(one for one in body["error"]["details"] if one["@type"].endswith("ErrorInfo"))


@contextlib.asynccontextmanager
async def speaking(api):
    async with api.served(), api.client() as client:
        yield client


async def events_of(response, count):
    """The first events of a stream."""
    found, name = [], ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            found.append((name, json.loads(line[6:])))
            if len(found) == count:
                return found
    return found


async def test_status_has_the_promised_shape(api):
    """`GET /v1/status` has every promised field with its promised meaning."""
    async with speaking(api) as client:
        status = (await client.get("/v1/status")).json()

    promised = {
        "name", "state", "reason", "since", "transport", "era", "pid", "restarts", "next_attempt", "subscriptions", "required",
    }  # fmt: skip
    bad = status["servers"][0]

    assert (1, 2) == (status["ready"], status["total"])
    assert promised <= bad.keys()
    assert ("bad", "backoff", "it exited") == (bad["name"], bad["state"], bad["reason"])
    assert {"wanted": 0, "active": 0} == bad["subscriptions"]
    assert {"ok": True, "rejected": []} == status["config"]


async def test_status_waits_until_all_is_well(api):
    """`?wait` holds the answer back until every server is as it is wanted."""
    async with speaking(api) as client, anyio.create_task_group() as tasks:

        async def ask():
            answer.append((await client.get("/v1/status?wait=4")).json())

        answer = []
        tasks.start_soon(ask)
        with anyio.fail_after(20):
            while not api.supervisor.bus._queued:
                await anyio.lowlevel.checkpoint()
        assert [] == answer
        api.supervisor.move("bad", State.READY)

    assert 2 == answer[0]["ready"]


async def test_a_wait_does_not_look_at_all_servers_for_each_event(api, monkeypatch):
    """While the last of a hundred servers is not there, what happens to the others costs next to nothing."""
    names = [f"server-{number:02}" for number in range(100)]
    supervisor = api.supervisor = api.puppet.PuppetSupervisor(*(api.puppet.a_status(one, State.STARTING) for one in names))
    looks, answer, statuses = [], [], supervisor.statuses
    async with speaking(api) as client, anyio.create_task_group() as tasks:

        async def ask():
            answer.append((await client.get("/v1/status?wait=20")).json())

        monkeypatch.setattr(supervisor, "statuses", lambda: looks.append(1) or statuses())
        tasks.start_soon(ask)
        with anyio.fail_after(20):
            while not supervisor.bus._queued:
                await anyio.lowlevel.checkpoint()
        for name in names:
            supervisor.move(name, State.READY)
            await anyio.lowlevel.checkpoint()

    assert 100 == answer[0]["ready"]
    assert len(looks) <= 3  # at the begin, once the last one is ready, and for the answer


async def test_a_server_that_leaves_is_not_waited_for(api):
    """`?wait` answers when the one that it waited for has left the configuration."""
    async with speaking(api) as client, anyio.create_task_group() as tasks:

        async def ask():
            answer.append((await client.get("/v1/status?wait=20")).json())

        answer = []
        tasks.start_soon(ask)
        with anyio.fail_after(20):
            while not api.supervisor.bus._queued:
                await anyio.lowlevel.checkpoint()
            del api.supervisor.now["bad"]
            api.supervisor.bus.emit(ServerRemoved(at=time.time(), server="bad"))
            while not answer:
                await anyio.sleep(0.01)

    assert ["good"] == [one["name"] for one in answer[0]["servers"]]


async def test_status_answers_when_the_wait_is_over(api):
    """`?wait` answers with what is, when the time is over."""
    async with speaking(api) as client:
        started = time.monotonic()
        status = (await client.get("/v1/status?wait=1")).json()

    assert not status["healthy"]
    assert 0.9 < time.monotonic() - started < 10


async def test_a_flood_on_stderr_is_counted(api):
    """Lines over the rate are counted over the life of a process, and forgotten with the next one, or with the server."""
    async with speaking(api) as client:
        for _ in range(2):
            api.supervisor.bus.emit(StderrWritten(at=1.0, server="good", lines=("x",), dropped=300))
        flooded = (await client.get("/v1/servers/good")).json()
        api.supervisor.bus.emit(ProcessStarted(at=1.0, server="good", pid=7, generation=2))
        mended = (await client.get("/v1/servers/good")).json()
        api.supervisor.bus.emit(StderrWritten(at=1.0, server="good", lines=("x",), dropped=5))
        again = (await client.get("/v1/servers/good")).json()
        api.supervisor.bus.emit(ServerRemoved(at=1.0, server="good"))
        new = (await client.get("/v1/servers/good")).json()

    assert [600, 0, 5, 0] == [one["stderr_dropped"] for one in (flooded, mended, again, new)]
    assert "floods stderr" in flooded["what"]


async def test_the_kind_of_an_event_is_its_own(api):
    """An event about a list has the kind of an event; which list it is about stands beside it."""
    api.supervisor.bus.emit(CatalogChanged(at=1.0, server="good", kind="tools", count=3))
    async with speaking(api) as client:
        events = (await client.get("/v1/events?follow=false")).json()["events"]

    assert [("catalog_changed", "tools", 3)] == [(one["kind"], one["catalog"], one["count"]) for one in events]


async def test_explain_is_what_a_server_answers_to(api):
    """`GET /v1/servers/{id}` explains the server."""
    async with speaking(api) as client:
        explanation = (await client.get("/v1/servers/bad")).json()

    assert "bad is down: it exited" == explanation["what"]
    assert "bad" == explanation["server"]["name"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/servers/nosuch"),
        ("GET", "/v1/servers/nosuch/logs"),
        ("GET", "/v1/servers/nosuch/offer"),
        ("POST", "/v1/servers/nosuch:stop"),
        ("POST", "/v1/servers/nosuch/call"),
        ("GET", "/v1/status?server=nosuch"),
        ("GET", "/v1/events?server=nosuch"),
    ],
)
async def test_an_unknown_server_is_not_found(api, method, path):
    """A name that no server has is 404 everywhere, as an AIP-193 error that names it."""
    async with speaking(api) as client:
        answer = await client.request(method, path)

    error = answer.json()["error"]
    assert (404, 404, "NOT_FOUND") == (answer.status_code, error["code"], error["status"])
    assert "UNKNOWN_SERVER" == info(answer.json())["reason"]
    assert "nosuch" in error["message"]


@pytest.mark.parametrize("order", ["start", "stop", "restart", "enable", "disable"])
async def test_an_order_is_given_in_the_name_of_the_peer(api, order):
    """An order reaches the supervisor with the uid of the process that gave it."""
    import os

    async with speaking(api) as client:
        answer = await client.post(f"/v1/servers/good:{order}")

    assert 200 == answer.status_code
    assert [("good", order, f"uid:{os.getuid()}")] == api.supervisor.orders


async def test_an_unknown_order_is_not_found(api):
    """An order that nobody knows is 404 and names those that are known."""
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good:explode")

    assert 404 == answer.status_code
    assert "restart" in answer.json()["error"]["message"]
    assert [] == api.supervisor.orders


async def test_an_unknown_route_is_an_error_object(api):
    """What the router refuses is an AIP-193 error as well."""
    async with speaking(api) as client:
        missing, wrong = await client.get("/v2/status"), await client.post("/v1/status")

    assert (404, "NOT_FOUND") == (missing.status_code, missing.json()["error"]["status"])
    assert (405, 405) == (wrong.status_code, wrong.json()["error"]["code"])


async def test_a_request_with_an_origin_is_refused(api):
    """A request that a browser made is refused, whatever it asks for."""
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good:stop", headers={"Origin": "http://localhost"})

    assert (403, "ORIGIN_REFUSED") == (answer.status_code, info(answer.json())["reason"])
    assert [] == api.supervisor.orders


@pytest.mark.parametrize(
    ("content", "kind", "word"),
    [
        (b'{"tool": "echo"}', "text/plain", "application/json"),
        (b'{"tool": ', "application/json", "JSON"),
        (b"[1]", "application/json", "object"),
        (b'{"tool": 5}', "application/json", "tool"),
        (b'{"tool": "echo", "arguments": []}', "application/json", "arguments"),
        (b'{"tool": "echo", "timeout": -1}', "application/json", "timeout"),
        (b'{"tool": "echo", "timeout": true}', "application/json", "timeout"),
    ],
)
async def test_a_body_that_cannot_be_meant_is_refused(api, content, kind, word):
    """A body of another kind, broken JSON or a wrong field is 400 and says what was expected; nothing is called."""
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good/call", content=content, headers={"Content-Type": kind})

    assert (400, "INVALID_ARGUMENT") == (answer.status_code, answer.json()["error"]["status"])
    assert word in answer.json()["error"]["message"]
    assert [] == api.supervisor.doors["good"].asked


async def test_a_body_over_the_cap_is_refused(api, monkeypatch):
    """A body that is too large is refused before it is read whole."""
    monkeypatch.setattr("mcpvisor.daemon.control.requests.MAX_BODY", 1000)
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good/call", json={"tool": "x" * 2000})

    assert (400, "the body is over 1000 bytes") == (answer.status_code, answer.json()["error"]["message"])


async def test_a_call_passes_the_raw_result(api):
    """A result reaches the caller as the server sent it, fields and numbers that nobody knows included."""
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good/call", json={"tool": "echo", "arguments": {"text": "hi"}, "timeout": 3})

    method, params, principal, deadline = api.supervisor.doors["good"].asked[0]
    assert b"10000000000000000000000000" in answer.content
    assert ("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, 3.0) == (method, params, deadline)
    assert principal.name.startswith("uid:")


async def test_a_failed_call_tells_outcome_and_cause(api):
    """The error of a call that got no result says what became of it, and when another try makes sense."""
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good/call", json={"tool": "dies"})

    detail = answer.json()["error"]["details"][1]
    assert (500, "MAYBE_EXECUTED") == (answer.status_code, info(answer.json())["reason"])
    assert ("good", "maybe_executed", "process_exited", 1.5) == (
        detail["server"], detail["outcome"], detail["cause"], detail["retry_after_s"],
    )  # fmt: skip


async def test_a_call_as_a_stream_has_its_progress_first(api):
    """A caller that accepts an event stream gets the progress in order, then the result."""
    async with speaking(api) as client:
        stream = client.stream("POST", "/v1/servers/good/call", json={"tool": "steps"}, headers={"Accept": "text/event-stream"})
        async with stream as response:
            events = await events_of(response, 4)

    assert ["progress", "progress", "result"] == [name for name, _ in events]
    assert ["step 1", "step 2"] == [value["message"] for name, value in events if name == "progress"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_caller_that_leaves_withdraws_its_call(api, accept):
    """When the caller goes away its request is cancelled, in both forms of the answer."""
    async with speaking(api) as client:

        async def call():
            await client.post("/v1/servers/good/call", json={"tool": "hangs"}, headers={"Accept": accept})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(20):
                while not api.supervisor.doors["good"].asked:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await api.supervisor.doors["good"].cancelled.wait()


async def test_a_resource_is_read(api):
    """`read` gives the raw result of reading a resource."""
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good/read", json={"uri": "puppet://good"})

    assert {"contents": [{"uri": "puppet://good", "text": "the text"}]} == answer.json()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        *[("POST", f"/v1/servers/bad:{order}", {}) for order in ("start", "stop", "restart", "enable", "disable")],
        ("POST", "/v1/servers/bad/call", {"tool": "echo"}),
        ("POST", "/v1/servers/bad/read", {"uri": "x://1"}),
        ("GET", "/v1/servers/bad/offer", None),
    ],
)
async def test_an_invalid_entry_is_told_from_a_name_that_is_unknown(api, method, path, body):
    """Whoever wants to use an entry that is not valid is told that it is not, and why, in the supervisor's own words."""
    api.supervisor.invalid["bad"] = "unknown key 'comand'"
    async with speaking(api) as client:
        answer = await client.request(method, path, json=body)

    assert (404, "the entry of 'bad' is not valid: unknown key 'comand'") == (
        answer.status_code,
        answer.json()["error"]["message"],
    )


async def test_an_order_that_does_not_fit_is_refused(api):
    """A start of a disabled server is refused with FAILED_PRECONDITION, and the text says what to do first."""
    api.supervisor.move("good", State.DISABLED, wanted="disabled")
    async with speaking(api) as client:
        answer = await client.post("/v1/servers/good:start", json={})

    error = answer.json()["error"]
    assert (400, "FAILED_PRECONDITION", "ORDER_REFUSED") == (answer.status_code, error["status"], info(answer.json())["reason"])
    assert "`mcpvisor enable good` first" in error["message"]
    assert [] == api.supervisor.orders


async def test_probes_that_are_missed_are_explained_until_one_is_answered(api):
    """`explain` says of a server that it does not answer probes for as long as that is so."""
    missed = ProbeMissed(at=1.0, server="good", misses=1, allowed=3)
    async with speaking(api) as client:
        api.supervisor.bus.emit(missed)
        deaf = (await client.get("/v1/servers/good")).json()
        api.supervisor.bus.emit(ProbeAnswered(at=2.0, server="good", seconds=0.1))
        well = (await client.get("/v1/servers/good")).json()

    assert "good does not answer probes (1 of 3 missed in a row)" == deaf["what"]
    assert "good is ready" == well["what"]


async def test_a_rejected_edit_is_explained(api):
    """`explain` has what was rejected of the entry of the server, and not what was rejected of others."""
    theirs = {"where": "/etc/m.toml:9", "error": "other", "server": "bad"}
    ours = {"where": "/etc/m.toml:3", "error": "unknown key 'comand'", "server": "good"}
    api.reloading.config = {"ok": False, "rejected": [theirs, ours]}
    async with speaking(api) as client:
        explanation = (await client.get("/v1/servers/good")).json()

    assert [ours] == explanation["rejected"]
    assert "its entry was edited and rejected: /etc/m.toml:3: unknown key 'comand'" in explanation["what"]


async def test_offers_are_the_servers_own_entries(api):
    """What is listed are the entries of the servers, of one or of all."""
    async with speaking(api) as client:
        one = (await client.get("/v1/servers/good/offer")).json()
        every = (await client.get("/v1/offers")).json()["servers"]

    assert "echo" == one["tools"][0]["name"]
    assert ["bad", "good"] == [offer["server"] for offer in every]


async def test_tools_that_are_denied_are_told(api):
    """An operator sees which tools of a server its entry keeps from clients."""
    api.supervisor.doors["good"].spec = replace(api.supervisor.doors["good"].spec, tools=ToolView(deny=("ec*",)))
    async with speaking(api) as client:
        good, bad = [(await client.get(f"/v1/servers/{name}/offer")).json() for name in ("good", "bad")]

    assert (["echo"], []) == (good["tools_denied"], bad["tools_denied"])
    assert "(denied to clients)" in _rows(good, "tools")[0][2]
    assert "(denied to clients)" not in _rows(bad, "tools")[0][2]


async def test_answers_steer_no_terminal(api):
    """Controls and direction marks in what servers say leave as escapes: an answer may be printed; its value is kept."""
    words = "größe \x9b2J\u202e\x7f"
    offer = api.supervisor.doors["good"].offer
    api.supervisor.doors["good"].offer = replace(offer, instructions=words)
    async with speaking(api) as client:
        answer = await client.get("/v1/servers/good/offer")

    assert words == answer.json()["instructions"]
    assert "größe \\u009b2J\\u202e\\u007f" in answer.text


async def test_logs_are_the_tail(api):
    """`logs` gives as many of the newest lines as are asked for, each with when it was written."""
    api.supervisor.said["good"] = ["a", "b", "c"]
    async with speaking(api) as client:
        tail = (await client.get("/v1/servers/good/logs?lines=2")).json()
        wrong = await client.get("/v1/servers/good/logs?lines=many")

    at = api.puppet.SAID_AT
    assert [{"at": at, "line": "b"}, {"at": at, "line": "c"}] == tail["lines"]
    assert 400 == wrong.status_code


async def test_followed_logs_go_on(api):
    """Followed logs begin with the tail and go on with what is written, of that server alone."""
    api.supervisor.said["good"] = ["old"]
    async with speaking(api) as client, client.stream("GET", "/v1/servers/good/logs?follow=true") as response:
        for server in ("bad", "good"):
            api.supervisor.bus.emit(StderrWritten(at=1.0, server=server, lines=(f"of {server}",), dropped=3))
        events = await events_of(response, 2)

    assert [
        {"lines": [{"at": api.puppet.SAID_AT, "line": "old"}], "dropped": 0},
        {"lines": [{"at": 1.0, "line": "of good"}], "dropped": 3},
    ] == [value for _, value in events]


async def test_events_are_followed_by_server_and_kind(api):
    """The event stream begins with the backlog that is asked for, and leaves out what is not."""
    api.supervisor.move("good", State.DEGRADED, reason="first")
    api.supervisor.bus.emit(StderrWritten(at=1.0, server="good", lines=(), dropped=0))
    async with speaking(api) as client:
        query = "server=good&kind=server_state_changed&backlog=5"
        async with client.stream("GET", f"/v1/events?{query}") as response:
            api.supervisor.move("bad", State.READY)
            api.supervisor.move("good", State.READY, reason="second")
            events = await events_of(response, 2)
        known = (await client.get(f"/v1/events?{query}&follow=false")).json()["events"]

    assert ["first", "second"] == [value["reason"] for _, value in events]
    assert ["first", "second"] == [value["reason"] for value in known]
    assert {"server_state_changed"} == {value["kind"] for value in known}


@pytest.mark.alone
async def test_streams_end_with_the_daemon(api):
    """Leaving the server ends every stream and takes the socket away, in less than its grace."""
    async with api.client() as client:
        async with api.served():
            response = await client.send(client.build_request("GET", "/v1/events?backlog=1"), stream=True)
            started = time.monotonic()
        with anyio.fail_after(20):
            assert b"" == await response.aread()

    assert time.monotonic() - started < 1.5
    assert not api.path.exists()


async def test_a_reload_says_what_changed_and_what_follows(api):
    """A reload passes its wishes on, and tells of each changed server what it does now."""
    async with speaking(api) as client:
        report = (await client.post("/v1/reload", json={"wait": True, "timeout": 9})).json()

    assert [("command", True, 9.0)] == api.reloading.asked
    assert [("good", "ready"), ("gone", None)] == [(one["server"], one["state"]) for one in report["changes"]]
    assert report["ready"]


async def test_a_plan_changes_nothing(api):
    """A plan lists every server with what would happen to it."""
    async with speaking(api) as client:
        plan = (await client.post("/v1/plan", json={"paths": ["/etc/other"]})).json()
        relative = await client.post("/v1/plan", json={"paths": ["other"]})

    assert [("/etc/other",)] == api.reloading.asked
    assert [
        ("good", "restart", ["command"]),
        ("kept", "keep", []),
    ] == [(one["server"], one["change"], one["fields"]) for one in plan["changes"]]
    assert ["metrics.listen"] == plan["needs_restart"]
    assert [{"handler": "note", "change": "restart", "fields": ["queue"]}] == plan["handlers"]
    assert plan["routes_changed"]
    assert 400 == relative.status_code


async def test_an_error_of_our_own_is_logged_and_not_shown(api, caplog):
    """A bug is an INTERNAL error without its details for the caller, and with them in the log."""
    api.reloading.last_config = lambda: 1 / 0
    async with speaking(api) as client:
        answer = await client.get("/v1/status")

    assert (500, "INTERNAL") == (answer.status_code, answer.json()["error"]["status"])
    assert "division" not in answer.text
    assert "division by zero" in caplog.text


async def test_the_version_is_the_daemons(api):
    """`GET /v1/version` is the running daemon's own version, not that of whoever asks."""
    async with speaking(api) as client:
        assert "1.2.3" == (await client.get("/v1/version")).json()["version"]


async def test_a_refused_peer_is_logged(api, caplog):
    """A process that descends from the daemon gives no orders, mark or none; the log says who was refused, and why."""
    command = [str(Path(sys.executable).with_name("mcpvisor")), "--socket", str(api.path), "stop", "good"]
    async with api.served():
        done = await anyio.run_process(command, check=False)

    assert 77 == done.returncode
    assert [] == api.supervisor.orders
    assert "control refused: pid " in caplog.text
