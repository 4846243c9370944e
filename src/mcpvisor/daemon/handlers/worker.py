"""Owns the worker: a process that holds one handler, and talks with the daemon in JSON, one object a line.

    daemon                                    worker
    {"load": {object, entry_point, ...}}  ->
                                          <-  {"ready": ["deliver", "answer"]} or {"unusable": why}
    {"deliver": n, "event": {...}}        ->
    {"answer": n, "question": {...}}      ->
                                          <-  {"done": n} or {"done": n, "answer": {action, content}}
                                          <-  {"failed": n, "why": why, "retry_after": seconds, "is_final": bool}
    {"cancel": n}                         ->
                                          <-  {"cancelled": n}

The end of the daemon's pipe is the end of the worker: deliveries are cancelled, and the handler is left. Standard library
only, on asyncio, which is the loop that handlers may use.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import traceback
from contextlib import AsyncExitStack
from typing import Any, Final, TextIO, cast

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerEvent, HandlerQuestion
from mcpvisor.daemon.handlers.worker_loading import Unusable, load, methods_of

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes of a line of the daemon's; it sends no event that is as long."""

LEAVE_SECONDS: Final = 1.0
"""How long what is under way may take to end once the daemon has closed its pipe."""

MAX_WHY: Final = 1000

Told = dict[str, Any]


class Worker:
    """One handler, and what is under way with it."""

    def __init__(self, outbound: int) -> None:
        self._outbound = outbound
        self._handler: Any = None
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self, lines: asyncio.StreamReader) -> int:
        """Load what the first line names, then do what is asked until the daemon closes its pipe; gives the exit code."""
        first = await lines.readline()
        if not first:
            return 0
        async with AsyncExitStack() as stack:
            try:
                self._handler = await load(json.loads(first)["load"], stack)
            except Unusable as unusable:
                self._say({"unusable": str(unusable)})
                return 78
            except Exception as error:  # noqa: BLE001 - the code of others may raise anything
                traceback.print_exc()
                self._say({"unusable": f"it cannot be loaded: {_words(error)}"})
                return 78
            self._say({"ready": methods_of(self._handler)})
            while line := await lines.readline():
                self._take(json.loads(line))
            await self._leave()
        return 0

    def _take(self, message: Told) -> None:
        if "cancel" in message:
            task = self._tasks.get(message["cancel"])
            if task is not None:
                task.cancel()
            return
        number: int = message["deliver"] if "deliver" in message else message["answer"]
        task = asyncio.create_task(self._do(number, message))
        self._tasks[number] = task
        task.add_done_callback(lambda task: self._ended(number, task))

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        if task.cancelled():  # before its first step
            self._say({"cancelled": number})
        elif isinstance(error := task.exception(), SystemExit | KeyboardInterrupt):  # the worker is at its end, which says it
            return
        elif error is not None:  # one that is no Exception
            traceback.print_exception(error)
            self._say({"failed": number, "why": _words(error)})

    async def _do(self, number: int, message: Told) -> None:
        try:
            if "event" in message:
                await self._handler.deliver(HandlerEvent(**message["event"]))
                told: Told = {"done": number}
            else:
                question = {key: value for key, value in message["question"].items() if key != "kind"}
                told = {"done": number, "answer": _answer_of(await self._handler.answer(HandlerQuestion(**question)))}
        except asyncio.CancelledError:
            told = {"cancelled": number}
        except DeliveryFailed as failed:
            after: object = failed.retry_after
            seconds = after if isinstance(after, int | float) and math.isfinite(after) else None
            told = {"failed": number, "why": str(failed)[:MAX_WHY], "retry_after": seconds, "is_final": failed.is_final is True}
        except Exception as error:  # noqa: BLE001 - the code of others may raise anything
            traceback.print_exc()
            told = {"failed": number, "why": _words(error)}
        try:
            self._say(told)
        except (TypeError, ValueError) as error:
            self._say({"failed": number, "why": f"its answer is no JSON: {error}"[:MAX_WHY], "is_final": True})

    async def _leave(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVE_SECONDS)

    def _say(self, told: Told) -> None:
        # Half characters, as in the name of a file that is no text, are nothing that JSON can carry.
        text = json.dumps(told, allow_nan=False, ensure_ascii=False)
        data = memoryview(text.encode("utf-8", "replace") + b"\n")
        while data:
            data = data[os.write(self._outbound, data) :]


def run(inbound: int, outbound: int) -> None:
    """Be the worker at the other ends of the daemon's pipes, and exit."""
    # In time for the log, and no text of anybody's can fail to be printed.
    cast("TextIO", sys.stdout).reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[attr-defined]
    code = asyncio.run(_serve(inbound, outbound))
    sys.stdout.flush()
    os._exit(code)  # threads of the handler that do not end would keep the process


async def _serve(inbound: int, outbound: int) -> int:
    lines = asyncio.StreamReader(limit=MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(inbound, "rb", 0))
    try:
        return await Worker(outbound).serve(lines)
    except BrokenPipeError:  # the daemon is gone
        return 0


def _answer_of(answer: object) -> Told:
    if not isinstance(answer, HandlerAnswer):
        raise TypeError(f"answer() has to return a HandlerAnswer, and returned {type(answer).__name__}")
    return {"action": answer.action, "content": answer.content}


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_WHY]
