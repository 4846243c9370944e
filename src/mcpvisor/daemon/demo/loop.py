"""Owns the MCP of the demonstration servers: both eras over stdio, by the standard library alone.

It starts in some 30 ms and needs nothing installed; it is no SDK, and knows only what these servers need.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from mcpvisor import __version__

JsonObject = dict[str, Any]

LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
MODERN: Final = "2026-07-28"

_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
_SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
_CACHED: Final = frozenset({"server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read"})
"""Methods whose answers carry hints for caches in the newer era."""


class ToolError(Exception):
    """The tool could not do it; the text is the answer."""


class RpcError(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool. `progress` tells how far it is; `cancelled` is set when nobody waits any more."""

    arguments: Mapping[str, Any]
    progress: Callable[[float, float, str], None]
    cancelled: threading.Event = field(default_factory=threading.Event)

    def number(self, name: str, default: float | None = None) -> float:
        """A numeric argument. Raises ToolError."""
        value = self.arguments.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ToolError(f"{name} must be a number")
        return value


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: `run` returns its text, or raises ToolError. `arguments` are the properties of its input schema."""

    name: str
    description: str
    run: Callable[[Call], str]
    arguments: JsonObject = field(default_factory=dict[str, Any])
    required: tuple[str, ...] = ()
    read_only: bool = True

    def entry(self) -> JsonObject:
        """The tool as `tools/list` shows it."""
        schema = {"type": "object", "properties": self.arguments, "required": list(self.required)}
        hints = {"readOnlyHint": self.read_only, "openWorldHint": False}
        return {"name": self.name, "description": self.description, "inputSchema": schema, "annotations": hints}


@dataclass(frozen=True, slots=True)
class Resource:
    """A text resource that changes every `period` seconds; whoever subscribed to it is told."""

    uri: str
    name: str
    description: str
    read: Callable[[], str]
    period: float

    def entry(self) -> JsonObject:
        """The resource as `resources/list` shows it."""
        return {"uri": self.uri, "name": self.name, "description": self.description, "mimeType": "text/plain"}


class DemoServer:
    """A server on stdin and stdout; `serve` returns when stdin ends."""

    def __init__(self, name: str, instructions: str, *, tools: tuple[Tool, ...], resources: tuple[Resource, ...] = ()) -> None:
        self._info = {"name": f"mcpvisor-demo-{name}", "version": __version__}
        self._instructions = instructions
        self._tools = {tool.name: tool for tool in tools}
        self._resources = {resource.uri: resource for resource in resources}
        self._writing = threading.Lock()
        self._calls: dict[Any, Call] = {}
        self._watched: set[str] = set()
        self._listens: dict[Any, frozenset[str]] = {}

    def serve(self) -> None:
        """Answer what comes on stdin until it ends."""
        for resource in self._resources.values():
            threading.Thread(target=self._tell_changes, args=(resource,), daemon=True).start()
        for message in _messages():
            self._take(message)

    def _take(self, message: JsonObject) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            if method == "notifications/cancelled":
                self._withdraw(params.get("requestId"))
        elif method == "tools/call":
            # In a thread of its own: a tool that hangs must not keep others from being answered.
            call = self._calls[message["id"]] = self._opened(params)
            threading.Thread(target=self._answer, args=(message, partial(self._called, call)), daemon=True).start()
        elif method == "subscriptions/listen":
            self._listen(message["id"], params)
        elif isinstance(method, str):
            self._answer(message, self._result)

    def _answer(self, message: JsonObject, result_of: Callable[[JsonObject], JsonObject]) -> None:
        answer: JsonObject = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            answer["result"] = self._of_its_era(message, result_of(message))
        except RpcError as error:
            answer["error"] = {"code": error.code, "message": str(error), **({"data": error.data} if error.data else {})}
        self._send(answer)

    def _of_its_era(self, message: JsonObject, result: JsonObject) -> JsonObject:
        if _VERSION_KEY not in ((message.get("params") or {}).get("_meta") or {}):
            return result
        cache = {"ttlMs": 0, "cacheScope": "private"} if message["method"] in _CACHED else {}
        return {"resultType": "complete", **cache, **result, "_meta": {_SERVER_KEY: self._info}}

    def _result(self, message: JsonObject) -> JsonObject:
        params: JsonObject = message.get("params") or {}
        match message["method"]:
            case "initialize":
                return self._initialized(params)
            case "server/discover":
                return self._discovered(params)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.entry() for tool in self._tools.values()]}
            case "resources/list" if self._resources:
                return {"resources": [resource.entry() for resource in self._resources.values()]}
            case "resources/templates/list" if self._resources:
                return {"resourceTemplates": []}
            case "resources/read" if self._resources:
                resource = self._resource(params)
                return {"contents": [{"uri": resource.uri, "mimeType": "text/plain", "text": resource.read()}]}
            case "resources/subscribe" if self._resources:
                self._watched.add(self._resource(params).uri)
                return {}
            case "resources/unsubscribe" if self._resources:
                self._watched.discard(self._resource(params).uri)
                return {}
            case method:
                raise RpcError(-32601, f"method not found: {method}")

    def _initialized(self, params: JsonObject) -> JsonObject:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in LEGACY else LEGACY[0],
            "capabilities": self._capabilities(),
            "serverInfo": self._info,
            "instructions": self._instructions,
        }

    def _discovered(self, params: JsonObject) -> JsonObject:
        asked = (params.get("_meta") or {}).get(_VERSION_KEY)
        if asked != MODERN:
            raise RpcError(-32022, "unsupported protocol version", {"supported": [MODERN], "requested": str(asked)})
        return {"supportedVersions": [MODERN], "capabilities": self._capabilities(), "instructions": self._instructions}

    def _capabilities(self) -> JsonObject:
        return {"tools": {}, **({"resources": {"subscribe": True}} if self._resources else {})}

    def _resource(self, params: JsonObject) -> Resource:
        try:
            return self._resources[params["uri"]]
        except (KeyError, TypeError):
            raise RpcError(-32602, f"no such resource: {params.get('uri')}", {"uri": params.get("uri")}) from None

    def _opened(self, params: JsonObject) -> Call:
        return Call(params.get("arguments") or {}, self._progress_of((params.get("_meta") or {}).get("progressToken")))

    def _called(self, call: Call, message: JsonObject) -> JsonObject:
        name = (message.get("params") or {}).get("name", "")
        try:
            if name not in self._tools:
                raise RpcError(-32602, f"no such tool: {name}")
            return {"content": [{"type": "text", "text": self._tools[name].run(call)}], "isError": False}
        except ToolError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        finally:
            self._calls.pop(message["id"], None)

    def _progress_of(self, token: Any) -> Callable[[float, float, str], None]:
        def progress(done: float, total: float, text: str) -> None:
            if token is not None:
                self._notify("progress", {"progressToken": token, "progress": done, "total": total, "message": text})

        return progress

    def _withdraw(self, request: Any) -> None:
        """A request is no longer waited for; one that is over already is nobody's business."""
        self._listens.pop(request, None)
        call = self._calls.get(request)
        if call is not None:
            call.cancelled.set()

    def _listen(self, request: Any, params: JsonObject) -> None:
        """The newer era's subscription: a request that stays open while updates are wanted."""
        asked = (params.get("notifications") or {}).get("resourceSubscriptions") or []
        uris = [uri for uri in asked if uri in self._resources]
        honoured = {"resourceSubscriptions": uris} if uris else {}
        self._notify("subscriptions/acknowledged", {"notifications": honoured, "_meta": {_SUBSCRIPTION_KEY: request}})
        self._listens[request] = frozenset(uris)

    def _tell_changes(self, resource: Resource) -> None:
        """Tell whoever wants to know, each time the resource has changed; the thread ends with the process."""
        pause = threading.Event()
        while not pause.wait(resource.period):
            if resource.uri in self._watched:
                self._notify("resources/updated", {"uri": resource.uri})
            for request, uris in list(self._listens.items()):
                if resource.uri in uris:
                    self._notify("resources/updated", {"uri": resource.uri, "_meta": {_SUBSCRIPTION_KEY: request}})

    def _notify(self, method: str, params: JsonObject) -> None:
        self._send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})

    def _send(self, message: JsonObject) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            while data:  # past Python's buffer, whose lock a thread could still hold when the process ends
                data = data[os.write(1, data) :]


def _messages() -> Iterator[JsonObject]:
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            print(f"not JSON: {line[:80]!r}", file=sys.stderr, flush=True)
            continue
        if isinstance(message, dict):
            yield message
