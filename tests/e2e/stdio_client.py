"""Owns a client that speaks lines of JSON-RPC to `mcpvisor stdio`, and knows nothing of the protocol beyond them."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import nursery

JsonObject = dict[str, Any]
MODERN = "2026-07-28"
COMMAND = str(Path(sys.executable).with_name("mcpvisor"))
CHANGED = "notifications/tools/list_changed"


def modern(params: JsonObject, **meta: Any) -> JsonObject:
    """Params of a request of 2026-07-28; `meta` is more of its `_meta`, by the last part of each key."""
    envelope = {"protocolVersion": MODERN, "clientCapabilities": {}, **meta}
    return {**params, "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in envelope.items()}}


class StdioClient:
    """A running shim; lines go in as they are given, and come out in the order in which they were written."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        (its_stdin, ours), (out, its_stdout), (err, its_stderr) = os.pipe(), os.pipe(), os.pipe()
        with open(its_stdin, "rb") as stdin, open(its_stdout, "wb") as stdout, open(its_stderr, "wb") as stderr:
            self.process = nursery.start(
                arguments, stdin=stdin, stdout=stdout, stderr=stderr, env={**os.environ, **(env or {})}
            )
        self._stdin, self._stdout, self._stderr = open(ours, "wb"), open(out, "rb"), open(err, "rb")  # noqa: SIM115 - until `clear`
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._waiting: list[JsonObject] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(line)

    def write(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def send(self, **message: Any) -> None:
        """Write one message."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def receive(self, is_wanted: Any, seconds: float = 30) -> JsonObject:
        """The first message that is wanted; those before it are kept for others."""
        for message in self._waiting:
            if is_wanted(message):
                self._waiting.remove(message)
                return message
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"nothing of that kind came; waiting: {self._waiting}") from None
            message = json.loads(line)
            if is_wanted(message):
                return message
            self._waiting.append(message)

    def answer(self, request_id: Any, seconds: float = 30) -> JsonObject:
        """The answer to a request."""
        return self.receive(lambda one: "method" not in one and one.get("id") == request_id, seconds)

    def notified(self, method: str, seconds: float = 30) -> JsonObject:
        """A notification or request of that method."""
        return self.receive(lambda one: one.get("method") == method, seconds)

    def ask(self, request_id: Any, method: str, params: JsonObject | None = None, seconds: float = 30) -> JsonObject:
        """The answer to a request that is sent now."""
        self.send(id=request_id, method=method, params=params or {})
        return self.answer(request_id, seconds)

    def call(self, request_id: Any, tool: str, seconds: float = 30, **arguments: Any) -> JsonObject:
        """The answer to a call of a tool, in a session."""
        return self.ask(request_id, "tools/call", {"name": tool, "arguments": arguments}, seconds)

    def open(self, **capabilities: Any) -> JsonObject:
        """Do the handshake of the older era; its result."""
        info = {"name": "lines", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        result = self.ask("open", "initialize", params)["result"]
        self.send(method="notifications/initialized")
        return result

    def unread(self) -> list[JsonObject]:
        """What has come and nobody has asked for; to be read once the process has ended."""
        self._reader.join(20)
        while not self._lines.empty():
            self._waiting.append(json.loads(self._lines.get()))
        return self._waiting

    def end(self, seconds: float = 20) -> tuple[int, str]:
        """Close stdin; the exit code, and what was written on stderr."""
        self._stdin.close()
        return self.wait(seconds)

    def wait(self, seconds: float = 20) -> tuple[int, str]:
        """The exit code, and what was written on stderr."""
        code = self.process.wait(seconds)
        return code, self._stderr.read().decode()

    def clear(self) -> None:
        """End it whatever it does."""
        self.process.kill()
        self.process.wait(20)
        self._reader.join(20)
        for stream in (self._stdin, self._stdout, self._stderr):
            with suppress(BrokenPipeError):
                stream.close()
