"""Owns what was said on the event streams of sessions, for a while and within bounds, so that a broken one can go on."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from mcpvisor.supervisor.transports.codec import decode

RequestId = int | str

EVENTS_OF_STREAM: Final = 64
"""Events kept of one stream; above that the oldest goes, but for an answer, which is the last one."""

ENDED_STREAMS: Final = 32
"""Streams of one session that are kept after their answer."""

BYTES_OF_SESSION: Final = 4 * 1024 * 1024
BYTES_OF_ALL: Final = 64 * 1024 * 1024

KEPT_SECONDS: Final = 300.0
"""For how long an answer is kept, and what came on a stream of notifications."""

_PUSH: Final = "p"
_ANSWER: Final = "a"
_ID: Final = re.compile(r"(?:p([\w-]{16})\.(\d{1,12})|a([\w-]{16})\.(\d{1,12})\.([\w-]{0,96}))", re.ASCII)

_MAX_WRITTEN: Final = 64
"""Bytes of a request's id that are repeated in the ids of events."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a stream, as the id of an event names it.

    `request` is None in a stream of notifications, and where the id of the request was too long to be named.
    """

    stream: str
    number: int
    is_push: bool
    request: RequestId | None


def read_place(event_id: str) -> Place | None:
    """What the id of an event says; None where it is none of ours."""
    found = _ID.fullmatch(event_id)
    if found is None:
        return None
    if found[1] is not None:
        return Place(found[1], int(found[2]), is_push=True, request=None)
    return Place(found[3], int(found[4]), is_push=False, request=_read(found[5]))


def _written(request: RequestId) -> str:
    raw = json.dumps(request).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if len(raw) <= _MAX_WRITTEN else ""


def _read(written: str) -> RequestId | None:
    try:
        raw = base64.urlsafe_b64decode(written + "=" * (-len(written) % 4))
        value = decode(raw, max_bytes=len(raw))  # as strictly as the bodies of requests: it is written in an answer again
    except (binascii.Error, ValueError):
        return None
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class _Event:
    number: int
    at: float
    data: bytes


class Track:
    """What was said on one stream. Its events are numbered from 1 on; place 0 is its beginning."""

    def __init__(self, request: RequestId | None, grown: Callable[[int], None]) -> None:
        """`request` is whose answer it brings, None where it brings notifications. `grown` is told of bytes more or less."""
        self.name = secrets.token_urlsafe(12)
        """Nobody can guess it, and no other run of the daemon has it."""
        self.request = request
        self.size = 0
        self.is_over = False
        """Whether its last event is in it."""
        self.is_forgotten = False
        self.reader: object | None = None
        """Who took it up last and sends its events now; each is sent to one alone."""
        self.is_taken_up = False
        """Whether it goes on elsewhere than where it began."""
        self.last = 0
        """The number of the event that came last."""
        self._is_push = request is None
        self._suffix = "" if request is None else f".{_written(request)}"
        self._grown = grown
        self._events: deque[_Event] = deque()
        self._final: _Event | None = None
        """The last event where it is too large to be kept, for the reader who waits for it."""
        self._lost = 0
        self._stirred = anyio.Event()

    def __repr__(self) -> str:
        return f"Track({len(self._events)} events up to {self.last}, {self.size} bytes)"

    def id_at(self, number: int) -> str:
        """The id of the event at a place."""
        return f"{_PUSH if self._is_push else _ANSWER}{self.name}.{number}{self._suffix}"

    def record(self, body: bytes, *, is_last: bool = False) -> bytes:
        """Keep a message, which is `body`; the event that says it."""
        self.last += 1
        data = b"event: message\r\nid: " + self.id_at(self.last).encode() + b"\r\ndata: " + body + b"\r\n\r\n"
        self.is_over = is_last
        event = _Event(self.last, time.monotonic(), data)
        if is_last and self.reader is not None:
            self._final = event
        if len(data) > BYTES_OF_SESSION:
            self._lost = self.last  # nothing else is lost for the sake of what cannot be kept
        elif not self.is_forgotten:
            self._events.append(event)
            self._resize(len(data))
            while len(self._events) > EVENTS_OF_STREAM:
                self.shed()
        self.stir()
        return data

    def take_back(self, number: int) -> None:
        """What was recorded last is told in some other way; it was not sent."""
        if self._events and self._events[-1].number == number:
            self._resize(-len(self._events.pop().data))

    def after(self, number: int) -> tuple[list[tuple[int, bytes]], bool]:
        """What is kept of what followed a place, and whether some of that is lost."""
        kept = [(event.number, event.data) for event in self._events if event.number > number]
        if self._final is not None and number < self._final.number and not (kept and kept[-1][0] == self._final.number):
            kept.append((self._final.number, self._final.data))
        return kept, number < self._lost

    def take_up(self, reader: object) -> None:
        """Somebody sends its events from now on; whoever did so before finds that out."""
        self.reader, self.is_taken_up = reader, True
        self.stir()

    def leave(self, reader: object) -> None:
        """Somebody sends no more of it."""
        if self.reader is reader:
            self.reader = self._final = None

    def shed(self) -> None:
        """Lose the oldest event."""
        event = self._events.popleft()
        self._lost = event.number
        self._resize(-len(event.data))

    def shed_older_than(self, at: float) -> None:
        """Lose what came before a time."""
        while self._events and self._events[0].at < at:
            self.shed()

    def forget(self) -> None:
        """Keep nothing of it from now on; who reads it is told no more."""
        self.is_forgotten = True
        self._lost = self.last
        self._events.clear()
        self._resize(-self.size)
        self.stir()

    def stir(self) -> None:
        """Wake whoever reads it."""
        self._stirred.set()
        self._stirred = anyio.Event()

    async def stirred(self, number: int, reader: object) -> None:
        """Return once there is something after a place, or somebody else has taken it up; at once where that is so already."""
        while self.last == number and self.reader is reader:
            await self._stirred.wait()

    def _resize(self, by: int) -> None:
        self.size += by
        self._grown(by)


class EventMemory:
    """The streams of one session: its stream of notifications, and those of its answers."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._size = 0
        self._answers: dict[str, Track] = {}
        self._ended: dict[str, float] = {}
        """The names of those that are over, the oldest first, and since when."""
        self._is_closed = False
        self.push = Track(None, self._grown)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size

    def open(self, request: RequestId) -> Track:
        """A new stream, which brings the answer to a request."""
        track = Track(request, self._grown)
        if self._is_closed:
            track.forget()
        else:
            self._answers[track.name] = track
        return track

    def ended(self, track: Track) -> None:
        """A stream has brought its answer: it is kept for a while, if there is room."""
        if track.name in self._answers:
            self._ended[track.name] = time.monotonic()
        while len(self._ended) > ENDED_STREAMS:
            self._forget(next(iter(self._ended)))

    def find(self, place: Place) -> Track | None:
        """The stream of a place; None where it is not kept, or was never one of this session."""
        self.forget_expired()
        track = {self.push.name: self.push}.get(place.stream) if place.is_push else self._answers.get(place.stream)
        return track if track is not None and place.number <= track.last else None

    def forget_expired(self) -> None:
        """Forget what was kept for its time."""
        oldest = time.monotonic() - KEPT_SECONDS
        for name in [name for name, at in self._ended.items() if at < oldest]:
            self._forget(name)
        self.push.shed_older_than(oldest)

    def close(self) -> None:
        """The session is over: nothing is kept of it."""
        self._is_closed = True
        for track in [*self._answers.values(), self.push]:
            track.forget()
        self._answers.clear()
        self._ended.clear()

    def shed(self) -> None:
        """Lose something: the answer that is over for longest, else the oldest event of whichever stream has the most."""
        if self._ended:
            self._forget(next(iter(self._ended)))
        else:
            max([*self._answers.values(), self.push], key=lambda track: track.size).shed()

    def _forget(self, name: str) -> None:
        self._ended.pop(name, None)
        self._answers.pop(name).forget()

    def _grown(self, by: int) -> None:
        self._size += by
        self._shelf.grown(self, by)
        if by > 0:
            while self._size > BYTES_OF_SESSION:
                self.shed()


class Shelf:
    """What all sessions keep: where that is too much, the one that has the most loses half of its own."""

    def __init__(self) -> None:
        self._size = 0
        self._holders: dict[EventMemory, None] = {}

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size

    def grown(self, memory: EventMemory, by: int) -> None:
        """A session keeps so many bytes more, or less."""
        self._size += by
        if memory.size:
            self._holders[memory] = None
        else:
            self._holders.pop(memory, None)
        while by > 0 and self._size > BYTES_OF_ALL:
            largest = max(self._holders, key=lambda one: one.size)
            enough = largest.size // 2
            while largest.size > enough:
                largest.shed()
