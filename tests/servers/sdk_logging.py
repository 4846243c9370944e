#!/usr/bin/env python3
"""A server of both eras, on the official SDK, that logs while it works, at the level it was asked for.

Usage: sdk_logging.py [http]     stdio, or Streamable HTTP on a free port, whose URL is printed first
Tools: work {"text"}  logs the text at debug, info and error within the call; a session of the older era gets what its own
                      `logging/setLevel` admits (warning before that), a request of the newer era what its `_meta` asks for
       state          {"asked": every level of a logging/setLevel so far, "per_request": the levels in the `_meta` of work}
       aside {"text"} logs the text at error on the server's own stream, within the call as far as the server knows
       later {"text"} does so 1.5 s after that call
"""

import asyncio
import json
import socket
import sys
import warnings

import anyio

from mcpvisor.daemon.loading import sparing

with sparing():  # many of these are started, and the SDK is most of a start
    import mcp_types as types
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server

warnings.simplefilter("ignore")  # the SDK calls logging deprecated since the newer era

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ASKED, PER_REQUEST, LATER = [], [], set()
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


async def log_later(session, text):
    await anyio.sleep(1.5)
    await session.send_log_message("error", text)


async def list_tools(ctx, params):
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema=SCHEMA) for name in ("work", "state", "aside", "later")]
    )


async def set_level(ctx, params):
    ASKED.append(params.level)
    return types.EmptyResult()


async def call_tool(ctx, params):
    text = (params.arguments or {}).get("text", "")
    if params.name == "work":
        is_modern = ctx.protocol_version >= "2026"
        PER_REQUEST.append((ctx.meta or {}).get("io.modelcontextprotocol/logLevel"))
        wanted = "debug" if is_modern else ASKED[-1] if ASKED else "warning"  # the SDK itself minds the level of a request
        for level in ("debug", "info", "error"):
            if LEVELS.index(level) >= LEVELS.index(wanted):
                await ctx.session.send_log_message(level, f"{text} {level}", related_request_id=ctx.request_id)
    elif params.name == "aside":
        await ctx.session.send_log_message("error", text)
    elif params.name == "later":
        LATER.add(asyncio.create_task(log_later(ctx.session, text)))
    else:
        text = json.dumps({"asked": ASKED, "per_request": PER_REQUEST})
    return types.CallToolResult(content=[types.TextContent(text=text)])


server = Server("logging", on_list_tools=list_tools, on_call_tool=call_tool, on_set_logging_level=set_level)


async def main():
    if "http" in sys.argv:
        import uvicorn

        listening = socket.create_server(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        await uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).serve([listening])
    else:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


anyio.run(main)
