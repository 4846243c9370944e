#!/usr/bin/env python3
"""A Streamable HTTP server behind credentials, with the authorisation server that gives them, and its metadata.

Usage: oauth.py [--canary TEXT] [--rsa N E]
The first line of stdout is its URL. /mcp takes an access token of /token that was not revoked and has not run out, or what is
in `accepted`, as bearer token, in `x-api-key` or in `?key=`. /token takes the client `machine` with the secret in `secret`,
by basic or post, or an assertion (RS256) signed by the key whose numbers are given with --rsa. POST /__ctl/set {name: value}
sets what is in STATE; POST /__ctl/revoke makes every token worthless; GET /__state shows what has happened.
Tools: echo {text}; meet {people}, which answers once so many calls are within it at the same time.
"""

import argparse
import base64
import hashlib
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote_plus, urlsplit

OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("--canary", default="token")
OPTIONS.add_argument("--rsa", nargs=2, type=int)
ARGS = OPTIONS.parse_args()

LOCK = threading.RLock()
STATE = {
    "mode": "ok",  # of /token: ok, down, slow, garbage, refuse, busy, forever, expired, mac, huge, away
    "lifetime": 3600,  # of a token, in seconds
    "secret": "machine-secret-1",
    "accepted": [],  # fixed credentials that are taken
    "refuse_all": False,  # 401 for whatever is sent
    "forbid": False,  # 403 insufficient_scope for tools/call
    "metadata": "ok",  # ok, none, challenge (only a refusal says where it is), other (of another resource), slash
    "methods": ["client_secret_basic", "client_secret_post"],
    "quote": False,  # a refusal repeats what it was sent
    "token_requests": 0,
    "initializes": 0,
    "unauthorized": 0,
    "calls": 0,
    "forms": [],
    "auth": [],
    "queries": [],
    "metadata_reads": [],
    "deletes": 0,
    "seen": [],  # each value of Authorization once
    "teams": [],  # each value of x-team
}
TOKENS = {}  # each with the time at which it runs out
GATE = threading.Event()  # opened by /__ctl/open: until then a slow endpoint says nothing
WITHIN = threading.Condition()
MET = {"now": 0, "most": 0}
PREFIX = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "meet")]


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def claims_of(assertion):
    """The claims of an assertion that the given RSA key has signed; None of any other."""
    head, body, signature = assertion.split(".")
    modulus, exponent = ARGS.rsa
    size = (modulus.bit_length() + 7) // 8
    found = pow(int.from_bytes(unpadded(signature), "big"), exponent, modulus).to_bytes(size, "big")
    digest = PREFIX + hashlib.sha256(f"{head}.{body}".encode()).digest()
    wanted = b"\x00\x01" + b"\xff" * (size - 3 - len(digest)) + b"\x00" + digest
    return json.loads(unpadded(body)) if found == wanted and json.loads(unpadded(head))["alg"] == "RS256" else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece: of two the second waits 40 ms for the acknowledgement of the first

    def log_message(self, *args):
        pass

    def reply(self, status, data=None, **headers):
        body = data if isinstance(data, bytes) else json.dumps(data).encode() if data is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", headers.pop("kind", "application/json"))
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    @property
    def origin(self):
        return "http://" + self.headers["Host"]

    def do_GET(self):
        path = urlsplit(self.path).path
        if path == "/__state":
            with LOCK:
                return self.reply(200, {**STATE, "most": MET["most"]})
        if "/.well-known/" in path or path == "/where/metadata":
            return self.metadata(path)
        return self.reply(405)

    def do_DELETE(self):
        with LOCK:
            STATE["deletes"] += 1
        self.is_allowed()
        self.reply(200)

    def metadata(self, path):
        with LOCK:
            STATE["metadata_reads"].append(path)
        mode = STATE["metadata"]
        of_resource = "oauth-protected-resource" in path or path == "/where/metadata"
        if mode == "none" or (mode == "challenge" and of_resource and path != "/where/metadata"):
            return self.reply(404)
        if of_resource:
            resource = {"other": "http://127.0.0.1:1/mcp", "slash": self.origin + "/mcp/"}.get(mode, self.origin + "/mcp")
            return self.reply(200, {"resource": resource, "authorization_servers": [self.origin + "/tenant"]})
        if path != "/.well-known/oauth-authorization-server/tenant":
            return self.reply(404)
        told = {"issuer": self.origin + "/tenant", "token_endpoint": self.origin + "/token"}
        return self.reply(200, {**told, "token_endpoint_auth_methods_supported": STATE["methods"]})

    def do_POST(self):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if path.startswith("/__ctl/"):
            return self.control(path[7:], json.loads(data or b"{}"))
        if path == "/token":
            return self.token({name: values[0] for name, values in parse_qs(data.decode()).items()})
        return self.mcp(json.loads(data))

    def control(self, name, args):
        with LOCK:
            if name == "set":
                STATE.update(args)
            if name == "revoke":
                TOKENS.clear()
            if name == "open":
                GATE.set()
        self.reply(200, {})

    # The authorisation server

    def token(self, form):
        with LOCK:
            STATE["token_requests"] += 1
            STATE["forms"].append(form)
            STATE["auth"].append(self.headers.get("Authorization", ""))
            mode = STATE["mode"]
        if mode == "away":
            self.close_connection = True
            return None
        if mode == "down":
            return self.reply(503, b"<html>out of order</html>", kind="text/html")
        if mode == "busy":
            return self.reply(429, {}, Retry_After="7")
        if mode == "garbage":
            return self.reply(200, b"<html>log in</html>", kind="text/html")
        if mode == "huge":
            return self.reply(200, b"x" * 1_000_000)
        if mode == "elsewhere":
            return self.reply(307, None, Location="http://127.0.0.2:9/token")
        if mode == "slow":
            GATE.wait(30)
        if mode == "refuse" or not self.is_client(form):
            told = "unknown client"
            if STATE["quote"]:
                told = f"refused {json.dumps(form)} {self.headers.get('Authorization')}"
            return self.reply(401, {"error": "invalid_client", "error_description": told})
        with LOCK:
            token = f"{ARGS.canary}-{uuid.uuid4().hex}"
            TOKENS[token] = time.time() + STATE["lifetime"]
        told = {"access_token": token, "token_type": "MAC" if mode == "mac" else "bearer"}
        if mode != "forever":
            told["expires_in"] = 0 if mode == "expired" else STATE["lifetime"]
        return self.reply(200, told)

    def is_client(self, form):
        if "client_assertion" in form:
            claims = claims_of(form["client_assertion"])
            return claims is not None and claims["sub"] == claims["iss"] == "machine" and claims["exp"] > time.time()
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            name, secret = (unquote_plus(one) for one in base64.b64decode(value).decode().split(":"))
        else:
            name, secret = form.get("client_id"), form.get("client_secret")
        return (name, secret) == ("machine", STATE["secret"])

    # The server itself

    def is_allowed(self):
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        query = parse_qs(urlsplit(self.path).query)
        given = [value if kind == "Bearer" else "", self.headers.get("x-api-key", ""), *query.get("key", [])]
        with LOCK:
            STATE["queries"].append(sorted(query))
            STATE["teams"] += [self.headers["x-team"]] if "x-team" in self.headers else []
            if (sent := self.headers.get("Authorization", "")) not in STATE["seen"]:
                STATE["seen"].append(sent)
            if STATE["refuse_all"]:
                return False
            return any(one in STATE["accepted"] or TOKENS.get(one, 0) > time.time() for one in given)

    def mcp(self, message):
        if not self.is_allowed():
            with LOCK:
                STATE["unauthorized"] += 1
            challenge = 'Bearer error="invalid_token", error_description="it has run out"'
            if STATE["metadata"] == "challenge":
                challenge += f', resource_metadata="{self.origin}/where/metadata", scope="asked for"'
            told = {"error": "invalid_token"}
            if STATE["quote"]:
                told["sent"] = dict(self.headers)
            return self.reply(401, told, WWW_Authenticate=challenge)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            return self.reply(202)
        if method == "initialize":
            with LOCK:
                STATE["initializes"] += 1
            info = {"name": "oauth", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            return self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, Mcp_Session_Id=uuid.uuid4().hex)
        if method == "ping":
            return self.answer(message, {})
        if method == "tools/list":
            return self.answer(message, {"tools": TOOLS})
        if method == "tools/call":
            if STATE["forbid"]:
                return self.reply(403, None, WWW_Authenticate='Bearer error="insufficient_scope", scope="tools:run"')
            return self.call(message, params["name"], params.get("arguments") or {})
        error = {"code": -32601, "message": "Method not found"}
        return self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    def call(self, message, name, arguments):
        with LOCK:
            STATE["calls"] += 1
        text = str(arguments.get("text", ""))
        if name == "meet":
            with WITHIN:
                MET["now"] += 1
                MET["most"] = max(MET["most"], MET["now"])
                WITHIN.notify_all()
                met = WITHIN.wait_for(lambda: MET["most"] >= arguments["people"], timeout=10)
                MET["now"] -= 1
            text = "met" if met else "alone"
        return self.answer(message, {"content": [{"type": "text", "text": text}]})

    def answer(self, message, result):
        self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A client that goes away is no news."""


SERVER = Server(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{SERVER.server_address[1]}/mcp", flush=True)
SERVER.serve_forever(poll_interval=0.1)
