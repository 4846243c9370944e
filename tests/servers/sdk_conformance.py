#!/usr/bin/env python3
"""A server of both eras, on the official SDK, with everything that the public conformance suites ask a server by name.

Usage: sdk_conformance.py [http]     stdio, or Streamable HTTP on a free port, whose URL is printed first
What each tool, resource and prompt must do is written in the suites; each is here in as few words as it takes.
"""

import base64
import hashlib
import hmac
import json
import secrets
import socket
import struct
import sys
import warnings
import zlib

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")  # the SDK calls sampling, roots and logging deprecated since the newer era

MODERN = "2026-07-28"
KEY = secrets.token_bytes(32)
changes = {"tools": 0, "prompts": 0}
subscribed = set()
bus = InMemorySubscriptionBus()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def red_pixel():
    head = chunk(b"IHDR", struct.pack(">2I5B", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")


PNG = base64.b64encode(red_pixel()).decode()
WAV = base64.b64encode(
    struct.pack("<4sI8sI2H2I2H4sI", b"RIFF", 36, b"WAVEfmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 0)
).decode()


def text(value):
    return types.TextContent(text=value)


def said(*content, **more):
    return types.CallToolResult(content=[text(one) if isinstance(one, str) else one for one in content], **more)


def embedded(uri, mime, value):
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime, text=value))


def form(message, required=(), **properties):
    schema = {"type": "object", "properties": properties}
    return message, {**schema, "required": list(required)} if required else schema


# Questions: in the older era requests of the server, in the newer one its result


async def ask_now(ctx, message, schema):
    """The client's answer to a form, in words."""
    answer = await ctx.session.elicit_form(message, schema, ctx.request_id)
    return f"action={answer.action}, content={json.dumps(answer.content or {})}"


def asking(message, schema):
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(prompt, max_tokens):
    message = types.SamplingMessage(role="user", content=text(prompt))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


NAME = asking(*form("What is your name?", ["name"], name={"type": "string"}))
CONFIRM = asking(*form("Please confirm", ["ok"], ok={"type": "boolean"}))
ROOTS = types.ListRootsRequest()
STEPS = (
    asking(*form("Step 1: What is your name?", ["name"], name={"type": "string"})),
    asking(*form("Step 2: What is your favorite color?", ["color"], color={"type": "string"})),
)
CAPITAL, GREETING = sampling("What is the capital of France?", 100), sampling("Generate a greeting", 50)


def sealed(value):
    return f"{value}.{hmac.new(KEY, value.encode(), hashlib.sha256).hexdigest()}"


def opened(state):
    """What was sealed, None where there is nothing. Raises MCPError where it is not as it was."""
    if state is None:
        return None
    value = state.rpartition(".")[0]
    if not hmac.compare_digest(sealed(value), state):
        raise MCPError(-32602, "this requestState is none of ours")
    return value


def answers(params, wanted):
    """The answers under the wanted keys, each of its own kind; None until all of them are there."""
    given = params.input_responses or {}
    fitting = {key: given[key] for key, kind in wanted.items() if isinstance(given.get(key), kind)}
    return fitting if len(fitting) == len(wanted) else None


def required(state=None, **requests):
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def one_question(key, request, kind, then):
    """A tool that asks one thing, and says what was answered."""

    async def tool(ctx, params):
        given = answers(params, {key: kind})
        return said(then(given[key])) if given else required(**{key: request})

    return tool


async def with_state(ctx, params):
    state = opened(params.request_state)
    return (
        said("state-ok")
        if state and answers(params, {"confirm": types.ElicitResult})
        else required(sealed("confirm"), confirm=CONFIRM)
    )


async def several(ctx, params):
    wanted = {"user_name": types.ElicitResult, "greeting": types.CreateMessageResult, "client_roots": types.ListRootsResult}
    if opened(params.request_state) and answers(params, wanted):
        return said("all are answered")
    return required(sealed("several"), user_name=NAME, greeting=GREETING, client_roots=ROOTS)


async def in_steps(ctx, params):
    state = opened(params.request_state)
    if state == "step2" and answers(params, {"step2": types.ElicitResult}):
        return said("both steps are done")
    if state == "step1" and answers(params, {"step1": types.ElicitResult}):
        return required(sealed("step2"), step2=STEPS[1])
    return required(sealed("step1"), step1=STEPS[0])


async def by_capability(ctx, params):
    can = ctx.session.client_capabilities
    offered = {
        "sample": (can and can.sampling, CAPITAL),
        "ask": (can and can.elicitation, NAME),
        "roots": (can and can.roots, ROOTS),
    }
    asked = {key: request for key, (is_known, request) in offered.items() if is_known}
    return required(**asked) if asked and not params.input_responses else said("nothing more to ask")


async def needs_sampling(ctx, params):
    can = ctx.session.client_capabilities
    if not can or can.sampling is None:
        raise MCPError(-32021, "this tool needs sampling", {"requiredCapabilities": {"sampling": {}}})
    return said("sampling is known")


# Tools


async def sample(ctx, params):
    message = types.SamplingMessage(role="user", content=text(params.arguments["prompt"]))
    answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return said(f"LLM response: {answer.content.text}")


async def elicit(ctx, params):
    schema = form(
        params.arguments["message"],
        ["username", "email"],
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return said(f"User response: {await ask_now(ctx, *schema)}")


async def elicit_defaults(ctx, params):
    schema = form(
        "Who are you?",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return said(f"Elicitation completed: {await ask_now(ctx, *schema)}")


async def elicit_enums(ctx, params):
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
    old = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    schema = form(
        "Which ones?",
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", **old},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return said(f"Elicitation completed: {await ask_now(ctx, *schema)}")


async def log(ctx, params):
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    return said("logged")


async def progress(ctx, params):
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"{done} of 100")
        await anyio.sleep(0.05)
    return said("progressed")


async def reconnect(ctx, params):
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await anyio.sleep(0.2)
    return said("Reconnection test completed")


def changing(kind, event, push):
    async def tool(ctx, params):
        changes[kind] += 1
        await bus.publish(event())
        if ctx.protocol_version < MODERN:
            await getattr(ctx.session, push)()
        return said(f"{kind} have changed")

    return tool


def always(*content, **more):
    async def tool(ctx, params):
        return said(*content, **more)

    return tool


IMAGE = types.ImageContent(data=PNG, mime_type="image/png")
AUDIO = types.AudioContent(data=WAV, mime_type="audio/wav")
MIXED = (
    "Multiple content types test:",
    IMAGE,
    embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
)
INTENDED = "This tool intentionally returns an error for testing"

TOOLS = {
    "test_simple_text": always("This is a simple text response for testing."),
    "test_image_content": always(IMAGE),
    "test_audio_content": always(AUDIO),
    "test_embedded_resource": always(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": always(*MIXED),
    "test_error_handling": always(INTENDED, is_error=True),
    "test_tool_with_logging": log,
    "test_logging_tool": log,
    "test_tool_with_progress": progress,
    "test_reconnection": reconnect,
    "test_sampling": sample,
    "test_elicitation": elicit,
    "test_elicitation_sep1034_defaults": elicit_defaults,
    "test_elicitation_sep1330_enums": elicit_enums,
    "json_schema_2020_12_tool": always("ok"),
    "test_custom_headers": always("ok"),
    "test_missing_capability": needs_sampling,
    "test_streaming_elicitation": one_question("user_name", NAME, types.ElicitResult, lambda given: str(given.content)),
    "test_trigger_tool_change": changing("tools", ToolsListChanged, "send_tool_list_changed"),
    "test_trigger_prompt_change": changing("prompts", PromptsListChanged, "send_prompt_list_changed"),
    "test_input_required_result_elicitation": one_question(
        "user_name", NAME, types.ElicitResult, lambda given: f"Hello, {(given.content or {}).get('name')}!"
    ),
    "test_input_required_result_sampling": one_question(
        "capital_question", CAPITAL, types.CreateMessageResult, lambda given: given.content.text
    ),
    "test_input_required_result_list_roots": one_question(
        "client_roots", ROOTS, types.ListRootsResult, lambda given: ", ".join(str(root.uri) for root in given.roots)
    ),
    "test_input_required_result_request_state": with_state,
    "test_input_required_result_tampered_state": with_state,
    "test_input_required_result_multiple_inputs": several,
    "test_input_required_result_multi_round": in_steps,
    "test_input_required_result_capabilities": by_capability,
}


def takes(*required_texts, **marked):
    properties = {name: {"type": "string"} for name in required_texts}
    return {"type": "object", "properties": {**properties, **marked}, "required": list(required_texts)}


SCHEMAS = {
    "test_sampling": takes("prompt"),
    "test_elicitation": takes("message"),
    "test_custom_headers": takes(
        region={"type": "string", "x-mcp-header": "Region"}, level={"type": "integer", "x-mcp-header": "Level"}
    ),
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}


async def list_tools(ctx, params):
    schemas = {name: SCHEMAS.get(name, takes()) for name in TOOLS}
    tools = [types.Tool(name=name, description=f"Does what {name} must do", input_schema=one) for name, one in schemas.items()]
    tools[0] = tools[0].model_copy(update={"description": f"Says something, list {changes['tools']}"})
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx, params):
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(-32602, f"Unknown tool: {params.name}")
    return await tool(ctx, params)


# Resources

RESOURCES = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PNG),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched"
    ),
}


