"""Owns the running daemon: in which order its parts come up and go down, and what is said of that on the way."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import structlog

from mcpvisor.daemon.config.watch import ConfigWatcher
from mcpvisor.daemon.event_lines import EventLines
from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.handlers.watching import watch
from mcpvisor.daemon.health import HealthFacts, answer
from mcpvisor.daemon.listeners import Standing, open_listeners
from mcpvisor.daemon.notice import DrainNotice
from mcpvisor.daemon.orders import Orders
from mcpvisor.daemon.own_limits import give_back_memory, leave_no_core, raise_file_limit
from mcpvisor.daemon.parts import Given, Parts
from mcpvisor.daemon.systemd import Watchdog, extend_stop
from mcpvisor.supervisor.error_groups import only_error
from mcpvisor.supervisor.events import GuardianLost, OrphansSwept
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.process.guardian import Guardian
from mcpvisor.supervisor.process.sweep import kill_marked
from mcpvisor.supervisor.supervisor import Supervisor

FRESH_SECONDS: Final = 5.0
"""How old the loop's last tick may be while systemd's watchdog is still pinged."""

LISTENERS_SECONDS: Final = 20.0
"""What a stop may take beyond the servers' own time: answers in flight on the listeners, and what has to be killed."""

COLLECTOR: Final = (5_000, 10, 100)
"""The collector's thresholds. What it looks for are cycles, and JSON has none, but its full passes walk over all that servers
offer: 50 ms each, and by Python's own thresholds ten of them while one large list is read.
"""

_log = structlog.get_logger("mcpvisor.daemon")

OnReady = Callable[[Supervisor, Mapping[str, Sequence[str]]], None]
"""Called once everything listens, with the supervisor and the addresses by listener."""


