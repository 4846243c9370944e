#!/usr/bin/env python3
"""A Streamable HTTP server of the older era with room for one session, and one that says no where it is told to.

Usage: http_narrow.py [--room ROOM] [--port N]   Prints its URL as the first line of stdout. What a further `initialize` gets
while a session stands (ROOM):
  refuse       (default) 400 + JSON-RPC error -32600 "Server already initialized", as the SDK for TypeScript says it
  plain        400 + JSON-RPC error -32603 "Bad Request": the same, without a word of why
  text         409, and a line of text
  full         503, and a line of text, as servers with a limit of sessions say it
  evict        a session of its own, and the one before is gone
  many         a session of its own
  none         no session has an id, and any number of clients is served
DELETE ends the session that it names; with --keep it is answered 405, and with --careless it ends whatever session stands.
GET gives a push stream, with --no-push a 405. Tools: echo {text}, slow {seconds}.
GET /__state: {"log": [[at, method or verb, session sent or null, status], ...], "opened": N, "alive": [...]}.
POST /__ctl/answers {METHOD: [status, headers, body or null]}: from now on these methods (or verbs) get that, and no others do.
POST /__ctl/forget drops all sessions, without a word.
"""

import argparse
import asyncio
import contextlib
import json
import time

OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("--room", default="refuse")
OPTIONS.add_argument("--port", type=int, default=0)
OPTIONS.add_argument("--keep", action="store_true")
OPTIONS.add_argument("--careless", action="store_true")
OPTIONS.add_argument("--no-push", action="store_true")
ARGS = OPTIONS.parse_args()

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "slow")]
LOG = []
ALIVE = {}
"""The sessions that stand, each with what ends its push stream."""
ANSWERS = {}
COUNT = [0]
PHRASES = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict"}


def end(session):
    ended = ALIVE.pop(session, None)
    if ended is not None:
        ended.set()


def message(ident, code, text):
    return {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": text}}


def refusal(ident):
    """What a further `initialize` gets; None where it is let in."""
    if not ALIVE or ARGS.room in ("many", "none", "evict"):
        return None
    if ARGS.room == "refuse":
        return 400, {}, message(None, -32600, "Invalid Request: Server already initialized")
    if ARGS.room == "plain":
        return 400, {}, message(ident, -32603, "Bad Request")
    if ARGS.room == "full":
        return 503, {"Content-Type": "text/plain"}, "too many sessions"
    return 409, {"Content-Type": "text/plain"}, "a client is connected already"


def opened(ident):
    if ARGS.room == "evict":
        for session in list(ALIVE):
            end(session)
    COUNT[0] += 1
    headers = {}
    if ARGS.room != "none":
        headers["Mcp-Session-Id"] = f"s{COUNT[0]}"
        ALIVE[f"s{COUNT[0]}"] = asyncio.Event()
    info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "narrow", "version": "1"}}
    return 200, headers, {"jsonrpc": "2.0", "id": ident, "result": info}


async def answer(verb, session, said):
    """Status, headers and body of the answer to one request."""
    method, ident = said.get("method"), said.get("id")
    if (told := ANSWERS.get(method) or ANSWERS.get(verb)) is not None:
        return told
    if method == "initialize":
        return refusal(ident) or opened(ident)
    if verb == "DELETE" and ARGS.keep:
        return 405, {}, None
    if ARGS.room != "none" and session not in ALIVE:
        if verb == "DELETE" and ARGS.careless:
            for one in list(ALIVE):
                end(one)
        return (404 if session else 400), {}, message(None, -32600, "Session not found" if session else "no session id")
    if verb == "DELETE":
        end(session)
        return 200, {}, None
    if ident is None or method is None:
        return 202, {}, None
    return 200, {}, {"jsonrpc": "2.0", "id": ident, **await result(method, said.get("params") or {})}


async def result(method, params):
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        await asyncio.sleep(float(arguments.get("seconds", 0)))
        return {"result": {"content": [{"type": "text", "text": str(arguments.get("text", ""))}]}}
    return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


async def serve(reader, writer):
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            verb, path, _ = head[0].split(" ", 2)
            fields = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            if path == "/__state":
                send(writer, 200, {}, {"log": LOG, "opened": COUNT[0], "alive": list(ALIVE)})
            elif path.startswith("/__ctl/"):
                order(path.rpartition("/")[2], json.loads(body) if body else {})
                send(writer, 200, {}, {})
            else:
                await exchange(writer, verb, fields.get("mcp-session-id"), json.loads(body) if body else {})
            await writer.drain()
    writer.close()


def order(name, told):
    if name == "answers":
        ANSWERS.clear()
        ANSWERS.update(told)
    elif name == "forget":
        for session in list(ALIVE):
            end(session)


async def exchange(writer, verb, session, said):
    entry = [time.monotonic(), said.get("method", verb), session, None]
    LOG.append(entry)
    if verb == "GET" and "GET" not in ANSWERS and not ARGS.no_push and session in ALIVE:
        entry[3] = 200
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"9\r\n: hello\n\n\r\n")
        await writer.drain()
        await ALIVE[session].wait()
        writer.write(b"0\r\n\r\n")
        return
    if verb == "GET" and "GET" not in ANSWERS:
        status, headers, sent = 405, {}, None
    else:
        status, headers, sent = await answer(verb, session, said)
    entry[3] = status
    send(writer, status, headers, sent)


def send(writer, status, headers, sent):
    data = b"" if sent is None else sent.encode() if isinstance(sent, str) else json.dumps(sent).encode()
    shown = {"Content-Type": "application/json", **headers} if data else headers
    lines = [f"HTTP/1.1 {status} {PHRASES.get(status, 'No')}", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in shown.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", ARGS.port, reuse_address=True)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
