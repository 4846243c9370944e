"""Owns the running daemon: which parts there are, in which order they come up and go down, and what ends it."""

from __future__ import annotations

import gc
import os
import resource
import signal
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import structlog

from mcpvisor import __version__
from mcpvisor.daemon.config.reload import Reloader
from mcpvisor.daemon.config.settings import Settings
from mcpvisor.daemon.config.watch import ConfigWatcher
from mcpvisor.daemon.control.facts import Facts
from mcpvisor.daemon.control.handling import HandlerRoutes
from mcpvisor.daemon.control.server import ControlServer
from mcpvisor.daemon.doctor.route import DoctorRoutes
from mcpvisor.daemon.event_lines import EventLines
from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.settings import GatewaySettings
from mcpvisor.daemon.handlers.engine import HandlerEngine
from mcpvisor.daemon.handlers.ledger import Ledger
from mcpvisor.daemon.handlers.making import Surroundings
from mcpvisor.daemon.handlers.observing import ProgressObserver
from mcpvisor.daemon.handlers.watching import watch
from mcpvisor.daemon.health import HealthFacts, answer
from mcpvisor.daemon.heartbeat import Heartbeat
from mcpvisor.daemon.log import Log
from mcpvisor.daemon.log_level import LogLevel
from mcpvisor.daemon.notice import DrainNotice
from mcpvisor.daemon.questions.desk import Desk, DeskLimits
from mcpvisor.daemon.questions.routed import RoutedQuestions
from mcpvisor.daemon.reloading import DaemonReloading, faults_in_status
from mcpvisor.daemon.state.keeper import Keeper
from mcpvisor.daemon.state_dir import StateDir
from mcpvisor.daemon.systemd import Handover, Notifier, Watchdog, extend_stop
from mcpvisor.daemon.versions.shelf import Shelf
from mcpvisor.metrics.listener import MetricsServer
from mcpvisor.metrics.recorder import MetricsRecorder
from mcpvisor.supervisor.error_groups import only_error
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.events import OrphansSwept, ServerEvent
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.process.sweep import kill_marked
from mcpvisor.supervisor.supervisor import Supervisor

FRESH_SECONDS: Final = 5.0
"""How old the loop's last tick may be while systemd's watchdog is still pinged."""

LISTENERS_SECONDS: Final = 20.0
"""What a stop may take beyond the servers' own time: answers in flight on the listeners, and what has to be killed."""

STATUS_SECONDS: Final = 1.0
"""How often at the most the one-line status for systemd is written anew."""

COLLECTOR: Final = (5_000, 10, 100)
"""The collector's thresholds. What it looks for are cycles, and JSON has none, but its full passes walk over all that servers
offer: 50 ms each, and by Python's own thresholds ten of them while one large list is read.
"""

_log = structlog.get_logger("mcpvisor.daemon")

OnReady = Callable[[Supervisor, Mapping[str, Sequence[str]]], None]
"""Called once everything listens, with the supervisor and the addresses by listener."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_OF_NO_MEANING: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""What other daemons rotate their logs or print their state by; unheard it would end us without any order."""


