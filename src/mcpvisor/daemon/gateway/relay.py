"""Owns the way of one request: public name to server, params across, result and failure back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from pydantic import ValidationError

from mcpvisor.daemon.gateway.asking import Asked
from mcpvisor.daemon.gateway.caller import Caller, caller_of
from mcpvisor.daemon.gateway.catalog import Listed, shows
from mcpvisor.daemon.gateway.catalogs import Catalogs, View
from mcpvisor.daemon.gateway.crossing import (
    failure_data,
    params_to_server,
    rejected,
    result_to_client,
    unknown_resource,
    uri_too_long,
    with_cache_hints,
)
from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.lists import LISTS, Lists
from mcpvisor.daemon.gateway.malformed import invalid_params, refused_by_sdk, unknown_method
from mcpvisor.daemon.gateway.names import SEPARATOR
from mcpvisor.daemon.gateway.observer import GatewayObserver, method_label
from mcpvisor.daemon.gateway.questions.passage import Passage
from mcpvisor.daemon.gateway.questions.rounds import INPUT_REQUIRED, METHODS
from mcpvisor.daemon.gateway.roots import METHOD as ROOTS_CHANGED
from mcpvisor.daemon.gateway.roots import RootsNews
from mcpvisor.daemon.gateway.sdk_server import Context, is_initialized, is_modern
from mcpvisor.daemon.gateway.templates import MAX_URI
from mcpvisor.daemon.gateway.watch_requests import WatchRequests
from mcpvisor.supervisor.errors import Outcome, RequestFailed, UnknownServer
from mcpvisor.supervisor.offer import NOTHING
from mcpvisor.supervisor.principal import Principal

JsonObject = dict[str, Any]
Answer = Callable[[Context, Mapping[str, Any]], Awaitable[JsonObject]]

_log = logging.getLogger(__name__)

_INTERNAL_ERROR = -32603


class Relay:
    """The SDK's middleware that answers in place of its handlers: what it returns is sent as it is, unknown fields included."""

    def __init__(
        self,
        doors: ServerDoors,
        catalogs: Catalogs,
        view: View,
        lists: Lists,
        passage: Passage,
        observer: GatewayObserver,
        watches: WatchRequests,
    ) -> None:
        self._doors = doors
        self._catalogs = catalogs
        self._view = view
        self._lists = lists
        self._passage = passage
        self._observer = observer
        self._watches = watches
        self._roots = RootsNews(doors, view)
        self._answers: dict[str, Answer] = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "subscriptions/listen": self._listen,
            **{method: partial(self._list, method) for method in LISTS},
        }

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a request, or let the SDK do it. Raises MCPError."""
        if ctx.request_id is None:
            await self._heed(ctx)
            return await call_next(ctx)
        began = anyio.current_time()
        outcome = "error"
        try:
            result = await self._answered(ctx, call_next)
            outcome = "ok"
        except anyio.get_cancelled_exc_class():
            outcome = Outcome.CANCELLED.value
            raise
        except RequestFailed as failure:
            outcome = failure.outcome.value
            raise _error(None, failure) from failure
        except MCPError as error:
            if isinstance(error.__cause__, RequestFailed):
                outcome = error.__cause__.outcome.value
            raise
        except Exception as error:
            # The SDK would send the text of the exception to the client.
            _log.exception("answering %s failed", method_label(ctx.method))
            raise MCPError(_INTERNAL_ERROR, "internal error of the gateway; its log says more") from error
        finally:
            self._observer.request_ended(method_label(ctx.method), outcome, anyio.current_time() - began)
        return result

    async def _heed(self, ctx: Context) -> None:
        """Pass on the one notification of a client that concerns servers."""
        if ctx.method != ROOTS_CHANGED or not is_initialized(ctx):
            return
        session = _caller(ctx).session
        if session is not None:  # 2026-07-28 knows no such notification
            await self._roots.changed(Principal(session.principal, session.id))

    async def _answered(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The answer. Raises MCPError, and RequestFailed for what is no request of the client's revision."""
        try:
            return await self._answer(ctx, call_next)
        except ValidationError as error:
            raise invalid_params(ctx.params, error) from error
        except MCPError as error:
            refusal = refused_by_sdk(error, ctx.method)
            if refusal is None:
                raise
            raise refusal from error

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        answer = self._answers.get(ctx.method)
        if answer is None or not is_initialized(ctx):
            return await call_next(ctx)
        try:
            methods.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
        except KeyError:
            raise unknown_method(ctx.method) from None
        return await answer(ctx, ctx.params or {})

    async def _list(self, method: str, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        result = await self._lists.answer(method, params, _caller(ctx))
        return with_cache_hints({"resultType": "complete", **result}) if is_modern(ctx) else result

    async def _call_tool(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        listed = self._find("tools", params["name"])
        return await self._forward(ctx, listed.server, params_to_server(params, name=listed.original))

    async def _get_prompt(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        listed = self._find("prompts", params["name"])
        return await self._forward(ctx, listed.server, params_to_server(params, name=listed.original))

    async def _read_resource(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        server = self._owner(params["uri"])
        if server is None:
            raise unknown_resource(params["uri"], modern=is_modern(ctx))
        return await self._forward(ctx, server, params_to_server(params))

    async def _complete(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        ref = params["ref"]
        if ref["type"] == "ref/prompt":
            listed = self._find("prompts", ref["name"])
            sent = params_to_server(params, ref={**ref, "name": listed.original})
            return await self._forward(ctx, listed.server, sent)
        template = self._catalogs.current(self._view).templates.get(ref["uri"])
        server = template.listed.server if template is not None else self._owner(ref["uri"])
        if server is None:
            raise rejected("unknown_resource", "Resource not found", data={"uri": ref["uri"]})
        return await self._forward(ctx, server, params_to_server(params))

    async def _set_level(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        session = _caller(ctx).session
        assert session is not None  # the era without sessions has no such method: validation has refused it
        session.wish.change(params["level"])
        return {}

    async def _subscribe(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        return await self._watches.subscribe(_caller(ctx), params["uri"])

    async def _unsubscribe(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        return self._watches.unsubscribe(_caller(ctx), params["uri"])

    async def _listen(self, ctx: Context, params: Mapping[str, Any]) -> JsonObject:
        self._observer.session_opened("modern")
        try:
            return await self._watches.listen(ctx, _caller(ctx), params["notifications"])
        finally:
            self._observer.session_closed("modern")

    def _find(self, kind: Literal["tools", "prompts"], name: str) -> Listed:
        """Whose a public name is; a name that is not known may be newer than the last refresh. Raises RequestFailed."""
        for is_fresh in (False, True):
            if is_fresh:
                self._catalogs.refresh()
            catalog = self._catalogs.current(self._view)
            listed = (catalog.tools if kind == "tools" else catalog.prompts).get(name)
            if listed is not None:
                return listed
        unread = self._of_unread(kind, name)
        if unread is not None:
            return unread
        noun = kind.removesuffix("s")
        raise rejected(f"unknown_{noun}", f"Unknown {noun}: {name[:200]}")

    def _of_unread(self, kind: Literal["tools", "prompts"], name: str) -> Listed | None:
        """A name of a server whose lists were never read: it knows best, and while it is away its door says why."""
        server, original = self._view, name
        if server is None:
            server, separator, original = name.partition(SEPARATOR)
            if not separator or not original:
                return None
        try:
            door = self._doors.connection(server)
        except UnknownServer:
            return None
        if door.offer is not NOTHING or (kind == "tools" and not shows(door.spec.tools, original)):
            return None
        return Listed(server, original, {})

    def _owner(self, uri: str) -> str | None:
        """The server that answers for a URI."""
        if len(uri) > MAX_URI:
            raise uri_too_long()
        return self._catalogs.owner_of(self._view, uri)

    async def _forward(self, ctx: Context, server: str, params: JsonObject) -> JsonObject:
        """The server's result in the client's era. Raises MCPError with what became of the request."""
        try:
            door = self._doors.connection(server)
            asked = Asked(ctx=ctx, caller=_caller(ctx), view=self._view, server=server, door=door, params=params)
            result = await self._passage.answer(asked)
            from_modern = door.era == "modern"
            known = {"complete", INPUT_REQUIRED} if is_modern(ctx) and ctx.method in METHODS else {"complete"}
            result_type = result.get("resultType")
            if isinstance(result_type, str) and result_type not in known:  # in whatever era the server claims to be
                raise RequestFailed(
                    Outcome.PEER_ERROR,
                    "result_type",
                    "the server answers with something that is no result, and is not passed on",
                    code=_INTERNAL_ERROR,
                )
        except UnknownServer as error:
            raise _error(server, rejected("unknown_server", f"the server {server} is gone")) from error
        except RequestFailed as failure:
            raise _error(server, failure) from failure
        return result_to_client(ctx.method, result, modern=is_modern(ctx), from_modern=from_modern)


def _caller(ctx: Context) -> Caller:
    assert ctx.request is not None  # every transport of the gateway is HTTP
    return caller_of(ctx.request.scope)


def _error(server: str | None, failure: RequestFailed) -> MCPError:
    return MCPError(failure.code, failure.message, failure_data(server, failure))
