"""Owns the way of a log record out of the process: a bounded queue that never makes anybody wait, and one thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

QUEUE_RECORDS: Final = 8192
QUEUE_CHARACTERS: Final = 8 * 1024 * 1024
RETRIES: Final = 5
RETRY_SECONDS: Final = 0.2
IDLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line for the log: plain values only, cleaned already. `at` in seconds since the epoch."""

    at: float
    level: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def size(self) -> int:
        """About how many characters it holds."""
        return 100 + len(self.message) + sum(len(v) if isinstance(v, str) else 40 for v in self.fields.values())


class Writer(Protocol):
    """Where records go. `write` may block, since only the sink's thread calls it, and may raise OSError."""

    name: str

    def write(self, record: LogRecord) -> None: ...

    def close(self) -> None: ...


class LogSink:
    """Takes records from any thread and writes them on its own; when the writer lags, the oldest records go first.

    `on_drop(sink, number)` is told of each loss. `idle` is called about once a second on the sink's thread and may return
    records of its own to write. `close` is the end: what is left is written as long as that takes at most its timeout.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        on_drop: Callable[[str, int], None] | None = None,
        idle: Callable[[], list[LogRecord]] | None = None,
    ) -> None:
        self._writer = writer
        self._on_drop = on_drop
        self._idle = idle
        self._queue: deque[LogRecord] = deque()
        self._characters = 0
        self._filled = threading.Condition()
        self._closing = threading.Event()
        self.dropped = 0
        """How many records were lost so far."""
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    @property
    def name(self) -> str:
        """The writer's name: `journal`, `console` or `json`."""
        return self._writer.name

    def start(self) -> None:
        """Write from now on."""
        self._thread.start()

    def put(self, record: LogRecord) -> None:
        """Queue a record; never waits for the writer."""
        if self._closing.is_set():
            self._lost(1)
            return
        lost = 0
        with self._filled:
            self._queue.append(record)
            self._characters += record.size
            while len(self._queue) > QUEUE_RECORDS or (self._characters > QUEUE_CHARACTERS and len(self._queue) > 1):
                self._characters -= self._queue.popleft().size
                lost += 1
            self._filled.notify()
        self._lost(lost)

    def close(self, timeout: float = 1.0) -> None:
        """Write what is queued, for at most `timeout` seconds; a writer that is stuck then is left to itself."""
        self._closing.set()
        with self._filled:
            self._filled.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _lost(self, number: int) -> None:
        if number:
            with self._filled:  # both the emitters and the sink's thread count
                self.dropped += number
            if self._on_drop is not None:
                self._on_drop(self.name, number)

    def _run(self) -> None:
        while True:
            record = self._next()
            if record is not None:
                self._write(record)
                continue
            for extra in self._idle() if self._idle is not None else ():
                self._write(extra)
            if self._closing.is_set():
                self._writer.close()
                return

    def _next(self) -> LogRecord | None:
        """The oldest record; None after a while without any, or at once when closing."""
        with self._filled:
            if not self._queue and not self._closing.is_set():
                self._filled.wait(IDLE_SECONDS)
            if not self._queue:
                return None
            record = self._queue.popleft()
            self._characters -= record.size
            return record

    def _write(self, record: LogRecord) -> None:
        """Write, and try again for a second: journald is away for that long when it is restarted."""
        for _ in range(RETRIES):
            try:
                self._writer.write(record)
            except (ConnectionRefusedError, FileNotFoundError, BlockingIOError):
                if self._closing.wait(RETRY_SECONDS):
                    break
            except Exception:  # noqa: BLE001  # counted below; the log cannot tell of itself, and its thread must go on
                break
            else:
                return
        self._lost(1)
