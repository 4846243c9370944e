"""Owns the wire to a stdio server: one message a line over the pipes of one process, from its start to its certain end."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.opening import ProcessHooks
from mcpvisor.supervisor.pace import Pace
from mcpvisor.supervisor.process.cgroup import enclose
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree
from mcpvisor.supervisor.process.ending import end_process
from mcpvisor.supervisor.process.environment import Marker, child_environment
from mcpvisor.supervisor.process.launch import ProcessExit, ServerProcess, launch
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.spec import StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.ahead import LARGE
from mcpvisor.supervisor.transports.codec import Unreadable, encode
from mcpvisor.supervisor.transports.eventstream import in_steps
from mcpvisor.supervisor.transports.exchange import JsonObject, Pending, WireHooks
from mcpvisor.supervisor.transports.lines import LineSplitter, Overlong
from mcpvisor.supervisor.transports.outgoing import InputClosed, Outgoing, QueueFull
from mcpvisor.supervisor.transports.wire import OpenFailed, Wire, WireEnd

DRAIN_SECONDS: Final = 0.2
"""How long after the exit to wait for more of what the server has written, where another process holds its stdout."""

LAST_WORDS_SECONDS: Final = 5.0
"""How long all of that may take to come."""

EXIT_SECONDS: Final = 0.1
"""How long after the end of a pipe its process may take to exit, so that the exit is what is told."""

FLUSH_SECONDS: Final = 0.25
"""How long a server that is being ended may take to read what has been begun."""

_READ: Final = 65536
_REST_FACTOR: Final = 4
"""A server above its rate is read a fifth of the time: its pipe holds it back, and its neighbours have the rest."""
_REST: Final = (0.003, 0.25)
"""The shortest rest leaves a flooding server blocked in its pipe most of the time, and the machine to the others."""

MAX_BLANKS: Final = 100
"""Lines of one read with nothing in them that are no flood."""

_FOREIGN_FRAME: Final = re.compile(rb"Content-Length:\s*\d+\s*", re.IGNORECASE)


class StdioWire(Wire):
    """The wire over the pipes of a running process. Ends when the process does, whoever else may hold its stdout."""

    kind = "stdio"

    def __init__(self, process: ServerProcess, hooks: WireHooks, ring: StderrRing, *, max_message: int) -> None:
        super().__init__(hooks, max_message=max_message)
        self._process = process
        self._ring = ring
        self._outgoing = Outgoing(process.stdin_fd)
        self._lines = LineSplitter(max_message)
        self._max_message = max_message
        self._is_spoken_to = False
        self._steps = 0
        """Reads, and lines that were taken."""
        self._reading: anyio.Event | None = None
        """Set at the end of the large message that is being read, which may take a while."""
        self._drained = anyio.Event()
        self._sign = anyio.Event()
        """Set by the first sign of an end: the exit, the end of stdout, or a closed stdin."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit(self) -> ProcessExit | None:
        """How the process ended; None while it runs."""
        return self._process.exit

    def finish(self, end: WireEnd) -> None:
        """See `Wire.finish`; a request whose line had not begun surely never reached the server, and fails as such."""
        if self.end is None:
            for request in self._outgoing.withdraw_all():
                self._exchange.close(request)
                request.fail(self._not_sent(end))
            self._exchange.intake.close()
        super().finish(end)

    async def flush(self) -> None:
        """Write what has been begun, so that a server that is being ended never reads half a line."""
        with anyio.move_on_after(FLUSH_SECONDS):
            await self._outgoing.flushed()

    async def discard(self) -> None:
        """Read stdout to its end for nobody, so that a server that is being ended can write its last words and leave."""
        while True:
            await anyio.wait_readable(self._process.stdout_fd)
            if self._read_some() == b"":
                return

    async def drain_stderr(self) -> None:
        """Read stderr to its end."""
        await self._ring.drain(self._process.stderr_fd)

    def drain_last_words(self) -> None:
        """Take what a dead server has left on stderr."""
        self._ring.drain_rest(self._process.stderr_fd)

    async def _carry(self, pending: Pending, message: JsonObject, headers: Mapping[str, str]) -> JsonObject:  # noqa: ARG002 - pipes carry no headers
        try:
            line = encode(message) + b"\n"
        except ValueError as error:
            raise RequestFailed(Outcome.REJECTED, "unencodable", f"the request {error}", code=-32600) from error
        try:
            self._outgoing.put(line, pending)
        except QueueFull:
            raise RequestFailed(Outcome.NOT_SENT, "queue_full", "the server does not read its stdin") from None
        except InputClosed:
            self._sign.set()
            await self.ended.wait()  # it is near, and has the reason
            assert self.end is not None
            raise self._not_sent(self.end) from None
        return await pending.outcome()

    async def _cancel(self, pending: Pending) -> None:
        if not self._outgoing.withdraw(pending):
            params = {"requestId": pending.id, "reason": "the caller has gone"}
            await self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def _send(self, message: JsonObject) -> None:
        try:
            self._outgoing.put(encode(message) + b"\n")
        except ValueError as error:
            self._hooks.refused("syntax", f"a message of ours {error}")
        except QueueFull:
            self._hooks.refused("rate", "the server does not read its stdin: a message to it was dropped")
        except InputClosed:
            self._sign.set()

    async def _pump(self) -> None:
        async with anyio.create_task_group() as tasks:
            for part in (self._read, self._write, self._watch, self.drain_stderr):
                tasks.start_soon(part)
            await self._sign.wait()
            with anyio.move_on_after(EXIT_SECONDS):
                await self._process.wait()
            if self._process.exit is not None:
                await self._drain()
            tasks.cancel_scope.cancel()
        self.drain_last_words()
        self.finish(self._reason())

    async def _drain(self) -> None:
        """Read what the server had written before its exit, as long as there is more; what has come is read to its end."""
        deadline, steps = anyio.current_time() + LAST_WORDS_SECONDS, -1
        while not self._drained.is_set() and self._steps > steps and anyio.current_time() < deadline:
            steps = self._steps
            with anyio.move_on_after(DRAIN_SECONDS):
                await self._drained.wait()
            if self._reading is not None:
                await self._reading.wait()

    def _reason(self) -> WireEnd:
        known = self._process.exit
        if known is not None:
            return WireEnd(cause="process_exited", detail=f"the server {known}", exit_code=known.exit_code, signal=known.signal)
        if self._drained.is_set():
            return WireEnd(cause="stdout_closed", detail="the server has closed its stdout, but still runs")
        return WireEnd(cause="stream_failed", detail="the server has closed its stdin, but still runs")

    async def _watch(self) -> None:
        await self._process.wait()
        self._sign.set()

    async def _write(self) -> None:
        await self._outgoing.run()
        self._sign.set()

    async def _read(self) -> None:
        intake, pace = self._exchange.intake, Pace(self._exchange.account)
        while True:
            await anyio.wait_readable(self._process.stdout_fd)
            pace.begin()
            overruns, answers = intake.overruns, self._exchange.answers
            data = self._read_some()
            if data == b"":
                break
            self._steps += 1
            worth = self._thinned(data or b"")
            blanks = worth.count(b"\n")
            for part in in_steps(worth):
                for line in self._lines.feed(part):
                    blanks -= 1
                    await self._take(line, pace)
                    await pace.pause(rests=self._exchange.answers == answers)
                await pace.pause(rests=self._exchange.answers == answers)
            if blanks > MAX_BLANKS:
                intake.dropped(blanks)
            if intake.overruns > overruns or self._lines.is_skipping:
                await anyio.sleep(min(max(pace.worked * _REST_FACTOR, _REST[0]), _REST[1]))
        for line in self._lines.end():
            await self._take(line, pace)
        self._drained.set()
        self._sign.set()

    def _thinned(self, data: bytes) -> bytes:
        """What is worth looking at in it: in a flood lines that are surely dropped are not even parsed, only counted."""
        if not self._exchange.intake.drops_unread(data):
            return data
        head, _, rest = data.partition(b"\n")  # the ends belong to lines that are not seen whole
        whole, _, tail = rest.rpartition(b"\n")
        if not whole:
            return data
        self._exchange.drop_unread(whole, whole.count(b"\n") + 1)
        return head + b"\n" + tail

    def _read_some(self) -> bytes | None:
        """What is there to be read: None for nothing, empty for the end."""
        try:
            return os.read(self._process.stdout_fd, _READ)
        except BlockingIOError:
            return None

    async def _read_ahead(self, line: bytes) -> None:
        self._reading = anyio.Event()
        await self._exchange.reader.ahead(line)
        self._reading.set()
        self._reading = None

    async def _take(self, line: bytes | Overlong, pace: Pace) -> None:
        self._steps += 1
        if isinstance(line, Overlong):
            refusal = Unreadable("size", f"a line of {line.size} bytes is over the limit of {self._max_message}")
            self._exchange.unreadable(line.ends, refusal)
        elif self._exchange.intake.drops_unread(line):
            self._exchange.drop_unread(line, 1)
        elif not self._is_spoken_to and line[:1] != b"{" and _FOREIGN_FRAME.fullmatch(line):
            detail = "the server frames its messages with Content-Length headers; MCP over stdio is one message a line"
            self.finish(WireEnd(cause="protocol", detail=detail))
            self._sign.set()
        else:
            self._is_spoken_to = self._is_spoken_to or line.startswith(b"{")
            if len(line) >= LARGE:
                await self._read_ahead(line)
                pace.go_on()
            self._received(line)


