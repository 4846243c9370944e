#!/usr/bin/env python3
"""A server of the older era that asks in the middle of its calls; standard library only, each call in a thread of its own.

Usage: asking.py [stdio|http|sse]     For http and sse the URL is the first line of stdout.
Tools: ask {"aside"}   asks by `elicitation/create` and answers with the result it got; with `aside`, over Streamable HTTP, on
                       the session's GET stream instead of within the answer
       pid             its process, and over HTTP the session
       wait            never answers; what it is told by `notifications/cancelled` ends it
"""

import json
import os
import queue
import sys
import threading
import uuid

KIND = sys.argv[1] if len(sys.argv) > 1 else "stdio"
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}
ASK = {"mode": "form", "message": "Which one?", "requestedSchema": SCHEMA}
WAITING = {}  # id of a question -> queue for its answer
SESSIONS = {}  # id of a session -> queue of its GET stream


def call(message, session, send, aside):
    params = message["params"]
    arguments = params.get("arguments") or {}
    if params["name"] == "pid":
        text = json.dumps({"pid": os.getpid(), "session": session})
    elif params["name"] == "wait":
        return
    else:
        number = f"q-{uuid.uuid4().hex}"
        WAITING[number] = queue.Queue()
        question = {"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": ASK}
        (aside if arguments.get("aside") else send)(question)
        heard = WAITING[number].get()
        text = json.dumps(heard.get("result", heard.get("error")))
    send({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}})


def answer(message):
    method, number = message["method"], message["id"]
    if method == "initialize":
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "asking", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "pid", "wait")]}
    elif method == "ping":
        result = {}
    else:
        return {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": number, "result": result}


def take(message, session, send, aside):
    """Take a message; whether an answer to it comes."""
    if "method" not in message:
        if message.get("id") in WAITING:
            WAITING[message["id"]].put(message)
        return False
    if "id" not in message:
        return False
    if message["method"] == "tools/call":
        threading.Thread(target=call, args=(message, session, send, aside), daemon=True).start()
    else:
        send(answer(message))
    return True


def write(message):
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


LOCK = threading.Lock()
if KIND == "stdio":
    for line in sys.stdin:
        take(json.loads(line), None, write, write)
    sys.exit()

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: E402 - most of a start, and for HTTP alone


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def head(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 200:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def event(self, message, name="message"):
        data = message if isinstance(message, str) else json.dumps(message)
        self.wfile.write(f"event: {name}\ndata: {data}\n\n".encode())
        self.wfile.flush()

    def do_GET(self):
        session = uuid.uuid4().hex if KIND == "sse" else self.headers.get("Mcp-Session-Id")
        if KIND == "sse":
            SESSIONS[session] = queue.Queue()
        if session not in SESSIONS:
            return self.head(404)
        self.close_connection = True
        self.head(200, Content_Type="text/event-stream", Connection="close")
        if KIND == "sse":
            self.event(f"/messages?session={session}", "endpoint")
        while (message := SESSIONS[session].get()) is not None:
            try:
                self.event(message)
            except OSError:
                return None

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if KIND == "sse":
            if "session=" not in self.path:
                return self.head(405)
            session = self.path.rpartition("=")[2]
            self.head(202)
            take(message, session, SESSIONS[session].put, SESSIONS[session].put)
            return None
        session = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize":
            session = uuid.uuid4().hex
            SESSIONS[session] = queue.Queue()
        if session not in SESSIONS:
            return self.head(404)
        out = queue.Queue()
        if not take(message, session, out.put, SESSIONS[session].put):
            return self.head(202)
        self.close_connection = True
        self.head(200, Content_Type="text/event-stream", Connection="close", Mcp_Session_Id=session)
        while True:
            sent = out.get()
            try:
                self.event(sent)
            except OSError:
                return None
            if sent.get("id") == message["id"] and "method" not in sent:
                return None

    def do_DELETE(self):
        stream = SESSIONS.pop(self.headers.get("Mcp-Session-Id"), None)
        if stream is not None:
            stream.put(None)
        self.head(200 if stream is None else 204)


served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
served.daemon_threads = True
path = "/sse" if KIND == "sse" else "/mcp"
print(f"http://127.0.0.1:{served.server_port}{path}", flush=True)
served.serve_forever()
