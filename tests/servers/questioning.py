#!/usr/bin/env python3
"""A server that asks before it answers, in the way of its era.

Usage: questioning.py stdio|http legacy|modern [PORT]
Over HTTP it prints its address first.

Tool ask {kind, who} asks one question that names `who`: a form, a url, sampling or roots. Its text is JSON: who, kind, and the
answer as it came. Tool page {who}, of the older era, wants a page visited before the first call for each `who`, by the error of
revision 2025-11-25. The newer era keeps what it has asked in its requestState, and refuses another's.
"""

import itertools
import json
import queue
import sys
import threading
import uuid

WIRE, ERA = sys.argv[1:3]
MODERN = ERA == "modern"
OFFER = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "page")]
METHODS = {"sampling": "sampling/createMessage", "roots": "roots/list"}

ids = itertools.count(100)
answers = {}
visited = set()


class Refused(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data is not None else {})}


def question(kind, who):
    if kind == "form":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return "elicitation/create", {"message": f"Your name, {who}?", "requestedSchema": schema}
    if kind == "url":
        page = {"mode": "url", "message": f"Sign in, {who}", "url": f"https://example.org/{who}"}
        return "elicitation/create", page if MODERN else {**page, "elicitationId": f"page-of-{who}"}
    if kind == "sampling":
        text = {"type": "text", "text": f"Speak, {who}"}
        return METHODS[kind], {"messages": [{"role": "user", "content": text}], "maxTokens": 5, "systemPrompt": who}
    return METHODS[kind], {}


def call(params, ask):
    arguments = params.get("arguments") or {}
    who, kind = arguments["who"], arguments.get("kind")
    if params["name"] == "page":
        if who not in visited:
            visited.add(who)
            page = {"mode": "url", "message": f"Sign in, {who}", "url": f"https://example.org/{who}", "elicitationId": who}
            raise Refused(-32042, "sign in first", {"elicitations": [page]})
        answer = "visited"
    elif not MODERN:
        answer = ask(*question(kind, who))
    elif "requestState" not in params:
        method, asked = question(kind, who)
        state = f"asked {who} for {kind}"
        return {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": method, "params": asked}},
            "requestState": state,
        }
    elif params["requestState"] != f"asked {who} for {kind}":
        raise Refused(-32602, "this state is another's")
    else:
        answer = params["inputResponses"]["q"]
    text = json.dumps({"who": who, "kind": kind, "answer": answer})
    return {"content": [{"type": "text", "text": text}]}


def result_of(method, params, ask):
    info = {"name": "questioning", "version": "1"}
    if method == "initialize" and not MODERN:
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "server/discover" and MODERN:
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": info, **HINTS}
    if method == "ping" and not MODERN:
        return {}
    if method == "tools/list":
        return {"tools": OFFER, **(HINTS if MODERN else {})}
    if method == "tools/call":
        return call(params, ask)
    raise Refused(-32601, "Method not found")


HINTS = {"ttlMs": 0, "cacheScope": "private"}


def reply(message, ask):
    try:
        result = result_of(message["method"], message.get("params") or {}, ask)
        if MODERN:
            result = {"resultType": "complete", **result}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}
    except Refused as refused:
        return {"jsonrpc": "2.0", "id": message["id"], "error": refused.error}


def asks_by(write):
    def ask(method, params):
        ident = next(ids)
        answers[ident] = queue.Queue()
        write({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})
        said = answers[ident].get()
        return said.get("result", said.get("error"))

    return ask


def take_answer(message):
    if "method" not in message and message.get("id") in answers:
        answers[message["id"]].put(message)


def serve_stdio():
    lock = threading.Lock()

    def write(message):
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            take_answer(message)
        elif "id" in message:
            threading.Thread(target=lambda one=message: write(reply(one, asks_by(write))), daemon=True).start()


if WIRE == "stdio":
    serve_stdio()
    sys.exit()

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: E402 - most of a start, and for HTTP alone


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "method" not in message or "id" not in message:
            take_answer(message)
            self.head("202 Accepted", "Content-Length: 0\r\n")
        elif message["method"] == "tools/call" and not MODERN:
            self.head("200 OK", "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n")
            self.event(reply(message, asks_by(self.event)))
            self.wfile.write(b"0\r\n\r\n")
        else:
            body = json.dumps(reply(message, None)).encode()
            session = f"Mcp-Session-Id: {uuid.uuid4().hex}\r\n" if message["method"] == "initialize" else ""
            self.head("200 OK", f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{session}")
            self.wfile.write(body)

    def do_GET(self):
        self.head("405 Method Not Allowed", "Content-Length: 0\r\nAllow: POST, DELETE\r\n")

    def do_DELETE(self):
        self.head("200 OK", "Content-Length: 0\r\n")

    def head(self, status, fields):
        self.wfile.write(f"HTTP/1.1 {status}\r\n{fields}\r\n".encode())

    def event(self, message):
        data = b"data: " + json.dumps(message).encode() + b"\n\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Exchange)
server.daemon_threads = True
print(f"http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
server.serve_forever()
