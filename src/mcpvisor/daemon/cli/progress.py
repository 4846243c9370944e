"""Owns how often a person is told of the progress of a request: the newest of it, a few times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

APART_SECONDS: Final = 0.1


class Progress:
    """Hands on the newest of what it hears, at once or `APART_SECONDS` after the last; at its end whatever is left.

    `tell` is called on the thread of whoever tells it of progress, or on one of its own, never on both at a time.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._told_at = float("-inf")
        self._newest: str | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tell_newest()

    def heard(self, text: str) -> None:
        """There is news."""
        with self._lock:
            self._newest = text
            wait = self._told_at + APART_SECONDS - time.monotonic()
            if wait > 0 and self._timer is None:
                self._timer = threading.Timer(wait, self._tell_newest)
                self._timer.daemon = True
                self._timer.start()
        if wait <= 0:
            self._tell_newest()

    def _tell_newest(self) -> None:
        with self._lock:
            self._timer = None
            text, self._newest = self._newest, None
            if text is not None:
                self._told_at = time.monotonic()
                self._tell(text)
