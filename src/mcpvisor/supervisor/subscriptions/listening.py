"""Owns the subscriptions of one session of the newer era: one stream for everything, replaced when something else is wanted.

The new stream is opened before the old one is closed, so that no update falls between the two.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import anyio
import anyio.abc

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.subscriptions.attachment import Attachment
from mcpvisor.supervisor.subscriptions.outcome import (
    METHOD_NOT_FOUND,
    NOT_OFFERED,
    SLOW_RETRY,
    UNKNOWN_RESOURCE,
    WHY,
    Retry,
    retry_after,
)
from mcpvisor.supervisor.subscriptions.stream import End, Listen, Stream
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions

LISTEN_RETRY: Final = 1.0
LISTEN_RETRY_MAX: Final = 60.0
LIVED: Final = 60.0
"""Seconds after which a stream counts as one that works: the next delay is the first one again."""

IN_A_ROW: Final = 3
"""So many streams in a row that did not live are a fault of the server, and no mere end of one."""

PROBATION: Final = 5.0
"""Seconds which a stream that follows such a row must last before it counts as one that brings updates."""

ACK_SECONDS: Final = 10.0
"""How long a server may take to acknowledge a stream."""

SETTLE: Final = 0.1
"""Seconds for which further changes of what is wanted are gathered."""

NOT_GRANTED: Final = "the server does not grant it: it is not among what the acknowledgement names"
AGAIN_AND_AGAIN: Final = "the server ends the stream of notifications again and again"
NOT_ACKNOWLEDGED: Final = f"the server has not acknowledged the stream within {ACK_SECONDS:g} s"


class Listening:
    """Keeps the stream of one session in step with what is wanted. `gap` is called when list changes may have been missed."""

    def __init__(
        self,
        table: Subscriptions,
        attachment: Attachment,
        listen: Listen,
        wire: End,
        gap: Callable[[], None],
        *,
        offered: bool,
    ) -> None:
        self.settled = anyio.Event()
        """Set once it is known what became of everything that was wanted at first."""
        self._table = table
        self._attachment = attachment
        self._listen = listen
        self._wire = wire
        self._gap = gap
        self._offered = offered
        self._stream: Stream | None = None
        self._refused: dict[str, Retry] = {}
        """URIs that the server does not grant, each with why and when it is asked again."""
        self._retry_at = float("-inf")
        """When a stream may be opened again, in monotonic seconds."""
        self._delay = LISTEN_RETRY
        self._down = ""
        """Why the stream was lost; empty while it stands, and after an end in good order."""
        self._row = 0
        """Acknowledged streams in a row that did not live."""
        self._was_carrying = False
        """Whether the stream that was lost had been acknowledged."""
        self._has_gap = False
        self._pushes_nothing = False
        """Whether the server does not know such streams."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                stirred = self._table.stirred
                now = anyio.current_time()
                self._look_at_stream()
                new = self._askable(now) - self._carried()
                if self._is_due(new, now):
                    await self._add(new, tasks)
                self._show()
                self.settled.set()
                with anyio.move_on_at(self._next_due(now)):
                    await stirred.wait()
                    await anyio.sleep(SETTLE)

    # What is due

    def _carried(self) -> frozenset[str]:
        """What the stream that stands brings updates of."""
        return (self._stream.granted if self._stream is not None else None) or frozenset()

    def _trusted_at(self) -> float:
        """When the stream that stands counts as one that brings updates: at once, but after a row that did not live."""
        if self._stream is None or self._row < IN_A_ROW:
            return float("-inf")
        return self._stream.opened_at + PROBATION

    def _may_ask(self, forced: bool) -> bool:
        return self._offered or forced

    def _askable(self, now: float) -> frozenset[str]:
        """What is wanted and may be asked for now."""
        changed_at, wanted = self._table.lists_changed_at, self._attachment.wanted()
        self._refused = {uri: retry for uri, retry in self._refused.items() if uri in wanted}
        waiting = {uri for uri, retry in self._refused.items() if retry.due(changed_at) > now}
        return frozenset(uri for uri, forced in wanted.items() if self._may_ask(forced) and uri not in waiting)

    def _is_due(self, new: frozenset[str], now: float) -> bool:
        if self._wire.ended.is_set() or now < self._retry_at:
            return False
        is_first = self._stream is None and not self._pushes_nothing
        return is_first or bool(new) or not self._carried() <= self._attachment.wanted().keys()

    def _next_due(self, now: float) -> float:
        """The next time after `now`, which is when it was looked at last what is due."""
        dues = [
            self._retry_at,
            self._trusted_at(),
            *(retry.due(self._table.lists_changed_at) for retry in self._refused.values()),
        ]
        return min((at for at in dues if at > now), default=float("inf"))

    # The stream

    async def _add(self, new: frozenset[str], tasks: anyio.abc.TaskGroup) -> None:
        """Open a stream that brings these too; where the server refuses them together, find out which it means."""
        refusal = await self._replace((self._carried() & self._attachment.wanted().keys()) | new, tasks)
        if refusal is None:
            return
        if len(new) > 1 and refusal.code in UNKNOWN_RESOURCE:
            ordered = sorted(new)
            for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
                if anyio.current_time() >= self._retry_at and not self._wire.ended.is_set():
                    await self._add(frozenset(half), tasks)
            return
        self._pushes_nothing = self._stream is None and refusal.code == METHOD_NOT_FOUND
        if not new and not self._pushes_nothing:
            self._retry_at = anyio.current_time() + SLOW_RETRY
        self._refuse(new, refusal)

    async def _replace(self, uris: frozenset[str], tasks: anyio.abc.TaskGroup) -> RequestFailed | None:
        """Open a stream for these URIs, and close the old one once it stands. Returns the server's refusal."""
        stream, old = Stream(uris, self._noticed), self._stream
        tasks.start_soon(stream.run, self._listen)
        with anyio.move_on_after(ACK_SECONDS):
            await stream.settled.wait()
        if self._wire.ended.is_set():
            return None  # what is at its end is the session; the next one asks again
        if stream.failure is not None and stream.failure.outcome is Outcome.PEER_ERROR:
            return stream.failure
        if stream.ended.is_set():
            self._lost(stream)
            return None
        if stream.granted is None:
            self._refuse(uris - self._carried(), RequestFailed(Outcome.TIMEOUT, "silence", NOT_ACKNOWLEDGED))
            if old is not None:
                stream.close()
                return None
        if old is not None:
            old.close()
        self._stands(stream)
        return None

    def _noticed(self) -> None:
        """A stream has changed. An end is shown at once: until another one stands updates are missed, however short that is."""
        self._look_at_stream()
        if not self._wire.ended.is_set():
            self._show()
        self._table.stir()

    def _stands(self, stream: Stream) -> None:
        self._stream, self._down, self._pushes_nothing = stream, "", False
        if self._has_gap:
            self._has_gap = False
            self._gap()
        self._judge(stream)

    def _judge(self, stream: Stream) -> None:
        """What an acknowledgement does not name was not granted."""
        if stream.granted is None:
            return
        now = anyio.current_time()
        for uri in stream.granted:
            self._refused.pop(uri, None)
        for uri in stream.uris - stream.granted:
            if uri not in self._refused or self._refused[uri].tried_at < stream.opened_at:
                self._refused[uri] = Retry(NOT_GRANTED, now + SLOW_RETRY, 0, now, is_orphan=True)

    def _look_at_stream(self) -> None:
        """Take what has become of the stream since it was looked at."""
        stream = self._stream
        if stream is None:
            return
        if not stream.ended.is_set():
            self._judge(stream)  # an acknowledgement may be late
            return
        self._stream = None
        if not self._wire.ended.is_set():
            self._lost(stream)

    def _lost(self, stream: Stream) -> None:
        """A stream is over: the next one follows after a delay that grows while they do not last."""
        now = anyio.current_time()
        self._has_gap = True
        self._was_carrying = stream.granted is not None
        if stream.failure is not None:
            self._down = f"the stream of notifications was lost: {clean_text(stream.failure.message, WHY)}"
        else:
            self._down = "" if self._was_carrying else "the server ends the stream of notifications at once"
        has_lived = now - stream.opened_at >= LIVED
        self._row = 0 if has_lived else self._row + self._was_carrying
        if self._row >= IN_A_ROW:
            self._down = "; ".join(part for part in (AGAIN_AND_AGAIN, self._down) if part)
        self._delay = LISTEN_RETRY if has_lived else self._delay
        asked = (stream.failure.retry_after_s or 0.0) if stream.failure is not None else 0.0
        self._retry_at = now + max(self._delay * (0.5 + 0.5 * random.random()), asked)  # noqa: S311 - nothing to guess
        self._delay = min(self._delay * 2, LISTEN_RETRY_MAX)

    def _refuse(self, uris: frozenset[str], failure: RequestFailed) -> None:
        now = anyio.current_time()
        for uri in uris:
            row = self._refused[uri].row if uri in self._refused else 0
            self._refused[uri] = retry_after(failure, row, now, random.random)

    # What is shown

    def _show(self) -> None:
        carried, trusted_at = self._carried(), self._trusted_at()
        is_trusted = anyio.current_time() >= trusted_at
        for uri, forced in self._attachment.wanted().items():
            refused = self._refused.get(uri)
            if not self._may_ask(forced):
                self._attachment.failed(uri, NOT_OFFERED, None)
            elif uri in carried and is_trusted:
                self._attachment.active(uri)
            elif uri in carried:
                self._attachment.failed(uri, AGAIN_AND_AGAIN, trusted_at)
            elif refused is not None:
                self._attachment.failed(uri, refused.why, refused.due(self._table.lists_changed_at))
            elif self._row < IN_A_ROW and (self._was_carrying or not self._down):
                self._attachment.pending(uri, self._down)
            else:
                self._attachment.failed(uri, self._down, self._retry_at)
