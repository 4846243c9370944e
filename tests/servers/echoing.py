#!/usr/bin/env python3
"""An MCP server and an authorization server in one, which repeat whatever they are sent; standard library only.

Usage: echoing.py SECRET   Prints its URL. What it gives away itself is SECRET with a word for `{}`: tokens, the id of its
session, a cookie, the ids of its events. `GET /received` tells all that has come, `/mcp` is the server, `/token` gives a token,
`/token/odd` something that is none, `/token/refused` none.
"""

import base64
import itertools
import json
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def given(word):
    """A secret of its own."""
    return sys.argv[1].replace("{}", word)


received = []
sessions = itertools.count(1)
lock = threading.Lock()


def decoded(authorization):
    """What stands in `Basic`, in plain text."""
    kind, _, value = authorization.partition(" ")
    return base64.b64decode(value).decode("utf-8", "replace") if kind == "Basic" else value


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode("utf-8", "replace")
        with lock:
            received.append({"path": self.path, "headers": dict(self.headers.items()), "body": body})
        if self.path.startswith("/token"):
            self.token(body)
        else:
            self.message(json.loads(body))

    def told(self):
        """All of the request's head that a server may repeat."""
        return " ".join([self.path, *self.headers.values(), decoded(self.headers.get("authorization", ""))])

    def token(self, body):
        plain = urllib.parse.unquote_plus(body)
        if self.path == "/token":
            token = {"access_token": given("access"), "refresh_token": given("refresh"), "token_type": "Bearer"}
            self.reply(200, {**token, "expires_in": 3600})
        elif self.path == "/token/odd":
            self.reply(200, {"refresh_token": given("refresh"), "id_token": self.told(), "said": plain})
        else:
            self.reply(401, {"error": self.told(), "error_description": f"{plain} {body} {self.told()}"})

    def message(self, message):
        method, ident = message.get("method"), message.get("id")
        if ident is None:
            self.reply(202, None)
        elif method == "initialize":
            own = {"Mcp-Session-Id": given(f"session-{next(sessions)}"), "Set-Cookie": f"sid={given('cookie')}; Path=/"}
            capabilities = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
            info = {"name": self.told(), "version": self.told()}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            self.reply(200, {"jsonrpc": "2.0", "id": ident, "result": {**result, "instructions": self.told()}}, own)
        elif method == "tools/list":
            schema = {"type": "object", "description": self.told()}
            tools = [{"name": name, "description": self.told(), "inputSchema": schema} for name in ("say", "tell", "lose")]
            self.reply(200, {"jsonrpc": "2.0", "id": ident, "result": {"tools": tools}})
        elif method == "resources/list":
            resource = {"uri": f"memo://x/?{self.told()}", "name": self.told()}
            self.reply(200, {"jsonrpc": "2.0", "id": ident, "result": {"resources": [resource]}})
        elif method == "tools/call" and message["params"]["name"] == "tell":
            self.reply(200, {"jsonrpc": "2.0", "id": ident, "result": {"content": [{"type": "text", "text": self.told()}]}})
        elif method == "tools/call" and message["params"]["name"] == "lose":
            self.reply(404, f"no session {self.told()}")
        else:
            error = {"code": -32000, "message": f"no {self.told()}", "data": {self.told(): self.told()}}
            self.reply(200, {"jsonrpc": "2.0", "id": ident, "error": error})

    def do_GET(self):
        if self.path == "/received":
            with lock:
                self.reply(200, received)
            return
        with lock:
            received.append({"path": self.path, "headers": dict(self.headers.items()), "body": ""})
        if "last-event-id" in self.headers:
            self.reply(500, self.told())
            return
        params = {"level": "error", "data": self.told()}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        body = f"retry: 10\nid: {given('event')}\ndata: {note}\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self):
        self.reply(200, None)

    def reply(self, status, body, headers=None):
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status, self.told()[:500] if status >= 400 else None)
        self.send_header("Content-Type", f"text/{given('cookie')}" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
sys.stdout.flush()
server.serve_forever()
