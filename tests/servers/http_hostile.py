#!/usr/bin/env python3
"""Answers every tools/call with bytes that are meant to hurt the one who reads them.

Usage: http_hostile.py MODE [--port N]   Prints its URL as the first line of stdout. `initialize` and `ping` are answered as
they should be, so that what is tested is one bad answer within a good session.
  gzip-bomb     1 MB of gzip that inflates to 1 GiB              deflate-bomb  the same as an event stream, deflated
  sse-line      an event stream with one line that never ends    sse-comments  an event stream of nothing but comments
  brackets      16 MiB of []                                     depth         an array nested 100,000 deep
  head          a head without end                               headers       10,000 header lines
  short         less body than Content-Length says               long          more body than Content-Length says
  cut           chunked, and cut in the middle                   chunk-ext     a chunk extension without end
  nan, surrogate, latin1   a result that is no JSON              big           a body of 64 MiB
  both          Content-Length and Transfer-Encoding             garbage       no HTTP at all
  flood         200,000 notifications, then the answer         br            a coding that was not asked for
"""

import argparse
import contextlib
import json
import socket
import threading
import zlib

MIB = 1024 * 1024
JSON = b"Content-Type: application/json\r\n"
SSE = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


def read_request(conn, rest):
    """One request's body, and the bytes after it; None at the end of the connection."""
    while b"\r\n\r\n" not in rest:
        data = conn.recv(65536)
        if not data:
            return None, b"", b""
        rest += data
    head, _, rest = rest.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(rest) < length:
        rest += conn.recv(65536)
    return head, rest[:length], rest[length:]


def plain(conn, body, head=JSON):
    conn.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def bomb(size, head):
    """Blocks of a packed MiB of blanks, one after another; nobody ever reads as far as the checksum."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * (size // MIB) + b"\x03\x00" + bytes(8)


def stream(conn, piece, head=SSE):
    conn.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
    while True:
        conn.sendall(chunk(piece))


def attack(conn, mode, ident):
    answer = {"jsonrpc": "2.0", "id": ident, "result": {"content": [{"type": "text", "text": "ok"}]}}
    body = json.dumps(answer).encode()
    if mode == "gzip-bomb":
        plain(conn, GZIP, JSON + b"Content-Encoding: gzip\r\n")
    elif mode == "deflate-bomb":
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + SSE + b"Content-Encoding: deflate\r\n\r\n" + chunk(DEFLATED) + chunk(b""))
    elif mode == "sse-line":
        stream(conn, b"data: x" + b"x" * 65536)
    elif mode == "sse-comments":
        stream(conn, b": keep-alive\n\n" * 4096)
    elif mode == "brackets":
        plain(conn, b"[" + b"[]," * (16 * MIB // 3) + b"[]]")
    elif mode == "depth":
        plain(conn, b"[" * 100_000 + b"]" * 100_000)
    elif mode == "head":
        conn.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while True:
            conn.sendall(b"x" * 65536)
    elif mode == "headers":
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\n")
    elif mode == "short":
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: 100000\r\n\r\n" + body)
    elif mode == "long":
        conn.sendall(
            b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"HTTP/1.1 200 OK\r\n\r\n"
        )
        return True
    elif mode == "cut":
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + body)
    elif mode == "chunk-ext":
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n1;")
        while True:
            conn.sendall(b"x" * 65536)
    elif mode == "nan":
        plain(conn, body.replace(b'"ok"', b"NaN"))
    elif mode == "surrogate":
        plain(conn, body.replace(b'"ok"', b'"\\ud800"'))
    elif mode == "latin1":
        plain(conn, body.replace(b'"ok"', b'"\xe9"'))
    elif mode == "big":
        plain(conn, b" " * (64 * MIB) + body)
    elif mode == "both":
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + JSON + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    elif mode == "garbage":
        conn.sendall(b"\x00\x01\x02 what is this\r\n\r\n")
    elif mode == "br":
        plain(conn, b"\x0b\x02\x80", JSON + b"Content-Encoding: br\r\n")
    elif mode == "flood":
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        block = chunk(b"data: " + json.dumps(note).encode() + b"\n\n") * 1000
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + SSE + b"\r\n")
        for _ in range(200):
            conn.sendall(block)
        conn.sendall(chunk(b"data: " + body + b"\n\n") + chunk(b""))
        return True
    return False


def serve(conn):
    rest = b""
    with conn:
        while True:
            head, body, rest = read_request(conn, rest)
            if head is None:
                return
            if not head.startswith(b"POST"):
                conn.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
                continue
            message = json.loads(body)
            method = message.get("method")
            if method == "tools/call":
                if not attack(conn, ARGS.mode, message["id"]):
                    return
            elif "id" not in message:
                conn.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            else:
                result = {}
                if method == "initialize":
                    info = {"name": "hostile", "version": "1"}
                    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
                plain(conn, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


def quietly(conn):
    with contextlib.suppress(OSError):  # the one who reads has had enough, as it should
        serve(conn)


OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("mode")
OPTIONS.add_argument("--port", type=int, default=0)
ARGS = OPTIONS.parse_args()
GZIP = bomb(1024 * MIB, b"\x1f\x8b\x08" + bytes(6) + b"\xff") if ARGS.mode == "gzip-bomb" else b""
DEFLATED = bomb(1024 * MIB, b"\x78\xda") if ARGS.mode == "deflate-bomb" else b""
listener = socket.create_server(("127.0.0.1", ARGS.port), backlog=64)
print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
while True:
    accepted, _ = listener.accept()
    threading.Thread(target=quietly, args=(accepted,), daemon=True).start()
