#!/usr/bin/env python3
"""A receiver of webhooks that fails in every way there is, and comes back.

Usage: webhook_receiver.py [--port N] [--tls CERT KEY] [--log FILE]
The first line of stdout is its URL. Each POST takes the next of the `turns`, and is 200 when none is left: a status, or one of
hang (until POST /__ctl/open), close (no answer), stall (200, and the body never ends), cut (200, and the body ends early),
later-seconds and later-date (429 with either Retry-After), later-far (503, put off for days), moved (307 to another origin),
quote (500 with what it was sent), huge (200 with a body of 64 MiB), or an object, which is the answer as JSON. POST
/__ctl/set {name: value} sets what is in STATE; GET /__state shows it, with what has come. With --tls the same is served at
`tls_url`, too. What is answered 200 is written to the file of --log before that, an id a line.
"""

import argparse
import json
import ssl
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("--port", type=int, default=0)
OPTIONS.add_argument("--tls", nargs=2)
OPTIONS.add_argument("--log")
ARGS = OPTIONS.parse_args()

LOCK = threading.RLock()
GATE = threading.Event()
STATE = {
    "turns": [],
    "always": None,  # what is done when no turn is left, in place of 200
    "seen": [],  # each POST: path, headers with names in lower case, body as text, connection
    "connections": 0,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def setup(self):
        super().setup()
        with LOCK:
            self.number = STATE["connections"]
            STATE["connections"] += 1

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def do_GET(self):
        with LOCK:
            self.reply(200, json.dumps(STATE).encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/__ctl/"):
            self.control(self.path.rpartition("/")[2], json.loads(body or b"{}"))
            return
        with LOCK:
            headers = {name.lower(): value for name, value in self.headers.items()}
            STATE["seen"].append({"path": self.path, "headers": headers, "body": body.decode(), "connection": self.number})
            turn = STATE["turns"].pop(0) if STATE["turns"] else STATE["always"]
        self.take(200 if turn is None else turn, headers, body)

    def control(self, name, told):
        with LOCK:
            if name == "set":
                STATE.update(told)
            elif name == "open":
                GATE.set()
        self.reply(200)

    def take(self, turn, headers, body):
        if isinstance(turn, dict):
            self.reply(200, json.dumps(turn).encode(), content_type="application/json")
        elif isinstance(turn, int):
            if turn == 200 and ARGS.log:
                with LOCK, open(ARGS.log, "a") as log:
                    log.write(headers["webhook-id"] + "\n")
            self.reply(turn, b"" if turn == 204 else b"as told")
        elif turn == "hang":
            GATE.wait()
            self.close_connection = True
        elif turn == "close":
            self.close_connection = True
        elif turn == "stall":
            self.send_response(200)
            self.send_header("content-length", "10")
            self.end_headers()
            self.wfile.write(b"{")
            self.wfile.flush()
            GATE.wait()
            self.close_connection = True
        elif turn == "cut":
            self.send_response(200)
            self.send_header("content-length", "10")
            self.end_headers()
            self.wfile.write(b"{")
            self.close_connection = True
        elif turn == "later-seconds":
            self.reply(429, b"slow down", retry_after="7")
        elif turn == "later-date":
            self.reply(429, b"slow down", retry_after=formatdate(time.time() + 90, usegmt=True))
        elif turn == "later-far":
            self.reply(503, b"", retry_after="999999")
        elif turn == "moved":
            self.reply(307, b"", location="https://elsewhere.example/secret-path?key=1")
        elif turn == "quote":
            self.reply(500, (self.path + " " + headers.get("authorization", "")).encode() + b" " + body)
        elif turn == "huge":
            self.send_response(200)
            self.send_header("content-length", str(64 * 1024 * 1024))
            self.end_headers()
            try:
                for _ in range(64):
                    self.wfile.write(b"x" * 1024 * 1024)
            except OSError:
                pass
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # whoever called has gone


def main():
    plain = Server(("127.0.0.1", ARGS.port), Handler)
    if ARGS.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*ARGS.tls)
        secure = Server(("127.0.0.1", 0), Handler)
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        STATE["tls_url"] = f"https://127.0.0.1:{secure.server_port}/hook"
        threading.Thread(target=secure.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{plain.server_port}/hook", flush=True)
    plain.serve_forever()


main()
