#!/usr/bin/env python3
"""A server of both eras, on the official SDK, that does for each caller what has to do with that caller alone.

Usage: sdk_eras.py LOG [http]     stdio, or Streamable HTTP on a free port, whose URL is printed first
Tools take {"who"}. ask: asks for a name, in the way of its era, in words that name the caller; its text is who and the answer.
work: says how far it is three times, and logs at info, in words that name the caller. wait: for ever, with `began`, `who` and
`cancelled` as lines of LOG. touch {"uri"}: says that a resource has changed, to whoever watches it.
"""

import json
import os
import socket
import sys
import warnings

import anyio

from mcpvisor.daemon.loading import sparing

with sparing():  # many of these are started, and the SDK is most of a start
    import mcp_types as types
    from mcp.server.lowlevel.server import NotificationOptions, Server
    from mcp.server.stdio import stdio_server
    from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

warnings.simplefilter("ignore")  # the SDK calls logging deprecated since the newer era

MODERN = "2026-07-28"
LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
URIS = ("memo://anna", "memo://ben")
bus = InMemorySubscriptionBus()
watching = {}


def note(event, who):
    os.write(LOG, json.dumps({"event": event, "who": who}).encode() + b"\n")


async def ask(ctx, params, who):
    message = f"Your name, {who}?"
    if ctx.protocol_version < MODERN:
        answer = await ctx.session.elicit_form(message, NAME, ctx.request_id)
    elif params.input_responses:
        answer = params.input_responses["name"]
    else:
        form = types.ElicitRequestFormParams(message=message, requested_schema=NAME)
        return types.InputRequiredResult(input_requests={"name": types.ElicitRequest(params=form)}, request_state=who)
    return f"{who}: {answer.action} {(answer.content or {}).get('name')}"


async def work(ctx, params, who):
    for step in (1, 2, 3):
        await ctx.session.report_progress(step, 3, who)
        await ctx.session.send_log_message("info", f"{who} {step}", related_request_id=ctx.request_id)
        await anyio.sleep(0.02)
    return who


async def wait(ctx, params, who):
    note("began", who)
    try:
        await anyio.sleep_forever()
    finally:
        note("cancelled", who)


async def touch(ctx, params, who):
    uri = params.arguments["uri"]
    await bus.publish(ResourceUpdated(uri))
    for session in watching.get(uri, []):
        await session.send_resource_updated(uri)
    return uri


TOOLS = {"ask": ask, "work": work, "wait": wait, "touch": touch}


async def list_tools(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in TOOLS])


async def call_tool(ctx, params):
    result = await TOOLS[params.name](ctx, params, (params.arguments or {}).get("who"))
    return result if not isinstance(result, str) else types.CallToolResult(content=[types.TextContent(text=result)])


async def list_resources(ctx, params):
    return types.ListResourcesResult(resources=[types.Resource(uri=uri, name=uri) for uri in URIS])


async def read_resource(ctx, params):
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="memo")])


async def subscribe(ctx, params):
    watching.setdefault(str(params.uri), []).append(ctx.session)
    return types.EmptyResult()


async def unsubscribe(ctx, params):
    watching.pop(str(params.uri), None)
    return types.EmptyResult()


async def set_level(ctx, params):
    return types.EmptyResult()


server = Server(
    "eras",
    version="1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_set_logging_level=set_level,
    on_subscriptions_listen=ListenHandler(bus),
)


async def main():
    if "http" in sys.argv:
        import uvicorn

        listening = socket.create_server(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        await uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).serve([listening])
    else:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options(NotificationOptions(True, True, True)))


anyio.run(main)
