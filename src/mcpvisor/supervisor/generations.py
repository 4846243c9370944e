"""Owns the generations of one server that are not gone yet: which of them serves, and what the end of each meant."""

from __future__ import annotations

from enum import Enum, auto

import anyio

from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.generation import Generation
from mcpvisor.supervisor.lifecycle_messages import Ended
from mcpvisor.supervisor.offer import NOTHING
from mcpvisor.supervisor.reporting import Reporter
from mcpvisor.supervisor.restoring import Restorer
from mcpvisor.supervisor.spec import ServerSpec


class Standing(Enum):
    """What a generation was to the server when it ended."""

    COMING = auto()
    SERVING = auto()
    RETIRED = auto()


class Generations:
    """The generations by their numbers; the door leads to the one that serves."""

    def __init__(self, connection: Connection, restorer: Restorer, reporter: Reporter) -> None:
        self._connection = connection
        self._restorer = restorer
        self._reporter = reporter
        self._alive: dict[int, Generation] = {}
        self.serving: int | None = None
        """The number of the generation that requests go to."""

    def added(self, generation: Generation) -> None:
        """There is another one."""
        self._reporter.wire.faults.forget_all_but(self._alive)
        self._alive[generation.number] = generation

    def closed(self, number: int) -> None:
        """Nothing is left of a generation."""
        self._alive.pop(number, None)

    def shown(self, newest: int) -> Generation | None:
        """The one that serves, or else the newest one, of this number; None where that is gone."""
        return self._alive.get(self.serving or newest)

    def respecified(self, spec: ServerSpec) -> None:
        """A spec that differs only in what can be applied in place."""
        for generation in self._alive.values():
            generation.respecified(spec)

    def recheck(self, after: float) -> None:
        """Probe the session that serves in so many seconds; what is on its way up proves itself."""
        generation = self._alive.get(self.serving or 0)
        if generation is not None and generation.session is not None:
            generation.session.recheck(after)

    # Commands of the lifecycle

    def serve(self, number: int) -> None:
        """Let requests go to this one from now on."""
        generation = self._alive[number]
        if self.serving is not None:
            self._restorer.reread()  # the lists of the last one may have been read after those of this one
        self.serving = number
        self._connection.era = generation.handshake.era if generation.handshake else None
        self._connection.carried_by(generation.session)

    def retire(self, number: int, drain: float) -> None:
        """Let a generation end, within `drain` seconds for what is in flight; one that serves beside it goes on."""
        generation = self._alive.get(number)
        if generation is not None:
            generation.retire(drain)
        if number == self.serving or self.serving is None:
            self.serving = None
            self._connection.carried_by(None)
            self._connection.stale = self._connection.offer is not NOTHING
            return
        serving = self._alive[self.serving]
        if serving.session is not None:
            serving.session.resume()  # the one that was to take over may have been given up

    # What generations tell

    def session_opened(self, number: int) -> None:
        """The handshake of a generation is done."""
        generation = self._alive[number]
        if generation.handshake is not None:
            seconds = generation.handshake_seconds or 0.0
            self._reporter.session_opened(number, generation.handshake, generation.transport, seconds)

    def connect_ended(self, number: int, outcome: str) -> None:
        """The way up of a generation has ended, well or not."""
        generation = self._alive.get(number)
        if generation is not None:
            self._reporter.connect_ended(number, outcome, anyio.current_time() - generation.opened_at)

    def standing(self, number: int) -> Standing:
        """What a generation is to the server now."""
        generation = self._alive.get(number)
        if generation is None or generation.is_retired:
            return Standing.RETIRED
        return Standing.SERVING if number == self.serving else Standing.COMING

    def ended(self, event: Ended, standing: Standing) -> None:
        """A generation has ended that was this to the server before."""
        match standing:
            case Standing.COMING:
                self.connect_ended(event.generation, event.cause)
                if self.serving is not None:
                    self._restorer.reread()  # the lists of one that is not to serve may have been read by now
            case Standing.SERVING:
                self._reporter.session_lost(event.generation, event.cause, event.detail)
            case Standing.RETIRED:
                pass
