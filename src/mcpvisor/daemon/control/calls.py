"""Owns the use of a server through the control API: what it offers, its tools and its resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import Response

from mcpvisor.daemon.control.answers import (
    ApiError,
    Emit,
    Producer,
    StreamResponse,
    error_body,
    failure,
    json_response,
    until_disconnect,
)
from mcpvisor.daemon.control.elicitations import OpenDesk
from mcpvisor.daemon.control.requests import caller, invalid, read_object, seconds_of, text_of
from mcpvisor.daemon.control.rounded import Rounded
from mcpvisor.daemon.control.views import offer_view
from mcpvisor.daemon.gateway.catalog import shows
from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.supervisor import Supervisor

_SMALL_QUEUE: Final = 256
"""Progress that a reader may be behind; what is beyond is left out, since only the newest matters."""


class Calls:
    """The routes that speak to servers. A client that leaves withdraws its request."""

    def __init__(self, supervisor: Supervisor, desk: OpenDesk, closing: anyio.Event) -> None:
        self._supervisor = supervisor
        self._desk = desk
        self._closing = closing

    async def offers(self, _: Request) -> Response:
        """GET /v1/offers: what every server offers."""
        return json_response({"servers": [await self._offer(name) for name in self._supervisor.names()]})

    async def offer(self, request: Request) -> Response:
        """GET /v1/servers/{id}/offer: what one server offers."""
        return json_response(await self._offer(request.path_params["server"]))

    async def call(self, request: Request) -> Response:
        """POST /v1/servers/{id}/call {"tool", "arguments", "timeout"}: the raw result; in a stream, its progress before it."""
        connection = self._supervisor.connection(request.path_params["server"])
        body = await read_object(request)
        arguments = body.get("arguments", {})
        if not isinstance(arguments, dict):
            raise invalid("FIELD", "'arguments' must be an object")
        asked = _Asked("tools/call", {"name": text_of(body, "tool"), "arguments": arguments}, seconds_of(body, "timeout"))
        return await self._answer(request, connection, asked)

    async def read(self, request: Request) -> Response:
        """POST /v1/servers/{id}/read {"uri", "timeout"}: the raw result of reading a resource."""
        connection = self._supervisor.connection(request.path_params["server"])
        body = await read_object(request)
        asked = _Asked("resources/read", {"uri": text_of(body, "uri")}, seconds_of(body, "timeout"))
        return await self._answer(request, connection, asked)

    async def _offer(self, name: str) -> dict[str, Any]:
        connection = self._supervisor.connection(name)
        offer, view = connection.offer, connection.spec.tools
        denied = [str(tool.get("name")) for tool in offer.tools if not shows(view, tool.get("name"))]
        told = await self._supervisor.told_offer(name)
        denied = self._supervisor.told(name, denied)
        return offer_view(name, told, stale=connection.stale, era=connection.era, denied=denied)

    async def _answer(self, request: Request, connection: Connection, asked: _Asked) -> Response:
        who = caller(request)
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamResponse(asked.as_stream(Rounded(connection, self._desk, who)), self._closing)
        answers: list[dict[str, Any] | ApiError] = []
        async with anyio.create_task_group() as tasks:

            async def withdraw_with_the_client() -> None:
                await until_disconnect(request.receive)
                tasks.cancel_scope.cancel()

            tasks.start_soon(withdraw_with_the_client)
            answers.append(await asked.of(Rounded(connection, self._desk, who)))
            tasks.cancel_scope.cancel()
        answer = answers[0] if answers else ApiError("CANCELLED", "CLIENT_GONE", "the client left")
        if isinstance(answer, ApiError):
            raise answer
        return json_response(answer)


class _Asked:
    """One request on its way to a server."""

    def __init__(self, method: str, params: dict[str, Any], deadline: float | None) -> None:
        self.method = method
        self.params = params
        self.deadline = deadline

    async def of(
        self, server: Rounded, on_progress: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any] | ApiError:
        """The raw result, or what is known of the failure."""
        try:
            return await server.request(self.method, self.params, deadline=self.deadline, on_progress=on_progress)
        except RequestFailed as failed:
            return failure(server.name, failed)

    def as_stream(self, server: Rounded) -> Producer:
        """`progress` events, then one `result` or `error`."""

        async def produce(emit: Emit) -> None:
            send, receive = anyio.create_memory_object_stream[dict[str, Any]](_SMALL_QUEUE)
            answers: list[dict[str, Any] | ApiError] = []

            def note(progress: dict[str, Any]) -> None:
                if receive.statistics().current_buffer_used == _SMALL_QUEUE:
                    receive.receive_nowait()  # the newest says most
                send.send_nowait(progress)

            async def ask() -> None:
                with send:  # its end tells the loop below that no progress follows
                    answers.append(await self.of(server, note))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                with receive:
                    async for progress in receive:
                        await emit("progress", progress)
            answer = answers[0]
            if isinstance(answer, ApiError):
                await emit("error", error_body(answer)["error"])
            else:
                await emit("result", answer)

        return produce
