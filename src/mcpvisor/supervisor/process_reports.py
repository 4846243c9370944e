"""Owns what is known and told of the processes of one server: which run, how the last one ended, which limits do not hold."""

from __future__ import annotations

import signal as signals
import time

from mcpvisor.supervisor import events
from mcpvisor.supervisor.process.sampling import Usage
from mcpvisor.supervisor.status import LastExit
from mcpvisor.supervisor.teller import Teller


class ProcessReports:
    """Turns what processes tell into events; see `ProcessHooks`."""

    def __init__(self, teller: Teller) -> None:
        self.running: dict[int, int] = {}
        """The generation of each running process, by its pid; the newest last."""
        self.last_exit: LastExit | None = None
        """How the newest of the ended processes ended; None while none has."""
        self.lacking_limits = ""
        """Which limits do not hold for the newest process, and why; empty where all do."""
        self._told_limits = ""
        self._teller = teller

    def pid_of(self, generation: int) -> int | None:
        """The process of that generation; None while none of it runs."""
        return next((pid for pid, of in self.running.items() if of == generation), None)

    def process_started(self, pid: int) -> None:
        """See `ProcessHooks`."""
        self.running[pid] = self._teller.generation
        self.lacking_limits = ""
        self._teller.emit(
            events.ProcessStarted(at=time.time(), server=self._teller.server, pid=pid, generation=self._teller.generation)
        )

    def limits_not_enforced(self, limits: tuple[str, ...], why: str) -> None:
        """See `ProcessHooks`. Told of once, not at every restart."""
        self.lacking_limits = f"{', '.join(limits)}: {why}"
        if self._told_limits != self.lacking_limits:
            self._told_limits = self.lacking_limits
            self._teller.emit(events.LimitsNotEnforced(at=time.time(), server=self._teller.server, limits=limits, why=why))

    def process_ended(
        self, pid: int, *, exit_code: int | None, signal: int | None, seconds: float, wanted: bool, why: str
    ) -> None:
        """See `ProcessHooks`."""
        generation = self.running.pop(pid, self._teller.generation)
        how = f"was killed by {_signal_name(signal)}" if signal is not None else f"exited with code {exit_code}"
        told = f"was killed by the kernel after {seconds:.1f} s: {why}" if why else f"{how} after {seconds:.1f} s"
        self.last_exit = LastExit(told, generation, pid, wanted)
        if not wanted and generation == self._teller.generation:
            self._teller.cause = self._teller.cause or "process_exited"
        self._teller.emit(
            events.ProcessEnded(
                at=time.time(),
                server=self._teller.server,
                pid=pid,
                generation=generation,
                exit_code=exit_code,
                signal=signal,
                seconds=seconds,
                wanted=wanted,
                why=why,
            )
        )

    def process_stuck(self, pid: int) -> None:
        """See `ProcessHooks`."""
        generation = self.running.pop(pid, self._teller.generation)
        self.last_exit = LastExit("hangs in the kernel; it was killed and is not waited for", generation, pid, wanted=True)
        self._teller.emit(events.ProcessStuck(at=time.time(), server=self._teller.server, pid=pid))

    def sampled(self, usage: Usage) -> None:
        """What its processes use was looked at."""
        self._teller.emit(
            events.ProcessesSampled(
                at=time.time(),
                server=self._teller.server,
                processes=usage.processes,
                resident_bytes=usage.resident_bytes,
                cpu_seconds=usage.cpu_seconds,
            )
        )


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
