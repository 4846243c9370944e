"""Owns plain HTTP towards the gateway: what a test sends is on the wire byte for byte."""

from __future__ import annotations

import json
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
import httpx2

JsonObject = dict[str, Any]
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"


def initialize(request_id: Any = 1) -> JsonObject:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


def call(name: str, request_id: Any = 2, **params: Any) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": name, "arguments": {}, **params}}


class Wire:
    """One client without any knowledge of the protocol beyond where the session id stands."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = address
        uds = address.removeprefix("unix:") if address.startswith("unix:") else None
        # To look for certificates, which nobody here has, takes as long as the rest of a short test.
        transport = httpx2.AsyncHTTPTransport(uds=uds, verify=False)
        base = "http://localhost" if uds else address
        headers = {**HEADERS, **({"authorization": f"Bearer {token}"} if token else {})}
        self.http = httpx2.AsyncClient(base_url=base, headers=headers, transport=transport, timeout=30)
        self.session: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def open(self, path: str = "/mcp") -> Wire:
        answer = await self.http.post(path, json=initialize())
        assert answer.status_code == 200, answer.text
        self.session = answer.headers["mcp-session-id"]
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path=path)
        return self

    async def open_another(self) -> None:
        """Open a session beside the one this client keeps."""
        assert (await self.http.post("/mcp", json=initialize())).status_code == 200

    def _headers(self, headers: dict[str, str] | None) -> dict[str, str]:
        return {**({"mcp-session-id": self.session} if self.session else {}), **(headers or {})}

    async def post(self, message: Any, *, path: str = "/mcp", headers: dict[str, str] | None = None) -> httpx2.Response:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.http.post(path, content=content, headers=self._headers(headers))

    async def modern(self, message: JsonObject, *, path: str = "/mcp", name: str | None = None) -> httpx2.Response:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            **message.get("params", {}).get("_meta", {}),
        }
        message = {**message, "params": {**message.get("params", {}), "_meta": meta}}
        headers = {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
        target = name or message["params"].get("name") or message["params"].get("uri")
        if target:
            headers["mcp-name"] = target
        return await self.http.post(path, json=message, headers=headers)

    async def delete(self, path: str = "/mcp") -> httpx2.Response:
        return await self.http.delete(path, headers=self._headers(None))


async def raw(address: str, data: bytes, *, end: bool = False) -> bytes:
    """Send bytes as they are; everything that comes back until the gateway closes, for at most 20 s."""
    url = urlsplit(address)
    stream = await anyio.connect_tcp(url.hostname or "", url.port or 0)
    received = b""
    async with stream:
        await stream.send(data)
        if end:
            await stream.send_eof()
        with anyio.move_on_after(20):
            try:
                while True:
                    received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    return received


def events(text: str) -> list[JsonObject]:
    """The messages of an event stream."""
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
