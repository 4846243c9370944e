from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.stopwatch import Stopwatch

MODERN = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}
NAMES = ["clock", "flaky", "slow"]


class Spoken:
    """A demonstration server, spoken to in raw lines."""

    def __init__(self, name):
        command = [sys.executable, "-m", f"mcpvisor.daemon.demo.{name}"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.last = 0

    def send(self, method, params=None, *, notify=False):
        self.last += not notify
        message = {"jsonrpc": "2.0", "method": method, **({} if notify else {"id": self.last}), "params": params or {}}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self.last

    def next(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, method, params=None):
        """The answer to a request; notifications before it are passed over."""
        request = self.send(method, params)
        while True:
            message = self.next()
            if message.get("id") == request:
                return message

    def call(self, tool, **arguments):
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]


@contextmanager
def speaking(name):
    server = Spoken(name)
    try:
        yield server
    finally:
        server.process.stdin.close()
        server.process.wait(20)
        server.process.stdout.close()
        server.process.stderr.close()


@pytest.mark.parametrize("name", NAMES)
def test_each_speaks_both_eras(name):
    """Each server answers `initialize` and `server/discover`, and lists tools that say what they do."""
    with speaking(name) as server:
        old = server.ask("initialize", {"protocolVersion": "2025-06-18"})["result"]
        new = server.ask("server/discover", MODERN)["result"]
        tools = server.ask("tools/list")["result"]["tools"]
        modern_tools = server.ask("tools/list", MODERN)["result"]

    assert "2025-06-18" == old["protocolVersion"]
    assert (["2026-07-28"], "complete", 0) == (new["supportedVersions"], new["resultType"], new["ttlMs"])
    assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools)
    assert (tools, "complete") == (modern_tools["tools"], modern_tools["resultType"])


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("name", "tool", "arguments"),
    [("clock", "now", {}), ("flaky", "divide", {"a": 6, "b": 3}), ("slow", "count_down", {"seconds": 1})],
)
async def test_the_sdk_is_at_home_with_each(mode, name, tool, arguments):
    """The SDK's own client agrees with each server on a protocol of either era, and calls its tools."""
    parameters = StdioServerParameters(command=sys.executable, args=["-m", f"mcpvisor.daemon.demo.{name}"])
    with anyio.fail_after(20):
        async with Client(stdio_client(parameters), mode=mode) as client:
            result = await client.call_tool(tool, arguments)
            listed = await client.list_tools()

    assert not result.is_error
    assert tool in [one.name for one in listed.tools]


@pytest.mark.parametrize("name", NAMES)
def test_each_ends_with_its_stdin(name):
    """A server ends by itself, with 0 and without a word, when its stdin does; also while a call runs."""
    with speaking(name) as server:
        server.send("tools/call", {"name": {"flaky": "hang", "slow": "count_down", "clock": "now"}[name]})
        server.send("ping")
        while "method" in (message := server.next()) or message["id"] != 2:
            pass
        server.process.stdin.close()
        assert (0, b"") == (server.process.wait(20), server.process.stderr.read())


def test_the_clock_tells_the_time_in_a_zone():
    """The clock's tool knows offsets, and refuses those that do not exist."""
    with speaking("clock") as server:
        assert server.call("now", utc_offset_hours=5.5)["content"][0]["text"].endswith("+05:30")
        assert server.call("now")["content"][0]["text"].endswith("+00:00")
        assert server.call("now", utc_offset_hours=99)["isError"]


def test_the_clock_tells_its_subscribers():
    """A subscribed client of the older era is told each second that the clock has changed, until it unsubscribes."""
    with speaking("clock") as server:
        entry = server.ask("resources/list")["result"]["resources"][0]
        server.ask("resources/subscribe", {"uri": entry["uri"]})
        started, watch = time.monotonic(), Stopwatch(server.process.pid, threading.get_native_id())
        watch.start()
        told = [server.next() for _ in range(2)]
        took = watch.seconds()
        first = server.ask("resources/read", {"uri": entry["uri"]})["result"]["contents"][0]["text"]
        server.ask("resources/unsubscribe", {"uri": entry["uri"]})

    assert [("notifications/resources/updated", "clock://now")] * 2 == [(one["method"], one["params"]["uri"]) for one in told]
    assert (True, True) == (time.monotonic() - started > 0.9, took < 4)
    assert first.endswith("+00:00")


