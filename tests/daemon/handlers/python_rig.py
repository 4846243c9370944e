"""Owns the rig for handlers in Python: a file of code, and the handler that runs it in a worker."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerEvent, HandlerQuestion
from mcpvisor.daemon.handlers.python_handler import PythonHandler
from mcpvisor.daemon.handlers.python_options import PythonOptions
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.secret import Secret

LINES: list[str] = []
"""What would be written to the log, of all handlers."""

HEAD = """
import asyncio, os, sys, time
from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerEvent, HandlerQuestion
LOG = {log!r}
def note(text):
    with open(LOG, "a") as file: file.write(text + "\\n")
"""


class Code:
    """A module of handlers in a folder of its own, that can write notes to be read here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "code"
        self.folder.mkdir()
        self.log = folder / "notes"
        self.log.touch()

    def write(self, text: str, name: str = "hooks") -> Path:
        file = self.folder / f"{name}.py"
        file.write_text(HEAD.format(log=str(self.log)) + text)
        return file

    def options(self, **changes: Any) -> PythonOptions:
        arguments = changes.pop("arguments", {})
        words = {"object": "hooks:Handler", "path": str(self.folder), "arguments": Secret(json.dumps(arguments)), **changes}
        return PythonOptions(**words)

    def notes(self) -> list[str]:
        return self.log.read_text().splitlines()

    async def noted(self, text: str, times: int = 1) -> None:
        """Return once the code has noted a text so often; a file gives no events."""
        with anyio.fail_after(20):
            while self.notes().count(text) < times:
                await anyio.sleep(0.01)


def event(number: int = 1, **data: Any) -> HandlerEvent:
    return HandlerEvent(id=f"ev-{number}", kind="log_message", server="docs", at=1.5, data=data, coalesced=2)


QUESTION = HandlerQuestion(id="q-1", server="docs", mode="form", message="docs: sure?", schema={"type": "object"}, tool="t")


@asynccontextmanager
async def running(options: PythonOptions, name: str = "mine") -> AsyncIterator[PythonHandler]:
    """A handler with its worker; none of its processes may be left behind."""
    instance = f"test-{uuid.uuid4().hex}"
    handler = PythonHandler(
        name,
        options,
        instance=instance,
        environ=os.environ,
        stderr=lambda lines, _: LINES.extend(lines),
        emit=lambda _, message, fields: LINES.append(f"{message} {fields}"),
    )
    async with handler:
        yield handler
    assert [] == find_marked(instance)


async def failing(handler: PythonHandler, what: HandlerEvent | None = None) -> DeliveryFailed:
    with anyio.fail_after(20), pytest.raises(DeliveryFailed) as caught:
        await handler.deliver(what or event())
    return caught.value


async def delivered(handler: PythonHandler, what: HandlerEvent | None = None) -> None:
    """Deliver as somebody does who tries again, as long as no worker is there."""
    with anyio.fail_after(30):
        while True:
            try:
                return await handler.deliver(what or event())
            except DeliveryFailed as failed:
                if failed.retry_after is None:
                    raise
                await anyio.sleep(min(failed.retry_after, 1.0) + 0.01)
