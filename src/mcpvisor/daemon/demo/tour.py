"""Owns what the demonstration says: the tour at its start, and one line for each change after it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mcpvisor.daemon.cli.output import clean
from mcpvisor.daemon.control.explain_text import clock_time
from mcpvisor.daemon.control.spans import seconds
from mcpvisor.supervisor.events import Event, ProcessEnded, ProcessStarted, ServerStateChanged
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor


def command_line(argv0: str, executable: str) -> str:
    """How this program is called, with full paths, so that it can be copied into another terminal."""
    program = Path(argv0)
    if program.name == "mcpvisor" and program.is_file():
        return str(program.absolute())
    return f"{executable} -m mcpvisor.daemon.cli.main"


def tour(command: str, socket: Path | None, addresses: Mapping[str, Sequence[str]], pids: Mapping[str, int]) -> str:
    """The tour: where things are, a call to try, and a server to kill. `socket` is named where verbs would not find it."""
    program = f"{command} --socket {socket}" if socket is not None else command
    gateway, metrics = (_url(addresses.get(part, ())) for part in ("gateway", "metrics"))
    victim = pids.get("flaky")
    kill = f"kill -9 {victim}" if victim is not None else "wait for flaky to be ready"
    return "\n".join(
        [
            f"1. The gateway is at {gateway}/mcp, without a token; metrics are at {metrics}/metrics.",
            f"""2. Call a tool:     {program} call slow count_down '{{"seconds": 3}}'""",
            f"3. Kill a server:   {kill}     and watch below, or with: {program} status --watch",
        ]
    )


def _url(addresses: Sequence[str]) -> str:
    """The first address of a listener as something that can be opened."""
    first = addresses[0] if addresses else "nowhere"
    return first if first.startswith(("http://", "unix:")) else f"http://{first}"


def change_line(event: Event) -> str | None:
    """One line for what a person would like to see happen; None for everything else."""
    if isinstance(event, ServerStateChanged) and event.old is not event.new:
        what = f"{event.old.value} -> {event.new.value}"
        if event.new is State.BACKOFF and event.next_attempt is not None:
            what += f", next try in {seconds(event.next_attempt - event.at)}"
        if event.reason and event.new is not State.READY:
            what += f" ({event.reason})"
    elif isinstance(event, ProcessStarted):
        what = f"runs as pid {event.pid}"
    elif isinstance(event, ProcessEnded):
        how = f"by signal {event.signal}" if event.signal is not None else f"with exit code {event.exit_code}"
        what = f"pid {event.pid} ended {how} after {seconds(event.seconds)}"
    else:
        return None
    return f"{clock_time(event.at)}  {event.server:<6} {what}"


class Guide:
    """Shows every change of the servers as it happens and, once all of them are ready, the tour."""

    def __init__(self, program: str, control: Path | None, say: Callable[[str], None]) -> None:
        self._program = program
        self._control = control
        self._say = say
        self._supervisor: Supervisor | None = None
        self._addresses: Mapping[str, Sequence[str]] = {}
        self._toured = False

    def begin(self, supervisor: Supervisor, addresses: Mapping[str, Sequence[str]]) -> None:
        """The daemon serves now; `addresses` say where, by listener."""
        self._supervisor, self._addresses = supervisor, addresses
        supervisor.bus.attach(self._happened)
        self._tour_when_ready()

    def _happened(self, event: Event) -> None:
        line = change_line(event)
        if line is not None:
            self._say(line)
        self._tour_when_ready()

    def _tour_when_ready(self) -> None:
        statuses = self._supervisor.statuses() if self._supervisor is not None and not self._toured else []
        if statuses and all(status.state is State.READY for status in statuses):
            self._toured = True
            pids = {status.name: status.pid for status in statuses if status.pid is not None}
            self._say("\n" + tour(self._program, self._control, self._addresses, pids) + "\n")


def show(text: str) -> None:
    """Write a line at once, for whoever watches."""
    sys.stdout.write(clean(text) + "\n")
    sys.stdout.flush()
