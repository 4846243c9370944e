"""Owns the rig for credentials: a supervised puppet behind an authorisation server of its own, and short words for both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio
import pytest
from tests.supervisor.transports.http_rig import Puppet

from mcpvisor.supervisor.auth.kinds import Auth, ClientCredentials
from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.events import Event
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Era, HttpTarget, ProbePolicy, RestartPolicy, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.store import Store
from mcpvisor.supervisor.supervisor import Supervisor

ME = Principal("test")
SECRET = "machine-secret-1"
E = TypeVar("E", bound=Event)


def client(server: Puppet, **changes: Any) -> ClientCredentials:
    """The client that the puppet knows, with the endpoint in its entry."""
    made = ClientCredentials(client_id="machine", client_secret=Secret(SECRET), token_url=server.url.replace("/mcp", "/token"))
    return replace(made, **changes)


def spec_of(server: Puppet, auth: Auth | None, **changes: Any) -> ServerSpec:
    """The spec of the puppet; quick to try again, slow to probe."""
    target = HttpTarget(url=server.url, auth=auth, headers=changes.pop("headers", ()))
    made = ServerSpec(
        name="docs",
        target=target,
        era=Era.LEGACY,
        restart=RestartPolicy(delay=0.05, max_delay=0.2),
        probe=ProbePolicy(interval=60.0, timeout=2.0),
    )
    return replace(made, **changes)


@dataclass
class Rig:
    """One server under supervision."""

    supervisor: Supervisor
    spec: ServerSpec
    server: Puppet

    async def apply(self, **changes: Any) -> None:
        """Edit its entry; what is no key of a spec is one of its target."""
        keys = {key: changes.pop(key) for key in list(changes) if key in ("auth", "headers")}
        self.spec = replace(self.spec, target=replace(self.spec.target, **keys), **changes)
        await self.supervisor.apply([self.spec])

    async def reach(self, *states: State, seconds: float = 30.0) -> ServerStatus:
        """Its status once it is in one of these states."""
        with anyio.fail_after(seconds):
            return await self.supervisor.wait_until("docs", lambda status: status.state in states)

    async def call(self, text: str = "hello", tool: str = "echo", **options: Any) -> str:
        """The text that a tool gives."""
        arguments = options.pop("arguments", {"text": text})
        asked = {"name": tool, "arguments": arguments}
        with anyio.fail_after(20):
            result = await self.supervisor.connection("docs").request("tools/call", asked, principal=ME, **options)
        return result["content"][0]["text"]

    async def failure(self, **options: Any) -> RequestFailed:
        """How a call fails."""
        with pytest.raises(RequestFailed) as caught:
            await self.call(**options)
        return caught.value

    async def together(self, number: int, **options: Any) -> list[str]:
        """The texts of so many calls that are made at the same time."""
        answers: list[str] = []

        async def one() -> None:
            answers.append(await self.call(**options))

        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(one)
        return answers

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind, oldest first."""
        return [event for event in self.supervisor.history("docs") if isinstance(event, kind)]

    def counted(self, *names: str) -> tuple[Any, ...]:
        """What the puppet has counted."""
        state = self.server.state()
        return tuple(state[name] for name in names)

    async def until(self, name: str, value: Any) -> None:
        """Return once the puppet has counted so far; it gives no events."""
        with anyio.fail_after(30):
            while self.counted(name) != (value,):
                await anyio.sleep(0.01)


@asynccontextmanager
async def supervised(server: Puppet, auth: Auth | None, *, store: Store | None = None, **changes: Any) -> AsyncIterator[Rig]:
    """The puppet under supervision with these credentials."""
    spec = spec_of(server, auth, **changes)
    async with Supervisor(guarded=False, store=store) as supervisor:
        await supervisor.apply([spec])
        yield Rig(supervisor, spec, server)
