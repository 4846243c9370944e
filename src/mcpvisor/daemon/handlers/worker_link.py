"""Owns the talk with one worker process: what is under way with it, and how it and all of that end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, cast

import anyio

from mcpvisor.daemon.handlers.answers import MAX_ANSWER
from mcpvisor.daemon.handlers.contract import DeliveryFailed, JsonObject
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.process.launch import ServerProcess
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.transports.codec import Unreadable, decode, encode
from mcpvisor.supervisor.transports.lines import LineSplitter, Overlong
from mcpvisor.supervisor.transports.outgoing import InputClosed, Outgoing, QueueFull

MAX_LINE: Final = 2 * MAX_ANSWER
"""Bytes of a line of the worker's: an answer, and room for what JSON escapes."""

CANCEL_SECONDS: Final = 2.0
"""How long a worker may take to let go of what was cancelled; after that it is taken for stuck, and killed."""

EXIT_SECONDS: Final = 0.2
"""How long after the end of its pipe a worker may take to exit, so that the exit is what is told."""

_READ: Final = 65536
_WORDS: Final = 1000
_NO_WORKER: Final = "the worker said what a worker does not say"
_MAX_RETRY_AFTER: Final = 86_400.0

Method = Literal["deliver", "answer"]


class _Nonsense(Exception):
    """What no worker of ours says: its end of the pipe is in somebody else's hands."""


@dataclass(slots=True)
class _Asked:
    """One thing that is under way: its outcome is `told`, or the link's end."""

    what: str
    told: JsonObject | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)