class Daemon:
    """All parts of one run. `serve` brings them up, waits for the end, and takes them down in the opposite order."""

    def __init__(
        self,
        reloader: Reloader,
        state: StateDir,
        log: Log,
        handover: Handover,
        recorder: MetricsRecorder,
        subtree: Subtree,
        known_secrets: KnownSecrets,
    ) -> None:
        self._reloader = reloader
        self._state = state
        self._log = log
        self._recorder = recorder
        self._notifier = Notifier(handover.notify_socket)
        self._handover = handover
        self._heartbeat = Heartbeat(recorder.loop_ticked)
        self._keeper = Keeper(state.path)
        self._desk = Desk(
            DeskLimits(**self._settings.questions.model_dump()),
            tell=self._tell,
            handler_for=RoutedQuestions(lambda: self._handlers, lambda: reloader.applied.handlers),
            allowed=self._allowed,
            given=self._given,
        )
        observer = ProgressObserver(recorder)
        self._supervisor = Supervisor(
            on_question=self._desk.sink(),
            observer=observer,
            instance=state.instance,
            parallel_starts=self._settings.daemon.parallel_starts,
            subtree=subtree,
            store=self._keeper.store,
            known_secrets=known_secrets,
        )
        self._known_secrets = known_secrets
        self._subtree = subtree
        self._handlers = HandlerEngine(
            self._supervisor.bus,
            Ledger(self._keeper.store),
            recorder,
            Surroundings(
                instance=state.instance,
                environ=os.environ,
                emit=self._shown,
                subtree=subtree,
                known_secrets=known_secrets,
            ),
        )
        observer.on_progress = self._handlers.call_progressed
        self._level = LogLevel(log, self._settings.log.level)
        self._reloading = DaemonReloading(
            reloader,
            self._supervisor,
            handlers=self._handlers,
            notifier=self._notifier,
            status_line=self._status_line,
            shelf=Shelf.of(self._keeper.store, state.path) if not state.read_only else None,
            known_secrets=known_secrets,
            ordered_level=lambda: self._level.ordered,
        )
        self._stopping = anyio.Event()
        self._stage = ""
        """What is going on at the end, in words; empty before it."""
        self._applied = anyio.Event()
        """Set once a configuration was applied."""
        self._notice = DrainNotice(self._settings.gateway.drain_notice)
        self._hurried = anyio.Event()
        """Set by the second signal."""

    @property
    def _settings(self) -> Settings:
        return self._reloader.applied.running

    def _allowed(self, server: str) -> tuple[str, ...]:
        """What a server may ask of programs, by its entry."""
        try:
            spec = self._supervisor.spec(server)
        except UnknownServer:  # it has left the configuration while it asked
            return ()
        return spec.allow if spec is not None else ()

    def _tell(self, event: ServerEvent) -> None:
        self._supervisor.tell(event)

    def _given(self, server: str, texts: Sequence[str]) -> None:
        self._supervisor.has_given(server, texts)

    async def serve(self, on_ready: OnReady | None = None) -> None:
        """Run until SIGTERM or SIGINT. Raises what a listener raises that cannot be opened."""
        _raise_file_limit()
        _leave_no_core()
        supervisor = self._supervisor
        supervisor.bus.attach(self._recorder)
        supervisor.bus.attach(EventLines(self._log.emit, self._log.is_shown))
        _tell_subtree(self._subtree)
        if self._state.read_only:
            _log.warning("what should outlive the daemon is kept in memory only", why=self._state.read_only)
        await self._sweep_previous()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heartbeat.run)
                await tasks.start(self._take_signals)
                async with AsyncExitStack() as parts:
                    await parts.enter_async_context(self._keeper.kept(supervisor, self._recorder))
                    await self._run(parts, tasks, on_ready)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise only_error(group) from None  # what could not be opened is told as itself, not as a group of one
        self._notifier.close()
        _log.info("stopped")

    async def _run(self, parts: AsyncExitStack, tasks: anyio.abc.TaskGroup, on_ready: OnReady | None) -> None:
        supervisor = self._supervisor
        await parts.enter_async_context(self._handlers)
        self._handlers.apply(self._reloader.applied.handlers, self._reloader.applied.routing)
        await parts.enter_async_context(supervisor)
        gateway, addresses = await self._open_listeners(parts)
        await self._reloading.start()
        watch(supervisor, self._reloader.applied.routing)
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
            await self._stopping.wait()
            self._reloading.is_stopping = True
            self._stage = "calls are still served, while /readyz says that it drains"
            background.cancel_scope.cancel()
        self._notifier.stopping("stopping: servers finish what they have begun")
        _log.info("stopping")
        stop_seconds = self._notice.seconds + supervisor.stop_seconds() + LISTENERS_SECONDS
        tasks.start_soon(extend_stop, self._notifier, stop_seconds)
        tasks.start_soon(self._hurry, gateway)
        await self._notice.give(self._hurried)
        # Probes and the control socket answer until the last server has ended: what is going on can be seen.
        self._stage = "no more calls are taken, servers finish those that they have begun"
        await gateway.drain()
        self._stage = "servers are being ended"
        await supervisor.close()

    def stop(self) -> None:
        """Begin the end; a second call changes nothing."""
        self._stopping.set()

    # The parts

    async def _open_listeners(self, parts: AsyncExitStack) -> tuple[Gateway, dict[str, Sequence[str]]]:
        settings = self._settings
        metrics = await parts.enter_async_context(_serving_metrics(self._recorder, settings.metrics.listen))
        gateway = Gateway(
            self._supervisor,
            GatewaySettings(
                listen=tuple(settings.gateway.listen),
                state_dir=settings.daemon.state_dir,
                auth=settings.gateway.auth,
                hosts=tuple(settings.gateway.hosts),
                origins=tuple(settings.gateway.origins),
                first_list_wait=settings.gateway.first_list_wait,
            ),
            instance=self._state.instance,
            health=self._health,
            observer=self._recorder,
            keeper=self._keeper.store,
            applied=self._applied,
            desk=self._desk,
        )
        await parts.enter_async_context(gateway)
        if gateway.token is not None:
            self._known_secrets.learn_own(gateway.token)
        addresses: dict[str, Sequence[str]] = {"gateway": gateway.addresses, "metrics": metrics.addresses}
        facts = Facts(
            version=__version__,
            started_at=time.time(),
            pid=os.getpid(),
            addresses=addresses,
            gateway_token=gateway.token_file,
            handlers=self._handlers.views,
            stopping=lambda: self._stage,
        )
        listening = [*gateway.addresses, *metrics.addresses, *settings.control.listen]
        doctor = DoctorRoutes(self._reloader, self._supervisor, self._subtree, lambda: listening)
        control = ControlServer(
            self._supervisor,
            self._reloading,
            facts,
            listen=settings.control.listen,
            instance=self._state.instance,
            keeping=self._keeper,
            desk=self._desk,
            more=[*HandlerRoutes(self._handlers).routes(), *self._level.routes(), *doctor.routes()],
        )
        await parts.enter_async_context(control)
        return gateway, addresses

    def _background(self) -> list[Callable[[], Coroutine[Any, Any, object]]]:
        watcher = ConfigWatcher(
            self._reloader.paths,
            partial(self._reloading.apply, "watch"),
            seen=lambda: self._reloader.contents,
            gone=self._reloader.note_gone,
            recheck_at=lambda: self._reloader.recheck_at,
        )
        parts: list[Callable[[], Coroutine[Any, Any, object]]] = [self._tell_status, self._reloading.watch_trials]
        if self._reloader.paths:
            parts.append(watcher.run)
        if self._handover.watchdog_seconds is not None:
            fresh = partial(self._heartbeat.is_fresh, FRESH_SECONDS)
            parts.append(Watchdog(self._notifier, self._handover.watchdog_seconds, fresh).run)
        return parts

    async def _take_signals(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*_ENDING, signal.SIGHUP, *_OF_NO_MEANING) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    await self._reloading.apply("signal")
                elif number in _OF_NO_MEANING:
                    _log.warning(
                        "a signal that means nothing here: SIGHUP reloads, SIGTERM ends", signal=signal.Signals(number).name
                    )
                elif self._stopping.is_set():
                    _log.warning("stopping at once: calls in flight are given no more time")
                    self._hurried.set()
                else:
                    self.stop()

    async def _hurry(self, gateway: Gateway) -> None:
        await self._hurried.wait()
        gateway.cut()

    async def _sweep_previous(self) -> None:
        """End what a former run has left behind, should even its guardian have failed."""
        if self._state.previous is not None:
            swept = await anyio.to_thread.run_sync(kill_marked, self._state.previous)
            if swept:
                self._supervisor.bus.emit(OrphansSwept(at=time.time(), count=len(swept)))
        self._state.remember()

    # What is told

    def _shown(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """A line of a handler, where lines of its level are written."""
        if self._log.is_shown(level):
            self._log.emit(level, message, fields)

    def _health(self, path: str, verbose: bool) -> tuple[int, str | dict[str, object]]:
        if path == "/readyz":
            self._notice.asked()
        facts = HealthFacts(
            tick_age=self._heartbeat.age(), config_applied=self._applied.is_set(), stopping=self._stopping.is_set()
        )
        return answer(path, facts, self._supervisor.statuses(), verbose=verbose)

    def _status_line(self) -> str:
        statuses = [status for status in self._supervisor.statuses() if status.wanted == "running"]
        ready = sum(status.is_healthy for status in statuses)
        return f"{ready}/{len(statuses)} servers ready{faults_in_status(self._reloader.applied)}"

    def _tell_ready(self, addresses: Mapping[str, Sequence[str]]) -> None:
        self._notifier.ready(self._status_line())
        _log.info("serving", gateway=list(addresses["gateway"]), metrics=list(addresses["metrics"]))

    async def _tell_status(self) -> None:
        """Keep systemd's one-line status true."""
        told = self._status_line()
        with self._supervisor.bus.subscribe(size=64) as events:
            async for _ in events:
                await anyio.sleep(STATUS_SECONDS / 2)
                line = self._status_line()
                if line != told and not self._stopping.is_set():
                    told = line
                    self._notifier.status(line)


def _tell_subtree(subtree: Subtree) -> None:
    if subtree.path is None:
        _log.info("servers get no control groups of their own", why=subtree.why_not)
    else:
        _log.info(
            "each server gets a control group of its own", below=str(subtree.path), controllers=sorted(subtree.controllers)
        )


@asynccontextmanager
async def _serving_metrics(recorder: MetricsRecorder, listen: Sequence[str]) -> AsyncGenerator[MetricsServer]:
    server = MetricsServer(recorder.registry, listen, on_refused=partial(recorder.refused, "metrics"))
    server.start()
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)


def _leave_no_core() -> None:
    """A core dump of ours would hold every secret; `ulimit -c` of a debugging session can be raised again."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _raise_file_limit() -> None:
    """Take as many open files as we are allowed: each server costs up to five; children get the usual soft limit back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some sandboxes refuse; the soft limit then stands
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
