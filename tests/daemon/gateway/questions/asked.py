"""Owns clients that are asked: what they declare, and what a test sees of the questions that reach them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from tests.daemon.gateway.puppet import Answer, Call
from tests.daemon.gateway.wire import Wire, call, initialize

from mcpvisor.supervisor.questions import Belongs, Question
from mcpvisor.supervisor.transports.exchange import PeerRefusal

JsonObject = dict[str, Any]

ALL: JsonObject = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

FORM: JsonObject = {
    "message": "Which name?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
PAGE: JsonObject = {"mode": "url", "message": "Sign in", "url": "https://example.org/sign-in", "elicitationId": "page-7"}
SAMPLE: JsonObject = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5}

ACCEPT: JsonObject = {"action": "accept", "content": {"name": "Ann"}}
SAMPLED: JsonObject = {"role": "assistant", "content": {"type": "text", "text": "Ho"}, "model": "m"}
ROOTS: JsonObject = {"roots": [{"uri": "file:///home/ann"}]}


async def open_session(client: Wire, capabilities: JsonObject, path: str = "/mcp") -> None:
    """Open a session whose client has declared something."""
    message = initialize()
    message["params"]["capabilities"] = capabilities
    answer = await client.http.post(path, json=message)
    client.session = answer.headers["mcp-session-id"]
    await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path=path)


class Stream:
    """The messages of one answer as they come."""

    def __init__(self, response: httpx2.Response) -> None:
        self.kind = response.headers["content-type"].partition(";")[0]
        self._response = response
        self._lines = response.aiter_lines()

    async def next(self) -> JsonObject:
        """The next message; of an answer in JSON the only one."""
        with anyio.fail_after(20):
            if self.kind == "application/json":
                return json.loads(await self._response.aread())
            async for line in self._lines:
                if line.startswith("data: "):
                    return json.loads(line.removeprefix("data: "))
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def stream(client: Wire, message: JsonObject, path: str = "/mcp") -> AsyncGenerator[Stream]:
    """Send a request in a session, and read its answer message by message."""
    headers = {"mcp-session-id": client.session or ""}
    async with client.http.stream("POST", path, json=message, headers=headers) as response:
        yield Stream(response)


@asynccontextmanager
async def listening(client: Wire, path: str = "/mcp") -> AsyncGenerator[Stream]:
    """The GET stream of a session."""
    headers = {"mcp-session-id": client.session or "", "accept": "text/event-stream"}
    async with client.http.stream("GET", path, headers=headers) as response:
        yield Stream(response)


async def answer(client: Wire, question: JsonObject, result: JsonObject, path: str = "/mcp") -> int:
    """Answer a question in a session; the HTTP status."""
    return (await client.post({"jsonrpc": "2.0", "id": question["id"], "result": result}, path=path)).status_code


async def ask_modern(
    client: Wire, name: str, capabilities: JsonObject, *, path: str = "/mcp", meta: JsonObject | None = None, **params: Any
) -> JsonObject:
    """Call a tool as a client of 2026-07-28; the message of the answer."""
    message = call(name, **params, _meta={CAPABILITIES: capabilities, **(meta or {})})
    response = await client.modern(message, path=path)
    text = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        text = [line for line in text.splitlines() if line.startswith("data: ")][-1].removeprefix("data: ")
    return json.loads(text)


def server_asks(*asked: tuple[str, JsonObject], server: str = "a") -> Answer:
    """A server of the handshake era that asks one question after the other within a call, and answers with their answers."""

    async def answer(call: Call) -> JsonObject:
        assert call.on_question is not None
        tool = (call.params or {}).get("name")
        answers: list[Any] = []
        for method, params in asked:
            question = Question(
                server=server, method=method, params=params, belongs=Belongs.CALL, principal=call.principal, tool=tool
            )
            try:
                answers.append(await call.on_question(question))
            except PeerRefusal as refusal:
                answers.append({"error": refusal.code})
        return {"content": [], "answers": answers}

    return answer


def wants(questions: JsonObject | None, state: str | None = None) -> JsonObject:
    """What a server of 2026-07-28 says when it wants answers first."""
    asked = {} if questions is None else {"inputRequests": questions}
    return {"resultType": "input_required", **asked, **({} if state is None else {"requestState": state})}


def of_newer_server(*asked: JsonObject) -> Answer:
    """A server of 2026-07-28 that says these things in turn, and then results in what it was sent last."""
    said = iter(asked)

    async def answer(call: Call) -> JsonObject:
        return next(said, {"resultType": "complete", "content": [], "sent": call.params})

    return answer