async def list_resources(ctx, params):
    resources = [
        types.Resource(uri=uri, name=uri.removeprefix("test://"), description=f"Is {uri}", mime_type=content.mime_type)
        for uri, content in RESOURCES.items()
    ]
    return types.ListResourcesResult(resources=resources)


async def list_templates(ctx, params):
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", description="Data by id", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx, params):
    uri = str(params.uri)
    if uri in RESOURCES:
        return types.ReadResourceResult(contents=[RESOURCES[uri]])
    begin, end = "test://template/", "/data"
    if not (uri.startswith(begin) and uri.endswith(end)):
        raise MCPError(-32602 if ctx.protocol_version >= MODERN else -32002, "Resource not found", {"uri": uri})
    number = uri[len(begin) : -len(end)]
    value = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
    content = types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(value))
    return types.ReadResourceResult(contents=[content])


async def subscribe(ctx, params):
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx, params):
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


async def touch(ctx, params):
    """Say that the watched resource has changed."""
    uri = "test://watched-resource"
    await bus.publish(ResourceUpdated(uri))
    if uri in subscribed and ctx.protocol_version < MODERN:
        await ctx.session.send_resource_updated(uri)
    return said("touched")


TOOLS["test_touch_watched_resource"] = touch


# Prompts


def user(content):
    return types.PromptMessage(role="user", content=text(content) if isinstance(content, str) else content)


