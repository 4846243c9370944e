"""Owns which arguments of which tools 2026-07-28 wants shown in headers, as the lists that pass by say it."""

from __future__ import annotations

from typing import Any, Final

from mcpvisor.daemon.shim.gateway_http import GatewayHttp, last_message
from mcpvisor.daemon.shim.headers import BOTH, VERSION_META, ParamHeaders, modern_headers, param_headers
from mcpvisor.daemon.shim.messages import Request, value_of
from mcpvisor.supervisor.transports.codec import encode

_MAX_TOOLS: Final = 10_000
_MAX_PAGES: Final = 100
_NOTHING: Final[ParamHeaders] = {}


class ShownParams:
    """For each tool that wants any the headers that show its arguments; learned from lists, asked for when one was missing."""

    def __init__(self, http: GatewayHttp) -> None:
        self._http = http
        self._of: dict[str, ParamHeaders] = {}

    def of(self, request: Request) -> ParamHeaders:
        """What a call must show, as far as it is known."""
        return self._of.get(str(request.params.get("name")), _NOTHING) if request.method == "tools/call" else _NOTHING

    def take(self, answer: bytes) -> str | None:
        """Learn from one page of a list; the cursor of the next one, None at the end."""
        message = value_of(answer)
        result = message.get("result") if isinstance(message, dict) else None
        if not isinstance(result, dict):
            return None
        tools = result.get("tools")
        for tool in tools if isinstance(tools, list) else []:
            self._learn(tool)
        cursor = result.get("nextCursor")
        return cursor if isinstance(cursor, str) else None

    def _learn(self, tool: Any) -> None:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            return
        shown = param_headers(tool.get("inputSchema"))
        if shown and len(self._of) < _MAX_TOOLS:
            self._of[name] = shown
        else:
            self._of.pop(name, None)

    async def learn(self, request: Request) -> bool:
        """List the tools on behalf of a call that was refused for its headers; whether it must show others than before.

        Raises DialFailed, ConnectionBroken and ResponseRefused.
        """
        if request.method != "tools/call":
            return False
        before, cursor = self.of(request), None
        meta = request.params.get("_meta")
        envelope = {key: value for key, value in meta.items() if key.startswith(_MCP_KEYS)} if isinstance(meta, dict) else {}
        for _ in range(_MAX_PAGES):
            params = {"_meta": envelope, **({"cursor": cursor} if cursor is not None else {})}
            cursor = self.take(await self._list(params))
            if cursor is None:
                break
        return self.of(request) != before

    async def _list(self, params: dict[str, Any]) -> bytes:
        body = encode({"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": params})
        async with self._http.exchange("POST", {**BOTH, **modern_headers("tools/list", params, _NOTHING)}, body) as reply:
            return await last_message(reply)


_MCP_KEYS: Final = VERSION_META.partition("/")[0] + "/"
"""Of the call's `_meta` the keys that say who asks and in which revision."""
