"""Owns what is sent on a request's own stream before its result: progress and log messages, in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.abc

from mcpvisor.daemon.gateway.backlog import Backlog, size_of
from mcpvisor.supervisor.errors import RequestFailed

JsonObject = dict[str, Any]
Send = Callable[[str, JsonObject], Awaitable[None]]

BACKLOG: Final = 64
"""Messages that wait for a slow client; above that the oldest is dropped, since each progress supersedes the last.

Their bytes are bounded as well. The result is none of them: it always comes."""


class Emissions:
    """The messages of one request; `during` sends them while the request runs, and all of them before its result."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue = Backlog(BACKLOG)
        self._tasks: anyio.abc.TaskGroup | None = None
        self._is_pumping = False

    @property
    def is_open(self) -> bool:
        """Whether the request runs, so that what is put here is sent."""
        return self._tasks is not None

    def put(self, method: str, params: JsonObject) -> None:
        """Send a notification as soon as its turn has come; never waits."""
        if self._tasks is None:
            return
        self._queue.put(method, params, size_of(params))
        if not self._is_pumping:
            self._is_pumping = True
            self._tasks.start_soon(self._pump)

    async def during(self, request: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        """The request's result, once everything that came before it is sent. Raises RequestFailed."""
        result: JsonObject = {}
        failed: RequestFailed | None = None  # raised outside of the task group, which would wrap it
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                result = await request()
            except RequestFailed as failure:
                failed = failure
            finally:
                self._tasks = None
        if failed is not None:
            try:
                raise failed
            finally:
                failed = None  # its traceback holds this frame, which must not hold it in turn
        return result

    async def _pump(self) -> None:
        while self._queue:
            await self._send(*self._queue.pop())
        self._is_pumping = False