@asynccontextmanager
async def open_stdio(
    target: StdioLaunch,
    hooks: WireHooks,
    ring: StderrRing,
    *,
    marker: Marker,
    graces: StopGraces,
    max_message: int,
    processes: ProcessHooks,
    subtree: Subtree = NOT_TAKEN,
) -> AsyncGenerator[StdioWire]:
    """A wire to a server started for it; `run` has to be running for it to carry anything. Raises OpenFailed.

    On leaving the server and all it has started are ended for certain, in the graces and a few seconds at most.
    """
    enclosure = enclose(subtree, marker, target.limits)
    try:
        process = launch(target, child_environment(target, marker, os.environ), enclosure.group)
    except OpenFailed:
        if enclosure.group is not None:
            enclosure.group.empty()
        raise
    wire = StdioWire(process, hooks, ring, max_message=max_message)
    processes.process_started(process.pid)
    if enclosure.lacking:
        processes.limits_not_enforced(enclosure.lacking, enclosure.why)
    try:
        yield wire
    finally:
        wanted, ended = process.poll() is None, None
        wire.finish(WireEnd(cause="closed", detail="the wire was closed"))
        with anyio.CancelScope(shield=True):
            if wanted:
                await wire.flush()
            ended = await end_process(process, marker, graces, (wire.discard, wire.drain_stderr), wire.drain_last_words)
        if ended is None:
            processes.process_stuck(process.pid)
        else:
            processes.process_ended(
                ended.pid,
                exit_code=ended.exit_code,
                signal=ended.signal,
                seconds=ended.seconds,
                wanted=wanted,
                why=ended.why,
            )
