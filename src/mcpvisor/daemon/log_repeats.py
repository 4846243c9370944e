"""Owns the limit on equal log lines: a storm of one message costs a few lines and a count."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from mcpvisor.daemon.log_sink import LogRecord

EQUAL_LINES: Final = 10
WINDOW_SECONDS: Final = 30.0
REMEMBERED: Final = 1024


@dataclass(slots=True)
class _Seen:
    since: float
    passed: int
    suppressed: int
    last: LogRecord


class RepeatLimit:
    """Lets `EQUAL_LINES` equal records through per window; the first one after it says how many were suppressed.

    Records are equal when level, message and fields are. Times are the records' own. Used from any thread.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, ...], _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, record: LogRecord) -> list[LogRecord]:
        """What to write because of this record: nothing, it alone, or it after the count of those before it."""
        key = (record.level, record.message, *(f"{name}={value}" for name, value in record.fields.items()))
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None and _is_within(seen, record.at):
                if seen.passed < EQUAL_LINES:
                    seen.passed += 1
                    return [record]
                seen.suppressed += 1
                seen.last = record
                return []
            told = _count_of(self._seen.pop(key)) if seen is not None else []
            self._seen[key] = _Seen(record.at, 1, 0, record)
            if len(self._seen) > REMEMBERED:
                told += _count_of(self._seen.popitem(last=False)[1])
            return [*told, record]

    def expired(self, now: float) -> list[LogRecord]:
        """The counts of lines whose window is over and that did not come again."""
        told: list[LogRecord] = []
        with self._lock:
            while self._seen:
                key, oldest = next(iter(self._seen.items()))
                if _is_within(oldest, now):
                    break
                del self._seen[key]
                told += _count_of(oldest)
        return told


def _is_within(seen: _Seen, now: float) -> bool:
    return 0 <= now - seen.since < WINDOW_SECONDS  # a clock that was set back ends the window


def _count_of(seen: _Seen) -> list[LogRecord]:
    if not seen.suppressed:
        return []
    fields = {**seen.last.fields, "suppressed": seen.suppressed}
    return [replace(seen.last, message=f"{seen.last.message} ({seen.suppressed} more such lines suppressed)", fields=fields)]
