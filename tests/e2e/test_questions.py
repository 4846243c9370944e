"""What a client of 2026-07-28 was asked, and a daemon that is killed before it has answered."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.e2e.running import RunningDaemon, puppet

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}},
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "a__ask",
}


def ask(running: RunningDaemon, **params: Any) -> dict[str, Any]:
    """One request of a client that asks for its roots."""
    sent = {"name": "a__ask", "arguments": {"who": "ann", "kind": "roots"}, "_meta": META, **params}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": sent}
    answer = httpx2.post(f"{running.addresses('gateway')[0]}/mcp", json=message, headers=HEADERS, timeout=20)
    return dict(json.loads(answer.text))


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_daemon_is_killed_meanwhile(daemon: Callable[..., RunningDaemon], servers: Path, era: str):
    """A client can go on in the next run where its server can; a call that was parked is lost, and its state unknown."""
    running = daemon(puppet("a", servers / "questioning.py", "stdio", era, allow=["roots"]))
    running.until_serving()
    running.until_ready()
    first = ask(running)["result"]
    key, question = next(iter(first["inputRequests"].items()))
    given = {"inputResponses": {key: {"roots": [{"uri": "file:///ann"}]}}, "requestState": first["requestState"]}
    running.end(signal.SIGKILL)
    running.start()
    running.until_serving()
    running.until_ready()
    second = ask(running, **given)

    assert question["method"] == "roots/list"
    if era == "modern":
        assert json.loads(second["result"]["content"][0]["text"])["answer"] == {"roots": [{"uri": "file:///ann"}]}
    else:
        assert second["error"]["data"]["mcpvisor"]["cause"] == "unknown_state"