def test_the_clock_tells_its_listeners():
    """A listening client of the newer era gets the acknowledgement first, then updates that carry its subscription."""
    wish = {"notifications": {"resourceSubscriptions": ["clock://now", "clock://never"]}, **MODERN}
    with speaking("clock") as server:
        request = server.send("subscriptions/listen", wish)
        acknowledged, updated = server.next(), server.next()

    key = "io.modelcontextprotocol/subscriptionId"
    assert {"resourceSubscriptions": ["clock://now"]} == acknowledged["params"]["notifications"]
    assert (request, request) == (acknowledged["params"]["_meta"][key], updated["params"]["_meta"][key])
    assert "notifications/resources/updated" == updated["method"]


def test_flaky_fails_as_it_is_asked_to():
    """A division by zero is a tool's error, an unknown tool or method a protocol's."""
    with speaking("flaky") as server:
        assert {"type": "text", "text": "2.0"} == server.call("divide", a=6, b=3)["content"][0]
        assert server.call("divide", a=1, b=0)["isError"]
        assert server.call("divide", a=1)["isError"]
        assert -32602 == server.ask("tools/call", {"name": "nosuch"})["error"]["code"]
        assert -32601 == server.ask("resources/list")["error"]["code"]


def test_flaky_crashes_on_request():
    """`crash` ends the process with the exit code asked for, and its last words are on stderr."""
    with speaking("flaky") as server:
        server.send("tools/call", {"name": "crash", "arguments": {"exit_code": 3}})

        assert 3 == server.process.wait(20)
        assert b"asked to crash: exit code 3\n" == server.process.stderr.read()


def test_flaky_answers_others_while_it_hangs():
    """A hanging call holds nobody else up, and ends when it is withdrawn."""
    with speaking("flaky") as server:
        hanging = server.send("tools/call", {"name": "hang"})
        assert ["1", "2"] == [server.call("count")["content"][0]["text"] for _ in range(2)]
        server.send("notifications/cancelled", {"requestId": hanging}, notify=True)

        assert (hanging, "nobody waits any more") == ((last := server.next())["id"], last["result"]["content"][0]["text"])


def test_slow_tells_its_progress():
    """Counting down tells the progress of each second, ending with the whole."""
    with speaking("slow") as server:
        request = {"name": "count_down", "arguments": {"seconds": 2}, "_meta": {"progressToken": "t"}}
        server.send("tools/call", request)
        *progress, answer = [server.next() for _ in range(4)]

    assert [(0, 2), (1, 2), (2, 2)] == [(one["params"]["progress"], one["params"]["total"]) for one in progress]
    assert {"t"} == {one["params"]["progressToken"] for one in progress}
    assert "lift-off" == answer["result"]["content"][0]["text"]


@pytest.mark.alone
def test_slow_stops_when_it_is_withdrawn():
    """A withdrawn count ends at once."""
    with speaking("slow") as server:
        counting = server.send("tools/call", {"name": "count_down", "arguments": {"seconds": 600}})
        started = time.monotonic()
        server.send("notifications/cancelled", {"requestId": counting}, notify=True)
        answer = server.next()

    assert "stopped with 600 to go" == answer["result"]["content"][0]["text"]
    assert time.monotonic() - started < 0.9


def test_what_is_no_message_is_passed_over():
    """Lines that are no JSON are told on stderr and cost nothing else."""
    with speaking("clock") as server:
        server.process.stdin.write(b"hello\n[1]\n")
        assert {} == server.ask("ping")["result"]
        server.process.stdin.close()
        assert b"not JSON: b'hello\\n'\n" == server.process.stderr.read()
