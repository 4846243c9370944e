"""Owns the parsing of `text/event-stream` by the rules of the WHATWG (HTML, section 9.2.6): incremental and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from mcpvisor.supervisor.transports.codec import Unreadable

MAX_ID: Final = 1024
"""Characters of an event id that is kept; it goes back to the server in a header."""

_FIELDS: Final = 64 * 1024
"""Room for field names, ids and keep-alive comments beside the data of one event."""

_BOM: Final = b"\xef\xbb\xbf"


_STEP: Final = 4096
"""Bytes that are looked at in one step: they may be nothing but ends of lines."""


def in_steps(data: bytes) -> Iterator[bytes]:
    """The same bytes, in parts none of which takes long to be looked through for ends of lines."""
    return (data[start : start + _STEP] for start in range(0, len(data), _STEP))


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event; `data` may be empty (keep-alives and priming events), which is for the reader to skip."""

    name: str
    data: bytes

    @property
    def is_message(self) -> bool:
        """Whether it holds a message of the protocol, or should."""
        return bool(self.data) and self.name == "message"


class EventStream:
    """Turns the bytes of one stream into events.

    `limit` is the most data of one event; an endless line, endless comments and an endless event are all found by one
    count: the bytes since the last event.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._tail = BytesIO()
        self._after_cr = False
        self._first_line = True
        self._since_event = 0
        self._name = ""
        self._data: BytesIO | None = None
        self._id: str | None = None
        self.last_id = ""
        """The id to resume from: that of the last event that was complete."""
        self.retry_ms: int | None = None
        """How long the server wants us to wait before the stream is opened again."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that are complete with these bytes. Raises Unreadable, after which the stream is of no use."""
        self._since_event += len(data)
        if self._after_cr and data:
            data = data[1:] if data.startswith(b"\n") else data
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = data.split(b"\n")
        events: list[StreamEvent] = []
        if lines:
            if self._tail.tell():
                self._tail.write(lines[0])
                lines[0] = self._tail.getvalue()
                self._tail = BytesIO()
            events.extend(event for line in lines if (event := self._line(line)) is not None)
        self._tail.write(rest)
        if self._since_event > self._limit + _FIELDS:
            raise Unreadable("size", f"more than {self._limit + _FIELDS} bytes of an event stream without an event")
        return events

    def _line(self, line: bytes) -> StreamEvent | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        colon = line.find(b":", 0, _FIELDS)
        if colon < 0:
            colon = len(line)
        field = line[:colon]
        value = line[colon + (2 if line[colon + 1 : colon + 2] == b" " else 1) :]  # a long one is copied once only
        if field == b"data":
            if self._data is None:
                self._data = BytesIO()
            else:
                self._data.write(b"\n")
            self._data.write(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id":
            if b"\0" not in value and len(value) <= MAX_ID:
                self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> StreamEvent | None:
        if self._id is not None:
            self.last_id = self._id
        name, self._name = self._name or "message", ""
        if self._data is None:
            return None
        data = self._data.getvalue()
        self._data = None
        if len(data) > self._limit:
            raise Unreadable("size", f"an event of {len(data)} bytes is over the limit of {self._limit}")
        self._since_event = 0
        return StreamEvent(name, data)
