"""Owns a puppet under supervision, as a test sees it: what it was asked, and what the supervisor told of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from tests.waiting import until

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.events import Event
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.supervisor import Supervisor

ME = Principal("test")
E = TypeVar("E", bound=Event)


@dataclass
class Case:
    """A puppet under supervision: what it was asked, and what the supervisor told of it."""

    supervisor: Supervisor
    name: str
    field_log: Path

    async def reach(self, *states: State, seconds: float = 30) -> ServerStatus:
        """Its status once it is in one of these states."""
        with anyio.fail_after(seconds):
            return await self.supervisor.wait_until(self.name, lambda status: status.state in states)

    async def gone(self) -> ServerStatus:
        """Its status once it has no process."""
        with anyio.fail_after(30):
            return await self.supervisor.wait_until(self.name, lambda status: status.pid is None)

    async def request(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        with anyio.fail_after(20):
            return await self.supervisor.connection(self.name).request(method, params, principal=ME, **options)

    async def call(self, tool: str = "echo", **arguments: Any) -> str:
        """The text that a tool gives."""
        result = await self.request("tools/call", {"name": tool, "arguments": arguments})
        return result["content"][0]["text"]

    async def failure(self, method: str = "tools/call", params: dict[str, Any] | None = None) -> RequestFailed:
        """How a request fails that must not succeed."""
        with pytest.raises(RequestFailed) as caught:
            await self.request(method, params or {"name": "echo", "arguments": {"text": "x"}})
        return caught.value

    async def outcome(self, method: str, params: dict[str, Any] | None = None) -> RequestFailed | None:
        """How a request fails that may do so; None where it has an answer."""
        try:
            await self.request(method, params)
        except RequestFailed as failure:
            return failure
        return None

    @property
    def status(self) -> ServerStatus:
        return self.supervisor.status(self.name)

    @property
    def tools(self) -> list[str]:
        """The names of the tools it offers, as it sent them."""
        return [tool["name"] for tool in self.supervisor.connection(self.name).offer.tools]

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind, oldest first."""
        return [event for event in self.supervisor.history(self.name) if isinstance(event, kind)]

    def noted(self, event: str) -> list[dict[str, Any]]:
        """What the puppet has noted in $FIELD_LOG, of one kind."""
        text = self.field_log.read_text() if self.field_log.exists() else ""
        return [note for note in map(json.loads, text.splitlines()) if note["event"] == event]

    def asked(self, method: str) -> int:
        """How many times the puppet was sent that method."""
        return sum(note["method"] == method for note in self.noted("in"))

    async def until(self, is_so: Callable[[], bool], seconds: float = 30) -> None:
        """Return once it is so; for what a puppet notes there is no event to wait for."""
        await until(is_so, seconds)


def are_steps(steps: list[float], waits: list[float]) -> bool:
    """Whether each wait is a part of its step, give or take what passes between two looks at the clock."""
    return all(-0.02 <= wait <= step + 0.02 for step, wait in zip(steps, waits, strict=True))
