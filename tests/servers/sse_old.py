#!/usr/bin/env python3
"""A server of the old HTTP+SSE transport (revision 2024-11-05), standard library only.

Usage: sse_old.py [good|foreign|refuse|silent|fail-post] [--port N]   Prints its URL as the first line of stdout.
  good       GET /sse names an endpoint, POSTs to it get 202, answers come on the stream; POST /sse gets 405
  foreign    the endpoint is on another origin       refuse     GET /sse gets 503 with Retry-After: 7
  silent     the stream never names an endpoint      fail-post  every POST after `initialize` gets 500
Tools: echo; ask (the server asks `roots/list` back and answers with what it got); die (ends the stream, no answer).
"""

import argparse
import json
import queue
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STREAMS = {}
ASKED = {}


def answer(stream, message):
    method, ident = message.get("method"), message.get("id")
    if method is None:
        original = ASKED.pop(ident, None)
        if original is not None:
            stream.put(text(original, json.dumps(message.get("result", message.get("error")))))
    elif ident is None:
        return
    elif method == "initialize":
        info = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
        stream.put({"jsonrpc": "2.0", "id": ident, "result": info})
    elif method == "tools/call" and message["params"]["name"] == "echo":
        stream.put(text(ident, message["params"]["arguments"]["text"]))
    elif method == "tools/call" and message["params"]["name"] == "ask":
        question = f"q-{uuid.uuid4().hex}"
        ASKED[question] = ident
        stream.put({"jsonrpc": "2.0", "id": question, "method": "roots/list"})
    elif method == "tools/call" and message["params"]["name"] == "die":
        stream.put(None)
    else:
        stream.put({"jsonrpc": "2.0", "id": ident, "result": {}})


def text(ident, value):
    return {"jsonrpc": "2.0", "id": ident, "result": {"content": [{"type": "text", "text": value}]}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        if ARGS.mode == "refuse":
            return self.reply(503, Retry_After="7")
        session = uuid.uuid4().hex
        stream = STREAMS[session] = queue.Queue()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        endpoint = f"/messages?session={session}"
        if ARGS.mode == "foreign":
            endpoint = "http://127.0.0.2:9/messages"
        if ARGS.mode != "silent":
            self.wfile.write(f"event: endpoint\r\ndata: {endpoint}\r\n\r\n".encode())
        while (message := stream.get()) is not None:
            self.wfile.write(b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n")
        self.close_connection = True

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, _, session = self.path.partition("?session=")
        if path != "/messages":
            return self.reply(405)
        if session not in STREAMS:
            return self.reply(404)
        if ARGS.mode == "fail-post" and message.get("method") == "tools/call":
            return self.reply(500)
        self.reply(202)
        answer(STREAMS[session], message)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass


OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("mode", nargs="?", default="good")
OPTIONS.add_argument("--port", type=int, default=0)
ARGS = OPTIONS.parse_args()
server = Server(("127.0.0.1", ARGS.port), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}/sse", flush=True)
server.serve_forever(poll_interval=0.1)
