"""Owns which parts a daemon has, and what each of them is given; in which order they come up is `daemon.daemon`'s."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcpvisor.daemon.config.reload import Reloader
from mcpvisor.daemon.config.settings import Settings
from mcpvisor.daemon.handlers.engine import HandlerEngine
from mcpvisor.daemon.handlers.ledger import Ledger
from mcpvisor.daemon.handlers.making import Surroundings
from mcpvisor.daemon.handlers.observing import ProgressObserver
from mcpvisor.daemon.heartbeat import Heartbeat
from mcpvisor.daemon.log import Log
from mcpvisor.daemon.log_level import LogLevel
from mcpvisor.daemon.questions.desk import Desk, DeskLimits
from mcpvisor.daemon.questions.routed import RoutedQuestions
from mcpvisor.daemon.reloading import DaemonReloading
from mcpvisor.daemon.state.keeper import Keeper
from mcpvisor.daemon.state_dir import StateDir
from mcpvisor.daemon.status_line import StatusLine
from mcpvisor.daemon.systemd import Handover, Notifier
from mcpvisor.daemon.versions.shelf import Shelf
from mcpvisor.metrics.recorder import MetricsRecorder
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.events import ServerEvent
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.supervisor import Supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What there is before the daemon: its configuration as first read, its places, and what it was handed over."""

    reloader: Reloader
    state: StateDir
    log: Log
    handover: Handover
    recorder: MetricsRecorder
    subtree: Subtree
    known_secrets: KnownSecrets

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self.reloader.applied.running


class Parts:
    """The parts of one run, made and joined, none of them running yet."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self.notifier = Notifier(given.handover.notify_socket)
        self.heartbeat = Heartbeat(given.recorder.loop_ticked)
        self.keeper = Keeper(given.state.path)
        self.desk = Desk(
            DeskLimits(**given.settings.questions.model_dump()),
            tell=self._tell,
            handler_for=RoutedQuestions(lambda: self.handlers, lambda: given.reloader.applied.handlers),
            allowed=self._allowed,
            given=self._answered,
        )
        observer = ProgressObserver(given.recorder)
        self.supervisor = Supervisor(
            on_question=self.desk.sink(),
            observer=observer,
            instance=given.state.instance,
            guarded=False,  # by the daemon itself, whose guardian outlives its handlers
            parallel_starts=given.settings.daemon.parallel_starts,
            subtree=given.subtree,
            store=self.keeper.store,
            known_secrets=given.known_secrets,
        )
        self.handlers = self._engine()
        observer.on_progress = self.handlers.call_progressed
        self.level = LogLevel(given.log, given.settings.log.level)
        self.status_line = StatusLine(self.supervisor, given.reloader, self.notifier)
        self.reloading = DaemonReloading(
            given.reloader,
            self.supervisor,
            handlers=self.handlers,
            notifier=self.notifier,
            status_line=self.status_line.text,
            shelf=Shelf.of(self.keeper.store, given.state.path) if not given.state.read_only else None,
            known_secrets=given.known_secrets,
            ordered_level=lambda: self.level.ordered,
        )

    def _engine(self) -> HandlerEngine:
        given = self._given
        surroundings = Surroundings(
            instance=given.state.instance,
            environ=os.environ,
            emit=self._shown,
            subtree=given.subtree,
            known_secrets=given.known_secrets,
        )
        return HandlerEngine(self.supervisor.bus, Ledger(self.keeper.store), given.recorder, surroundings)

    def _allowed(self, server: str) -> tuple[str, ...]:
        """What a server may ask of programs, by its entry."""
        try:
            spec = self.supervisor.spec(server)
        except UnknownServer:  # it has left the configuration while it asked
            return ()
        return spec.allow if spec is not None else ()

    def _answered(self, server: str, texts: Sequence[str]) -> None:
        """Answers to questions go to the server, which may repeat them, and to nobody else."""
        self.supervisor.has_given(server, texts)

    def _tell(self, event: ServerEvent) -> None:
        self.supervisor.tell(event)

    def _shown(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """A line of a handler, where lines of its level are written."""
        if self._given.log.is_shown(level):
            self._given.log.emit(level, message, fields)
