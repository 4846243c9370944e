"""Owns what a run itself writes down, in a file, so that its own memory stays as it is."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import anyio
from tests.faults.oracles import Called, Changed, Moved, Recovery, Span, Updated

T = TypeVar("T")
Record = Called | Changed | Moved | Recovery | Span | Updated

TICK = 0.05
STALL = 0.03
"""A tick that comes so much late is a stall of the run."""


class Ledger:
    """A file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")

    def add(self, record: Record) -> None:
        """Write a record."""
        self._file.write(json.dumps([type(record).__name__, asdict(record)]) + "\n")

    def all(self, kind: type[T], **fields: Any) -> list[T]:
        """The records of a kind that have these values, in the order they were written."""
        if not self._file.closed:
            self._file.flush()
        found: list[T] = []
        for line in self.path.read_text().splitlines():
            name, values = json.loads(line)
            if name == kind.__name__ and all(values[field] == value for field, value in fields.items()):
                found.append(kind(**values))
        return found

    def stalls(self) -> list[Span]:
        """When the run itself stood still."""
        return self.all(Span, what="stall")

    async def watch_stalls(self) -> None:
        """Write down when this process did not get to run, until cancelled."""
        while True:
            due = time.monotonic() + TICK
            await anyio.sleep(TICK)
            if time.monotonic() > due + STALL:
                self.add(Span(due, time.monotonic(), what="stall"))

    def close(self) -> None:
        self._file.close()