class Daemon:
    """All parts of one run. `serve` brings them up, waits for the end, and takes them down in the opposite order."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._parts = Parts(given)
        self._orders = Orders()
        self._stage = ""
        """What is going on at the end, in words; empty before it."""
        self._applied = anyio.Event()
        """Set once a configuration was applied."""
        self._notice = DrainNotice(given.settings.gateway.drain_notice)

    async def serve(self, on_ready: OnReady | None = None) -> None:
        """Run until SIGTERM or SIGINT. Raises what a listener raises that cannot be opened."""
        raise_file_limit()
        leave_no_core()
        give_back_memory()
        supervisor = self._parts.supervisor
        supervisor.bus.attach(self._given.recorder)
        supervisor.bus.attach(EventLines(self._given.log.emit, self._given.log.is_shown))
        _tell_subtree(self._given.subtree)
        if self._given.state.read_only:
            _log.warning("what should outlive the daemon is kept in memory only", why=self._given.state.read_only)
        await self._sweep_previous()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._parts.heartbeat.run)
                await tasks.start(self._orders.take, partial(self._parts.reloading.apply, "signal"))
                async with AsyncExitStack() as exits:
                    await exits.enter_async_context(self._parts.keeper.kept(supervisor, self._given.recorder))
                    # Before any server starts: another one may tell what is kept for one that is not asked for it yet.
                    self._given.known_secrets.learn_passing(self._parts.keeper.store.tokens())
                    await self._run(exits, tasks, on_ready)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            error = only_error(group)  # what could not be opened is told as itself, not as a group of one
            raise error from error.__cause__  # which says whether it passes by itself
        self._parts.notifier.close()
        _log.info("stopped")

    async def _run(self, exits: AsyncExitStack, tasks: anyio.abc.TaskGroup, on_ready: OnReady | None) -> None:
        supervisor = self._parts.supervisor
        # Entered first: it sweeps at its end whatever carries our mark, and programs of handlers still have their last events.
        guardian = Guardian(self._given.state.instance, lost=lambda: supervisor.bus.emit(GuardianLost(at=time.time())))
        await exits.enter_async_context(guardian)
        await exits.enter_async_context(self._parts.handlers)
        self._parts.handlers.apply(self._given.reloader.applied.handlers, self._given.reloader.applied.routing)
        await exits.enter_async_context(supervisor)
        standing = Standing(health=self._health, applied=self._applied, stage=lambda: self._stage)
        gateway, addresses = await open_listeners(exits, self._parts, self._given, standing)
        await self._parts.reloading.start()
        watch(supervisor, self._given.reloader.applied.routing)
        self._applied.set()
        self._tell_ready(addresses)
        # What lives from here on lives as long as the daemon: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTOR)
        if on_ready is not None:
            on_ready(supervisor, addresses)
        async with anyio.create_task_group() as background:
            for part in self._background():
                background.start_soon(part)
            await self._orders.stopping.wait()
            self._parts.reloading.is_stopping = True
            self._stage = "calls are still served, while /readyz says that it drains"
            background.cancel_scope.cancel()
        self._parts.notifier.stopping("stopping: servers finish what they have begun")
        _log.info("stopping")
        stop_seconds = self._notice.seconds + supervisor.stop_seconds() + LISTENERS_SECONDS
        tasks.start_soon(extend_stop, self._parts.notifier, stop_seconds)
        tasks.start_soon(self._hurry, gateway)
        await self._notice.give(self._orders.hurried)
        # Probes and the control socket answer until the last server has ended: what is going on can be seen.
        self._stage = "no more calls are taken, servers finish those that they have begun"
        await gateway.drain()
        self._stage = "servers are being ended"
        await supervisor.close()

    def stop(self) -> None:
        """Begin the end; a second call changes nothing."""
        self._orders.stop()

    # The parts

    def _background(self) -> list[Callable[[], Coroutine[Any, Any, object]]]:
        watcher = ConfigWatcher(
            self._given.reloader.paths,
            partial(self._parts.reloading.apply, "watch"),
            seen=lambda: self._given.reloader.contents,
            gone=self._given.reloader.note_gone,
            absent=self._given.reloader.note_gone,
            recheck_at=lambda: self._given.reloader.recheck_at,
        )
        parts: list[Callable[[], Coroutine[Any, Any, object]]] = [
            partial(self._parts.status_line.keep, self._orders.stopping.is_set),
            self._parts.reloading.watch_trials,
        ]
        if self._given.reloader.paths:
            parts.append(watcher.run)
        if self._given.handover.watchdog_seconds is not None:
            fresh = partial(self._parts.heartbeat.is_fresh, FRESH_SECONDS)
            parts.append(Watchdog(self._parts.notifier, self._given.handover.watchdog_seconds, fresh).run)
        return parts

    async def _hurry(self, gateway: Gateway) -> None:
        await self._orders.hurried.wait()
        gateway.cut()

    async def _sweep_previous(self) -> None:
        """End what a former run has left behind, should even its guardian have failed."""
        if self._given.state.previous is not None:
            swept = await anyio.to_thread.run_sync(kill_marked, self._given.state.previous)
            if swept:
                self._parts.supervisor.bus.emit(OrphansSwept(at=time.time(), count=len(swept)))
        self._given.state.remember()

    # What is told

    def _health(self, path: str, verbose: bool) -> tuple[int, str | dict[str, object]]:
        if path == "/readyz":
            self._notice.asked()
        facts = HealthFacts(
            tick_age=self._parts.heartbeat.age(), config_applied=self._applied.is_set(), stopping=self._orders.stopping.is_set()
        )
        return answer(path, facts, self._parts.supervisor.outlines(), verbose=verbose)

    def _tell_ready(self, addresses: Mapping[str, Sequence[str]]) -> None:
        self._parts.notifier.ready(self._parts.status_line.text())
        _log.info("serving", gateway=list(addresses["gateway"]), metrics=list(addresses["metrics"]))


def _tell_subtree(subtree: Subtree) -> None:
    if subtree.path is None:
        _log.info("servers get no control groups of their own", why=subtree.why_not)
    else:
        _log.info(
            "each server gets a control group of its own", below=str(subtree.path), controllers=sorted(subtree.controllers)
        )