class WorkerLink:
    """Asks a running worker. `run` has to be running; it returns when the worker is no good any more, and `why` says why."""

    def __init__(self, process: ServerProcess, ring: StderrRing, masked: Callable[[str], str]) -> None:
        """`masked` takes the secrets out of what the worker says."""
        self._process = process
        self._ring = ring
        self._masked = masked
        self._outgoing = Outgoing(process.stdin_fd)
        self._lines = LineSplitter(MAX_LINE)
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self._withdrawn: dict[int, tuple[float, str]] = {}
        """What was cancelled and is not let go of yet: until when it may take, and what it is."""
        self._certain = anyio.Event()
        self._certain.set()
        self._doubted = anyio.Event()
        self.opened = anyio.Event()
        """Set once the worker has loaded its handler, or is at its end."""
        self.ended = anyio.Event()
        self.why = ""
        self.methods: frozenset[str] = frozenset()

    @property
    def pid(self) -> int:
        """The worker's process."""
        return self._process.pid

    async def run(self) -> None:
        """Carry what is said both ways until the worker is no good any more."""
        async with anyio.create_task_group() as tasks:
            for part in (self._read, self._outgoing.run, self._watch, self.drain_stderr, self._watch_doubts):
                tasks.start_soon(part)
            await self.ended.wait()
            tasks.cancel_scope.cancel()

    async def load(self, words: JsonObject) -> None:
        """Have the worker load its handler. Raises DeliveryFailed where it cannot."""
        self._send({"load": words})
        await self.opened.wait()
        if self.ended.is_set():
            raise DeliveryFailed(self.why)

    async def listens(self) -> bool:
        """Whether the worker is good; waits while something that was cancelled is not let go of.

        The same event must not run twice at one time, and a worker that is stuck takes nothing any more.
        """
        while not self._certain.is_set():
            await self._certain.wait()
        return not self.ended.is_set()

    async def ask(self, method: Method, message: JsonObject, what: str) -> JsonObject:
        """What the worker says of one event or question; `what` names it. Raises DeliveryFailed.

        One that is cancelled here is cancelled there, and a worker that does not let go of it is killed.
        """
        number = next(self._numbers)
        asked = self._asked[number] = _Asked(what)
        try:
            self._send({method: number, "event" if method == "deliver" else "question": message})
            await asked.ended.wait()
        finally:
            del self._asked[number]
            if not asked.ended.is_set():
                self._withdraw(number, what)
        if asked.told is None:
            raise DeliveryFailed(self.why)
        return self._outcome(asked.told)

    def end(self, why: str) -> None:
        """The worker is no good any more: whatever is under way fails, and its process is to be ended."""
        if self.ended.is_set():
            return
        self.why = why
        self._withdrawn.clear()
        for event in (self.ended, self.opened, self._certain, *(asked.ended for asked in self._asked.values())):
            event.set()

    async def discard(self) -> None:
        """Read what the worker says to its end, for nobody, so that it can write its last words and leave."""
        while True:
            await anyio.wait_readable(self._process.stdout_fd)
            with suppress(BlockingIOError):
                if not os.read(self._process.stdout_fd, _READ):
                    return

    async def drain_stderr(self) -> None:
        """Read what the worker prints, to its end."""
        await self._ring.drain(self._process.stderr_fd)

    def drain_last_words(self) -> None:
        """Take what a dead worker has left unread."""
        self._ring.drain_rest(self._process.stderr_fd)

    def _outcome(self, told: JsonObject) -> JsonObject:
        if "done" in told:
            return told
        if "cancelled" in told:
            raise DeliveryFailed("the handler has cancelled it by itself")
        why, after = told.get("why"), told.get("retry_after")
        words = clean_text(why, _WORDS) if isinstance(why, str) and why else "the handler has failed without a word"
        is_number = isinstance(after, int | float) and not isinstance(after, bool) and after >= 0
        retry_after = min(float(cast("float", after)), _MAX_RETRY_AFTER) if is_number else None
        raise DeliveryFailed(self._masked(words), retry_after=retry_after, is_final=told.get("is_final") is True)

    def _send(self, message: JsonObject) -> None:
        try:
            self._outgoing.put(encode(message) + b"\n")
        except ValueError as error:
            raise DeliveryFailed(f"the message {error}", is_final=True) from error
        except QueueFull:
            raise DeliveryFailed("the worker does not read what it is sent") from None
        except InputClosed:
            raise DeliveryFailed("the worker has closed its stdin") from None

    def _withdraw(self, number: int, what: str) -> None:
        if self.ended.is_set():
            return
        with suppress(DeliveryFailed):  # a worker that does not read will not let go of it, which is seen in a moment
            self._send({"cancel": number})
        self._withdrawn[number] = (anyio.current_time() + CANCEL_SECONDS, what)
        if self._certain.is_set():
            self._certain = anyio.Event()
        self._doubted.set()

    async def _watch_doubts(self) -> None:
        while True:
            await self._doubted.wait()
            self._doubted = anyio.Event()
            while self._withdrawn:
                until, what = min(self._withdrawn.values())
                if anyio.current_time() >= until:
                    self.end(f"the worker did not let go of {what} within {CANCEL_SECONDS:g} s after it was cancelled")
                    return
                with anyio.move_on_at(until):
                    await self._certain.wait()

    async def _watch(self) -> None:
        ended = await self._process.wait()
        self.end(f"the worker {ended}")

    async def _read(self) -> None:
        while not self.ended.is_set():
            await anyio.wait_readable(self._process.stdout_fd)
            try:
                data = os.read(self._process.stdout_fd, _READ)
            except BlockingIOError:
                continue
            if not data:
                with anyio.move_on_after(EXIT_SECONDS):
                    await self._process.wait()
                known = self._process.exit
                self.end(f"the worker {known}" if known is not None else "the worker has closed its pipe, but still runs")
                return
            for line in self._lines.feed(data):
                self._take(line)
            if self._lines.is_skipping:
                self.end(f"{_NO_WORKER}: a line of more than {MAX_LINE} bytes")

    def _take(self, line: bytes | Overlong) -> None:
        try:
            if isinstance(line, Overlong):
                raise _Nonsense(f"a line of more than {MAX_LINE} bytes")
            told = decode(line, max_bytes=MAX_LINE)
            if not isinstance(told, dict):
                raise _Nonsense("what is no object")
            self._heard(cast("JsonObject", told))
        except (Unreadable, _Nonsense) as error:
            self.end(f"{_NO_WORKER}: {error}")

    def _heard(self, told: JsonObject) -> None:
        """Take one message. Raises _Nonsense for one that nobody waits for."""
        if not self.opened.is_set():
            if "unusable" in told:
                self.end(self._masked(clean_text(str(told["unusable"]), _WORDS)))
                return
            methods: Any = told.get("ready")
            if not isinstance(methods, list):
                raise _Nonsense("something before it was ready")
            self.methods = frozenset(one for one in methods if isinstance(one, str))
            self.opened.set()
            return
        number: Any = next((told[word] for word in ("done", "failed", "cancelled") if word in told), None)
        if isinstance(number, int) and self._withdrawn.pop(number, None) is not None:
            if not self._withdrawn:
                self._certain.set()
            return
        asked = self._asked.get(number) if isinstance(number, int) else None
        if asked is None or asked.ended.is_set():
            raise _Nonsense("an outcome of what is not under way")
        asked.told = told
        asked.ended.set()
