"""Owns the reading of resources whose server cannot push: each at its own pace, a change found by the hash of its content."""

from __future__ import annotations

import hashlib
import random
from typing import Any, Final

import anyio

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.listing import Ask
from mcpvisor.supervisor.subscriptions.attachment import Attachment
from mcpvisor.supervisor.subscriptions.outcome import WHY
from mcpvisor.supervisor.subscriptions.stream import End
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.transports.codec import encode

AT_ONE_TIME: Final = 4
"""Reads that are in flight at one time."""

READ_SECONDS: Final = 10.0
"""How long one read may take."""

MAX_BYTES: Final = 4 * 1024 * 1024
"""The largest content, as JSON, that is hashed; a larger one is not polled."""

SPREAD: Final = 0.1
"""The part of the time between two reads by which it varies, so that many do not come together."""


class Poller:
    """Polls what a session does not push and somebody wants to have read."""

    def __init__(self, table: Subscriptions, attachment: Attachment, ask: Ask, wire: End) -> None:
        self._table = table
        self._attachment = attachment
        self._ask = ask
        self._wire = wire
        self._places = anyio.Semaphore(AT_ONE_TIME)

    async def run(self) -> None:
        """Read what is due, until cancelled or the wire ends."""
        while not self._wire.ended.is_set():
            stirred = self._table.stirred
            await self.read_due()
            due = min((at for _, at in self._attachment.to_read()), default=float("inf"))
            with anyio.move_on_at(due):
                await stirred.wait()

    async def read_due(self) -> None:
        """Read once each resource whose time has come."""
        now = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for uri, at in self._attachment.to_read():
                if at <= now:
                    tasks.start_soon(self._read, uri)

    async def _read(self, uri: str) -> None:
        async with self._places:
            digest, why = b"", f"no answer within {READ_SECONDS:g} s"
            with anyio.move_on_after(READ_SECONDS):
                try:
                    digest, why = digest_of(await self._ask("resources/read", {"uri": uri})), ""
                except (RequestFailed, ValueError) as failure:
                    why = clean_text(str(failure), WHY)
        if self._wire.ended.is_set():
            return
        jitter = 1 + SPREAD * (2 * random.random() - 1)  # noqa: S311 - nothing to guess
        if why:
            self._attachment.has_not_read(uri, why, jitter)
        else:
            self._attachment.has_read(uri, digest, jitter)


def digest_of(result: dict[str, Any]) -> bytes:
    """The hash of what was read. Raises ValueError for what cannot be hashed: no content, or too much of it."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        kind = result.get("resultType")
        said = f", it is {kind!r}" if isinstance(kind, str) else ""
        raise ValueError(f"the answer has no contents{said}")  # noqa: TRY004 - the promise is one error for any bad answer
    data = encode(contents)
    if len(data) > MAX_BYTES:
        raise ValueError(f"its content of {len(data)} bytes is over the {MAX_BYTES} that are polled")
    return hashlib.sha256(data).digest()
