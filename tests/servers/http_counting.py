#!/usr/bin/env python3
"""A Streamable HTTP server that writes down what it does, so that nothing it ran can be denied.

Usage: http_counting.py PORT LOG
Sessions are forgotten when it ends. Each handshake answered and each tool run is one line of JSON in LOG, which is appended
to: {"event": "initialize"} and {"event": "run", "key": ...}. Tool count {key, seconds}: notes the run, waits, answers.
Resource memo:one can be read; a read takes a moment too.
"""

import asyncio
import json
import sys
import uuid

PORT, LOG = int(sys.argv[1]), open(sys.argv[2], "a", encoding="utf-8")  # noqa: SIM115 - open for as long as the server lives
SESSIONS = set()
TOOL = {
    "name": "count",
    "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}, "seconds": {"type": "number"}}},
}


def note(**event):
    LOG.write(json.dumps(event) + "\n")
    LOG.flush()


async def result_of(method, params):
    if method == "initialize":
        note(event="initialize")
        info = {"name": "counting", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "resources/list":
        return {"resources": [{"uri": "memo:one", "name": "one"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "ping":
        return {}
    if method == "resources/read":
        await asyncio.sleep(0.02)
        return {"contents": [{"uri": "memo:one", "text": "1"}]}
    if method == "tools/call":
        arguments = params["arguments"]
        note(event="run", key=arguments["key"])
        await asyncio.sleep(arguments.get("seconds", 0.02))
        return {"content": [{"type": "text", "text": arguments["key"]}]}
    return None


async def exchange(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            verb = head[0].split(" ")[0]
            fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            status, sent, extra = await answer(verb, fields.get("mcp-session-id"), body)
            data = json.dumps(sent).encode() if sent is not None else b""
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode()
                + data
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer(verb, session, body):
    if verb == "DELETE":
        SESSIONS.discard(session)
        return "200 OK", {}, ""
    if verb != "POST":
        return "405 Method Not Allowed", None, "Allow: POST, DELETE\r\n"
    message = json.loads(body)
    method, ident = message.get("method"), message.get("id")
    if method != "initialize" and session not in SESSIONS:
        error = {"code": -32600, "message": "Session not found"}
        return ("404 Not Found" if session else "400 Bad Request"), {"jsonrpc": "2.0", "id": ident, "error": error}, ""
    if ident is None:
        return "202 Accepted", None, ""
    result = await result_of(method, message.get("params") or {})
    if result is None:
        error = {"code": -32601, "message": "Method not found"}
        return "200 OK", {"jsonrpc": "2.0", "id": ident, "error": error}, ""
    extra = ""
    if method == "initialize":
        session = uuid.uuid4().hex
        SESSIONS.add(session)
        extra = f"Mcp-Session-Id: {session}\r\n"
    return "200 OK", {"jsonrpc": "2.0", "id": ident, "result": result}, extra


async def main():
    server = await asyncio.start_server(exchange, "127.0.0.1", PORT)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    await server.serve_forever()


asyncio.run(main())