PROMPTS = {
    "test_simple_prompt": ((), lambda given: [user("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        ("arg1", "arg2"),
        lambda given: [user(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")],
    ),
    "test_prompt_with_embedded_resource": (
        ("resourceUri",),
        lambda given: [
            user(embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")),
            user("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": ((), lambda given: [user(IMAGE), user("Please analyze the image above.")]),
    "test_input_required_result_prompt": ((), lambda given: [user("Asked for its context")]),
}
CONTEXT = asking(*form("What context should the prompt use?", ["context"], context={"type": "string"}))


async def list_prompts(ctx, params):
    prompts = [
        types.Prompt(
            name=name,
            description=f"Is {name}, list {changes['prompts']}",
            arguments=[types.PromptArgument(name=one, description=f"The {one}", required=True) for one in names],
        )
        for name, (names, _) in PROMPTS.items()
    ]
    return types.ListPromptsResult(prompts=prompts)


async def get_prompt(ctx, params):
    if params.name not in PROMPTS:
        raise MCPError(-32602, f"Unknown prompt: {params.name}")
    is_asking = params.name == "test_input_required_result_prompt" and ctx.protocol_version >= MODERN
    if is_asking and not answers(params, {"user_context": types.ElicitResult}):
        return required(user_context=CONTEXT)
    names, messages = PROMPTS[params.name]
    given = params.arguments or {}
    if missing := [name for name in names if name not in given]:
        raise MCPError(-32602, f"missing: {', '.join(missing)}")
    return types.GetPromptResult(messages=messages(given))


async def complete(ctx, params):
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))


async def set_level(ctx, params):
    return types.EmptyResult()


class Events(EventStore):
    """All events of all streams, by which a cut answer is taken up again."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        stream = self.events[int(last_event_id) - 1][0]
        for number, (of, message) in enumerate(self.events[int(last_event_id) :], int(last_event_id) + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


server = Server(
    "conformance",
    version="1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
    on_set_logging_level=set_level,
    on_subscriptions_listen=ListenHandler(bus),
)


async def main():
    if "http" in sys.argv:
        listening = socket.create_server(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        app = server.streamable_http_app(event_store=Events(), retry_interval=100)
        await uvicorn.Server(uvicorn.Config(app, http="h11", log_level="critical")).serve([listening])
    else:
        async with stdio_server() as (incoming, outgoing):
            options = server.create_initialization_options(NotificationOptions(True, True, True))
            await server.run(incoming, outgoing, options)


anyio.run(main)
