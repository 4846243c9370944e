"""Owns how a server is asked for a client: on whose behalf, at which log level, and what the client hears before the result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from mcpvisor.daemon.gateway.caller import Caller
from mcpvisor.daemon.gateway.crossing import LOG_LEVEL_META, capabilities_to_server
from mcpvisor.daemon.gateway.doors import ServerDoor
from mcpvisor.daemon.gateway.emissions import Emissions
from mcpvisor.daemon.gateway.loglevels import MESSAGE_METHOD, admits, named
from mcpvisor.daemon.gateway.sdk_server import Context, notify_within
from mcpvisor.daemon.gateway.taps import LogTaps
from mcpvisor.supervisor.principal import Principal

JsonObject = dict[str, Any]


async def ask(door: ServerDoor, server: str, ctx: Context, params: JsonObject, caller: Caller, taps: LogTaps) -> JsonObject:
    """The server's result; what it says within its answer goes out on the stream of the client's request. Raises RequestFailed.

    Where the wire cannot tell within which answer a log message came, a client of 2026-07-28 gets it by its tap, and sessions
    get it like all that servers log unasked.
    """
    session = caller.session
    declared = ctx.session.client_capabilities
    meta = (ctx.params or {}).get("_meta") or {}
    token = meta.get("progressToken")
    level: str | None = session.wish.level if session is not None else meta.get(LOG_LEVEL_META)
    is_silent = session is None and level is None
    emissions = Emissions(partial(notify_within, ctx))

    def on_log(message: JsonObject) -> None:
        if not is_silent and admits(session.wish.level if session is not None else level, message.get("level")):
            emissions.put(MESSAGE_METHOD, named(server, message))

    request = partial(
        door.request,
        ctx.method,
        params,
        principal=Principal(caller.principal, session.id if session is not None else None),
        on_progress=_progress_sink(emissions, token),
        on_log=on_log,
        client_capabilities=capabilities_to_server(declared.model_dump(by_alias=True) if declared else None),
        log_level=level,
    )
    if token is None and is_silent:
        return await request()
    tap: AbstractContextManager[None] = nullcontext()
    if session is None and level is not None:
        tap = taps.tap(server, level, partial(emissions.put, MESSAGE_METHOD))
    with tap:
        return await emissions.during(request)


def _progress_sink(emissions: Emissions, token: Any) -> Callable[[JsonObject], None] | None:
    """Where progress goes, under the client's own token; None where the client gave none."""
    if token is None:
        return None
    return lambda progress: emissions.put("notifications/progress", {**progress, "progressToken": token})
