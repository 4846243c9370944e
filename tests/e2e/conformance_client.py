"""Owns the client that the conformance suites start: a daemon with their server, and what its users would do by hand.

Usage: conformance_client.py URL     with the scenario's name in $MCP_CONFORMANCE_SCENARIO, and its wishes in ..._CONTEXT
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import nursery
from tests.e2e.running import RunningDaemon, entry

READY_SECONDS = 30
POLICY = """
[handlers.yes]
type = "policy"
rules = [{ action = "accept", content = { confirmed = true }, defaults = true }]
[[routes]]
server = "server"
event = "elicitation"
handler = "yes"
"""


class User:
    """Who sits at the command line."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self._daemon = daemon
        self.wishes: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

    def run(self, *arguments: str) -> str:
        """What a verb prints."""
        done = nursery.run(["--socket", self._daemon.socket, *arguments])
        print(arguments, done.returncode, done.stdout, done.stderr, file=sys.stderr)
        return done.stdout

    def call(self, tool: str, arguments: dict[str, Any]) -> None:
        self.run("call", "server", tool, json.dumps(arguments))

    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools that the server is shown with, by name."""
        (offer,) = json.loads(self.run("tools", "server", "--json"))["servers"]
        return {tool["name"]: tool for tool in offer["tools"]}

    def prompt(self, name: str) -> None:
        """Get a prompt through the gateway: there is no verb for that."""
        import anyio
        from mcp import Client  # most of the cost of this program, and in one scenario of many

        async def get() -> None:
            async with Client(f"{self._daemon.gateway}/server") as client:
                await client.get_prompt(name, {})

        anyio.run(get)


def only_connect(user: User) -> None:
    user.tools()


def add(user: User) -> None:
    user.call("add_numbers", {"a": 5, "b": 3})


def every_tool(user: User) -> None:
    for name, tool in user.tools().items():
        user.call(name, dict.fromkeys(tool["inputSchema"].get("properties", {}), "x"))


def every_kind(user: User) -> None:
    every_tool(user)
    for resource in json.loads(user.run("resources", "server", "--json"))["servers"][0]["resources"]:
        user.run("read", "server", resource["uri"])
    for prompt in json.loads(user.run("prompts", "server", "--json"))["servers"][0]["prompts"]:
        user.prompt(prompt["name"])


def as_wished(user: User) -> None:
    for call in user.wishes["toolCalls"]:
        user.call(call["name"], call["arguments"])


def echo_schema(user: User) -> None:
    user.call("json_schema_echo", {"schema": user.tools()["json_schema_2020_12_tool"]["inputSchema"]})


DOES: dict[str, Callable[[User], None]] = {
    "initialize": only_connect,
    "tools_call": add,
    "elicitation-sep1034-client-defaults": every_tool,
    "sse-retry": every_tool,
    "request-metadata": only_connect,
    "sep-2322-client-request-state": every_tool,
    "http-standard-headers": every_kind,
    "http-custom-headers": as_wished,
    "http-invalid-tool-headers": every_tool,
    "json-schema-ref-no-deref": only_connect,
    "json-schema-2020-12-preservation": echo_schema,
}
"""What is done in each scenario that is not about authorisation."""


def main(scenario: str, url: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="mcpvisor"))
    daemon = RunningDaemon(folder, entry("server", url=url), settings=POLICY)
    try:
        daemon.until_serving()
        daemon.until_ready(READY_SECONDS)
        DOES[scenario](User(daemon))
    finally:
        left = daemon.clear()
        print(daemon.log_text(), file=sys.stderr)
    assert [] == left


if __name__ == "__main__":
    main(os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1])
