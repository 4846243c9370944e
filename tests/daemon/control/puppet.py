"""Owns a puppet of the supervisor behind a real control socket: its states, answers and events are whatever a test says.

As a program it serves until stdin ends:  puppet.py SOCKET INSTANCE [--many N] [--rejected] [--mute]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections import defaultdict
from dataclasses import fields, replace
from typing import Any

import anyio

from mcpvisor.daemon.control.facts import Facts
from mcpvisor.daemon.control.reloading import ConfigState, Plan
from mcpvisor.daemon.control.server import ControlServer
from mcpvisor.daemon.handlers.changes import HandlerChange
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.errors import OrderRefused, Outcome, RequestFailed, UnknownServer
from mcpvisor.supervisor.events import Event, OperatorOrdered, ServerStateChanged
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.process.stderr import StderrLine
from mcpvisor.supervisor.signs import NO_SIGNS, Signs
from mcpvisor.supervisor.spec import Change, ServerSpec, StdioLaunch, plan_changes
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.subscriptions.telling import SubscriptionTeller
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.supervisor import Order

SAID_AT = 1_700_000_000.0
"""When puppets wrote to stderr."""

_AFTER = {
    Order.START: (State.STARTING, "running"),
    Order.ENABLE: (State.STARTING, "running"),
    Order.RESTART: (State.STARTING, "running"),
    Order.STOP: (State.STOPPED, "stopped"),
    Order.DISABLE: (State.DISABLED, "disabled"),
}


def a_status(name: str, state: State = State.READY, **other: Any) -> ServerStatus:
    """A status with every field filled; a test names those that matter to it."""
    values: dict[str, Any] = {field.name: 0 for field in fields(ServerStatus)} | {
        "name": name,
        "state": state,
        "reason": "",
        "since": time.time() - 90,
        "state_seconds": 90.0,
        "transport": "stdio",
        "era": "legacy",
        "protocol_version": "2025-11-25",
        "implementation": "puppet 1",
        "pid": 4242,
        "next_attempt": None,
        "required": False,
        "wanted": "running",
        "wanted_by": "config",
        "stale": False,
        "last_exit": "",
        "handshake_seconds": 0.1,
        "origin": "/etc/mcpvisor/mcpvisor.toml:7",
        "shown_name": "",
        "limits_not_enforced": "",
        "deadline": None,
        "push": "",
        "push_reason": "",
        "push_next": None,
        "asked": "",
        "asked_at": None,
        "asked_until": None,
        "lists_next": None,
        "lists_asked_to_wait": False,
        "probe_next": None,
    }
    return ServerStatus(**{**values, **other})


FORGED = "x\n\nmcpvisor: the daemon is not running\n\x1b[1m\xad"
"""What a server may say that would like to be taken for the program that shows it."""


class PuppetConnection:
    """A door whose answer is chosen by the name of the tool."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec = ServerSpec(name=name, target=StdioLaunch(command="true"))
        self.offer = Offer(
            tools=({"name": "echo", "description": "Says it again.\nAnd more."},),
            resources=({"uri": f"puppet://{name}", "name": "r"},),
            resource_templates=({"uriTemplate": "puppet://{any}", "name": "t"},),
            prompts=({"name": "greet"},),
        )
        self.stale = name == "away"
        self.era = "legacy"
        self.asked: list[tuple[str, dict[str, Any], Any, float | None]] = []
        self.cancelled = anyio.Event()

    async def request(self, method, params=None, *, principal, deadline=None, on_progress=None, client_capabilities=None):
        self.asked.append((method, params, principal, deadline))
        if method == "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "the text"}]}
        return await getattr(self, f"_{params['name']}")(params["arguments"], on_progress)

    async def _echo(self, arguments, on_progress):
        return {"content": [{"type": "text", "text": arguments.get("text", "")}], "vendor": 10**25}

    async def _fails(self, arguments, on_progress):
        return {"content": [{"type": "text", "text": "by zero"}], "isError": True}

    async def _dies(self, arguments, on_progress):
        raise RequestFailed(Outcome.MAYBE_EXECUTED, "process_exited", "the process exited with code 1", retry_after_s=1.5)

    async def _steps(self, arguments, on_progress):
        for step in (1, 2):
            on_progress({"progress": step, "total": 2, "message": f"step {step}"})
            await anyio.lowlevel.checkpoint()
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}

    async def _lies(self, arguments, on_progress):
        return {"content": [{"type": "text", "text": FORGED}], "isError": True}

    async def _breaks(self, arguments, on_progress):
        raise RequestFailed(Outcome.PEER_ERROR, "error", FORGED)

    async def _boasts(self, arguments, on_progress):
        on_progress({"progress": 1, "message": FORGED})
        return {"content": [], "isError": True}

    async def _floods(self, arguments, on_progress):
        for step in range(3000):
            on_progress({"progress": step})
            if not step % 100:
                await anyio.sleep(0)
        return {"content": []}

    async def _hangs(self, arguments, on_progress):
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()


