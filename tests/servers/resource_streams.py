#!/usr/bin/env python3
"""Resources whose changes are pushed, in both eras over stdio and in the newer one over HTTP; standard library only.

Usage: resource_streams.py [--log FILE] [--http PORT] [--list URI]... [--unknown URI]... [--ack-delay SECONDS]
Over HTTP the first line of stdout is the URL. `--list`: such a resource is listed. `--unknown`: such a URI is refused (-32002)
in the older era, and left out of the acknowledgement in the newer one. `--ack-delay`: an update of every URI is pushed at once,
and the acknowledgement of a stream, or the answer to a subscription, that much later.
Test door, as tools: touch {uri} announces a change to whoever is subscribed to exactly that, end_streams ends all streams in
good order, cut_streams (HTTP) cuts their connections. Over HTTP also POST /__ctl/NAME with the same arguments.
FILE gets one JSON object a line: {"pid", "what": "subscribe" | "unsubscribe" | "listen" | "withdrawn", "uris"}.
"""

import argparse
import json
import os
import queue
import sys
import threading
import time

OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("--log")
OPTIONS.add_argument("--http", type=int)
OPTIONS.add_argument("--list", action="append", default=[])
OPTIONS.add_argument("--unknown", action="append", default=[])
OPTIONS.add_argument("--ack-delay", type=float, default=0.0)
ARGS = OPTIONS.parse_args()

MODERN = "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
CAPS = {"tools": {}, "resources": {"subscribe": True, "listChanged": True}}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("touch", "end_streams", "cut_streams")]
LOCK = threading.RLock()
WATCHED = []  # older era
STREAMS = {}  # newer era: request id -> Stream


def note(what, uris):
    if ARGS.log:
        with open(ARGS.log, "a") as file:
            file.write(json.dumps({"pid": os.getpid(), "what": what, "uris": uris}) + "\n")


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Stream:
    """One `subscriptions/listen`; `send` writes a message of it, None ends it, a number cuts it."""

    def __init__(self, request, asked, send):
        self.request, self.send = request, send
        self.uris = [uri for uri in asked if uri not in ARGS.unknown]

    def tell(self, method, **params):
        meta = {SUBSCRIPTION: self.request}
        self.send({"jsonrpc": "2.0", "method": "notifications/" + method, "params": {**params, "_meta": meta}})

    def end(self):
        self.send(
            {"jsonrpc": "2.0", "id": self.request, "result": {"resultType": "complete", "_meta": {SUBSCRIPTION: self.request}}}
        )


def listen(msg, send):
    asked = ((msg.get("params") or {}).get("notifications") or {}).get("resourceSubscriptions") or []
    stream = Stream(msg["id"], asked, send)
    note("listen", asked)
    with LOCK:
        STREAMS[msg["id"]] = stream
    if ARGS.ack_delay:
        for uri in stream.uris:
            stream.tell("resources/updated", uri=uri)
        time.sleep(ARGS.ack_delay)
    granted = {"toolsListChanged": True, **({"resourceSubscriptions": stream.uris} if stream.uris else {})}
    stream.tell("subscriptions/acknowledged", notifications=granted)
    return stream


def withdrawn(request):
    with LOCK:
        stream = STREAMS.pop(request, None)
    if stream is not None:
        note("withdrawn", stream.uris)


def door(name, args, push=None):
    with LOCK:
        if name == "touch":
            if push is not None and args["uri"] in WATCHED:
                push({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": args["uri"]}})
            for stream in STREAMS.values():
                if args["uri"] in stream.uris:
                    stream.tell("resources/updated", uri=args["uri"])
        else:
            ended = list(STREAMS.values())
            STREAMS.clear()
            for stream in ended:
                stream.end() if name == "end_streams" else stream.send(None)


def result_of(msg, push):
    method, params = msg["method"], msg.get("params") or {}
    modern = VERSION in (params.get("_meta") or {})
    if method == "server/discover":
        return {"supportedVersions": [MODERN], "capabilities": CAPS}
    if method == "initialize" and push is not None:
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": CAPS,
            "serverInfo": {"name": "resource-streams", "version": "1"},
        }
    if method == "ping" and not modern:
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri} for uri in ARGS.list]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "tools/call":
        door(params["name"], params.get("arguments") or {}, push)
        return {"content": []}
    if method in ("resources/subscribe", "resources/unsubscribe") and not modern:
        uri = params["uri"]
        note(method[10:], [uri])
        if method == "resources/unsubscribe":
            WATCHED.remove(uri)
        elif uri in ARGS.unknown:
            raise Refused(-32002, "Resource not found")
        else:
            WATCHED.append(uri)
            if ARGS.ack_delay:
                push({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
                time.sleep(ARGS.ack_delay)
        return {}
    raise Refused(-32601, "Method not found: " + method)


def answer(msg, push=None):
    params = msg.get("params") or {}
    try:
        result = result_of(msg, push)
    except Refused as refused:
        return {"jsonrpc": "2.0", "id": msg["id"], "error": {"code": refused.code, "message": str(refused)}}
    if VERSION in (params.get("_meta") or {}):
        result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
    return {"jsonrpc": "2.0", "id": msg["id"], "result": result}


def stdio():
    def send(msg):
        if msg is not None:
            with LOCK:
                os.write(1, json.dumps(msg).encode() + b"\n")

    for line in sys.stdin.buffer:
        msg = json.loads(line)
        if msg.get("method") == "notifications/cancelled":
            withdrawn(msg["params"]["requestId"])
        elif "id" in msg and msg.get("method") == "subscriptions/listen":
            threading.Thread(target=listen, args=(msg, send), daemon=True).start()
        elif "id" in msg and "method" in msg:
            send(answer(msg, send))


if ARGS.http is None:
    stdio()
    sys.exit()

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: E402 - most of a start, and for HTTP alone


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, value=None):
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(405)

    def do_POST(self):
        msg = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path.startswith("/__ctl/"):
            door(self.path[7:], msg)
            self.reply(200, {})
        elif msg.get("method") == "initialize":
            self.reply(
                400,
                {
                    "jsonrpc": "2.0",
                    "id": msg["id"],
                    "error": {"code": -32022, "message": "unsupported", "data": {"supported": [MODERN]}},
                },
            )
        elif msg.get("method") == "subscriptions/listen":
            self.stream(msg)
        elif "id" in msg:
            self.reply(200, answer(msg))
        else:
            self.reply(202)

    def stream(self, msg):
        waiting = queue.Queue()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        listen(msg, waiting.put)
        try:
            while True:
                try:
                    out = waiting.get(timeout=0.2)
                except queue.Empty:
                    self.wfile.write(b": still here\n\n")
                    self.wfile.flush()
                    continue
                if out is None:
                    return
                self.wfile.write(b"event: message\ndata: " + json.dumps(out).encode() + b"\n\n")
                self.wfile.flush()
                if out.get("id") == msg["id"]:
                    return
        except OSError:
            withdrawn(msg["id"])


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, address):
        """A client that goes away is no news."""


server = Server(("127.0.0.1", ARGS.http), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
server.serve_forever(poll_interval=0.1)
