"""Owns the subscriptions of one session of the older era: a request for each URI, and the channel on which updates come."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final, Protocol

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.listing import Ask
from mcpvisor.supervisor.subscriptions.attachment import Attachment
from mcpvisor.supervisor.subscriptions.outcome import NOT_OFFERED, Retry, retry_after
from mcpvisor.supervisor.subscriptions.stream import End
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.transports.push import PushState

AT_ONE_TIME: Final = 8
"""Requests of subscriptions that are in flight at one time."""

ANSWER_SECONDS: Final = 10.0
"""How long a server may take to answer one."""

OPENING_SECONDS: Final = 10.0
"""How long the push channel may take to open before that counts as a fault."""

SETTLE: Final = 0.1
"""Seconds for which further changes of what is wanted are gathered."""


class Channel(End, Protocol):
    """The way on which updates come: the wire."""

    @property
    def push(self) -> PushState:
        """How it stands."""
        ...

    @property
    def push_reason(self) -> str:
        """Why it stands so, in words."""
        ...

    async def push_changed(self) -> None:
        """Return when it may stand otherwise."""
        ...


class PerUri:
    """Keeps the subscriptions of one session in step with what is wanted."""

    def __init__(self, table: Subscriptions, attachment: Attachment, ask: Ask, channel: Channel, *, offered: bool) -> None:
        self.settled = anyio.Event()
        """Set once everything was asked for, and it is known whether updates can come."""
        self._table = table
        self._attachment = attachment
        self._ask = ask
        self._channel = channel
        self._offered = offered
        self._held: set[str] = set()
        """What the session is subscribed to."""
        self._failures: dict[str, Retry] = {}
        self._places = anyio.Semaphore(AT_ONE_TIME)
        self._opening_until = anyio.current_time() + OPENING_SECONDS
        self._verdict: tuple[PushState, str] = ("opening", "")
        """How the channel stands, and why. While one that was down is opened again, it is what it was."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_channel)
            while True:
                if self._channel.ended.is_set():
                    await anyio.sleep_forever()
                stirred = self._table.stirred
                await self._round()
                self._show(self._attachment.wanted())
                if self._channel.push != "opening" or self._is_opening_late():
                    self.settled.set()
                with anyio.move_on_at(self._next_due()):
                    await stirred.wait()
                    await anyio.sleep(SETTLE)

    async def _watch_channel(self) -> None:
        """Each change is shown at once: while the channel is down updates are missed, however short that is."""
        while True:
            await self._channel.push_changed()
            if self._channel.push == "opening":
                self._opening_until = anyio.current_time() + OPENING_SECONDS
            self._show(self._attachment.wanted())
            self._table.stir()

    # What is asked for

    async def _round(self) -> None:
        wanted, now = self._attachment.wanted(), anyio.current_time()
        askable = {uri: None for uri, forced in wanted.items() if self._may_ask(forced)}
        for uri in self._failures.keys() - askable.keys():
            del self._failures[uri]
        due = [uri for uri in askable if self._is_due(uri, now)]
        async with anyio.create_task_group() as tasks:
            for uri in self._held - wanted.keys():
                tasks.start_soon(self._unsubscribe, uri)
            for uri in due:
                tasks.start_soon(self._subscribe, uri)

    def _may_ask(self, forced: bool) -> bool:
        return self._offered or forced

    def _is_due(self, uri: str, now: float) -> bool:
        failure = self._failures.get(uri)
        return uri not in self._held and (failure is None or failure.due(self._table.lists_changed_at) <= now)

    def _next_due(self) -> float:
        dues = [failure.due(self._table.lists_changed_at) for failure in self._failures.values()]
        if self._channel.push == "opening" and not self._is_opening_late():
            dues.append(self._opening_until)
        return min(dues, default=float("inf"))

    async def _subscribe(self, uri: str) -> None:
        failure = await self._failure_of("resources/subscribe", uri)
        if self._channel.ended.is_set():
            return  # what is at its end is the session; the next one asks again
        if failure is None:
            self._held.add(uri)
            self._failures.pop(uri, None)
        else:
            row = self._failures[uri].row if uri in self._failures else 0
            self._failures[uri] = retry_after(failure, row, anyio.current_time(), random.random)
        self._show([uri])

    async def _unsubscribe(self, uri: str) -> None:
        """A server that does not let go of a URI is not asked twice: what it still says of it is nobody's business."""
        self._held.discard(uri)  # before: whoever wants it again meanwhile is subscribed anew
        await self._failure_of("resources/unsubscribe", uri)

    async def _failure_of(self, method: str, uri: str) -> RequestFailed | None:
        async with self._places:
            with anyio.move_on_after(ANSWER_SECONDS):
                try:
                    await self._ask(method, {"uri": uri})
                except RequestFailed as failure:
                    return failure
                return None
        return RequestFailed(Outcome.TIMEOUT, "silence", f"no answer within {ANSWER_SECONDS:g} s")

    # What is shown

    def _is_opening_late(self) -> bool:
        return anyio.current_time() >= self._opening_until

    def _show(self, uris: Iterable[str]) -> None:
        for uri in uris:
            failure = self._failures.get(uri)
            if not self._may_ask(self._attachment.is_forced(uri)):
                self._attachment.failed(uri, NOT_OFFERED, None)
            elif uri in self._held:
                self._show_held(uri)
            elif failure is not None:
                self._attachment.failed(uri, failure.why, failure.due(self._table.lists_changed_at))

    def _show_held(self, uri: str) -> None:
        if self._channel.push != "opening":
            self._verdict = self._channel.push, self._channel.push_reason
        elif self._verdict[0] == "open":
            self._verdict = "opening", ""
        match self._verdict:
            case "open", _:
                self._attachment.active(uri)
            case "opening", _ if self._is_opening_late():
                self._attachment.failed(uri, f"the push channel is not open after {OPENING_SECONDS:g} s", None)
            case "opening", _:
                self._attachment.pending(uri)
            case "retrying", why:
                self._attachment.pending(uri, f"push channel: {why}")
            case _, why:
                self._attachment.failed(uri, f"no push channel: {why}", None)