class PuppetSupervisor:
    """The public surface of the supervisor, without any server behind it."""

    def __init__(self, *statuses: ServerStatus) -> None:
        self.bus = EventBus()
        self.now = {status.name: status for status in statuses}
        self.doors = {name: PuppetConnection(name) for name in self.now}
        self.past: dict[str, list[tuple[int, Event]]] = defaultdict(list)
        self.said: dict[str, list[str]] = defaultdict(list)
        teller = SubscriptionTeller("x", lambda _: None, str, lambda: 1)
        self.watched: dict[str, Subscriptions] = defaultdict(lambda: Subscriptions(teller))
        self.invalid: dict[str, str] = {}
        """Why an entry is not valid, by name."""
        self.orders: list[tuple[str, Order, str]] = []
        self.bus.attach(lambda event: self.past[event.server].append((self.bus.next_number(), event)))

    def names(self) -> list[str]:
        return sorted(self.now.keys() - self.invalid.keys())

    def connection(self, name: str) -> PuppetConnection:
        if (why := self.invalid.get(name)) is not None:
            raise UnknownServer(f"the entry of {name!r} is not valid: {why}")
        self.status(name)
        return self.doors[name]

    def spec(self, name):
        return None if name in self.invalid else self.connection(name).spec

    def status(self, name: str) -> ServerStatus:
        if name not in self.now:
            raise UnknownServer(f"no server is named {name!r}; `mcpvisor status` lists them all")
        return self.now[name]

    def subscriptions(self, name: str) -> Subscriptions:
        self.status(name)
        return self.watched[name]

    def statuses(self) -> list[ServerStatus]:
        return [self.now[name] for name in sorted(self.now)]

    def told(self, name: str, value: Any) -> Any:
        return value

    async def told_offer(self, name: str) -> Offer:
        return self.connection(name).offer

    def stderr_lines(self, name: str, lines: int = 50) -> list[StderrLine]:
        self.status(name)
        return [StderrLine(SAID_AT, text) for text in self.said[name][-lines:]] if lines else []

    def history(self, name: str) -> list[Event]:
        return [event for _, event in self.numbered_history(name)]

    def numbered_history(self, name: str) -> list[tuple[int, Event]]:
        self.status(name)
        return self.past[name]

    def signs(self, name: str) -> Signs:
        self.status(name)
        return NO_SIGNS

    async def order(self, name: str, order: Order, *, who: str) -> None:
        if self.now[name].wanted == "disabled" and order in (Order.START, Order.RESTART):
            raise OrderRefused(f"{name} is disabled by config: `mcpvisor enable {name}` first")
        self.orders.append((name, order, who))
        state, wanted = _AFTER[order]
        self.bus.emit(OperatorOrdered(at=time.time(), server=name, order=order.value, who=who))
        self.move(name, state, wanted=wanted, wanted_by=who)

    def move(self, name: str, state: State, **other: Any) -> None:
        """Put a server into another state, as its actor would."""
        old = self.now[name]
        self.now[name] = replace(old, state=state, since=time.time(), state_seconds=0.0, **other)
        reason = other.get("reason", "")
        self.bus.emit(
            ServerStateChanged(at=time.time(), server=name, old=old.state, new=state, reason=reason, next_attempt=None)
        )


class PuppetReloading:
    """Configuration that says what a test wants it to say."""

    def __init__(self, *, rejected: bool = False) -> None:
        self.config: dict[str, Any] = {"ok": True, "rejected": []}
        if rejected:
            self.config = {
                "ok": False,
                "rejected": [{"where": "/etc/m.toml:3", "error": "unknown key 'comand'", "server": "good"}],
            }
        self.ready: bool | None = True
        self.asked: list[tuple[Any, ...]] = []

    async def reload(self, trigger: str, wait: bool, timeout: float) -> dict[str, Any]:
        self.asked.append((trigger, wait, timeout))
        changes = [
            {"server": "good", "change": "restart", "fields": ["target"]},
            {"server": "gone", "change": "stop", "fields": []},
        ]
        more = {"hints": [{"where": "/etc/m.toml", "hint": "a hint"}], "needs_restart": ["gateway.listen"]}
        handlers = [{"handler": "note", "change": "start", "fields": []}]
        more = {**more, "handlers": handlers, "routes_changed": True}
        return {**self.config, "changes": changes, "ready": self.ready if wait else None, **more}

    async def plan(self, paths: list[str]) -> Plan:
        self.asked.append(tuple(paths))
        old, new = (ServerSpec(name="good", target=StdioLaunch(command=one)) for one in ("a", "b"))
        kept = ServerSpec(name="kept", target=StdioLaunch(command="a"))
        changes = plan_changes({"good": old, "kept": kept}, {"good": new, "kept": kept})
        return Plan(
            servers=changes,
            handlers=[HandlerChange(handler="note", change=Change.RESTART, fields=("queue",))],
            routes_changed=True,
            config=ConfigState(ok=self.config["ok"], rejected=self.config["rejected"]),
            needs_restart=("metrics.listen",),
        )

    def is_on_trial(self, name: str) -> bool:
        return False

    def last_config(self) -> dict[str, Any]:
        return self.config


FACTS = Facts(version="1.2.3", started_at=1_700_000_000.0, pid=1, addresses={"gateway": ["127.0.0.1:7433"]})


def served(supervisor: PuppetSupervisor, path: Any, instance: str, reloading: Any = None, **more: Any) -> ControlServer:
    """The control server over a puppet; a context manager."""
    reloading = reloading or PuppetReloading()
    return ControlServer(supervisor, reloading, FACTS, listen=[f"unix:{path}"], instance=instance, **more)


async def _main(arguments: argparse.Namespace) -> None:
    if arguments.many:
        names = [a_status(f"server-{n:03}") for n in range(arguments.many)]
    else:
        bad = a_status("bad", State.BACKOFF, reason="it exited with code 1", next_attempt=time.time() + 30, pid=None)
        names = [a_status("good"), bad, a_status("off", State.DISABLED, wanted="disabled")]
    supervisor = PuppetSupervisor(*names)
    for name in supervisor.names():
        supervisor.said[name] = [f"{name} says {n}" for n in range(3)]
        supervisor.move(name, supervisor.now[name].state, reason=supervisor.now[name].reason)
    reloading = PuppetReloading(rejected=arguments.rejected)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(served(supervisor, arguments.socket, arguments.instance, reloading))
        print("serving", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            match line.split():
                case ["move", name, state]:
                    supervisor.move(name, State(state))
                case ["invalidate", name]:
                    supervisor.invalid[name] = "unknown key 'comand'"
                case ["unready"]:
                    reloading.ready = False
            print("done", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("instance")
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--rejected", action="store_true")
    asyncio.run(_main(parser.parse_args()))
