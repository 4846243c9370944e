#!/usr/bin/env python3
"""A server that attacks on request; standard library only, stdio or Streamable HTTP.

Usage: hostile.py [--http] [--chatter]   With --http its URL is the first line of stdout; with --chatter it never stops to
write on stderr, several times as much as is passed on. It answers as it should until its tool `attack`
is called with {"name", "way"}: the next bytes are then the weapon of that name, as the answer to this call (`answer`), as a
message that nobody asked for, followed by a good answer (`unasked`), or as the answer to the next tools/list (`list`), for
which it says that its list has changed. The weapon `peace` is none. Its tool `wait` answers after {"seconds"}. Weapons:
  brackets      16 MiB of []                     depth        an array nested 100,000 deep
  surrogate     half a character                 nan          a number that JSON does not have
  huge-int      a number of 5,000 digits         big          a text of 64 MiB
  gzip          1 MB that inflates to 1 GiB      sse-line     a line that never ends         (HTTP only)
  notifications {"count"} thousands of them      requests     a hundred thousand of its own
  pages         10,000 tools of 64 KiB in pages  one          the same in one message
  schemas       the same, with tools made of nothing but tiny schemas
"""

import itertools
import json
import queue
import socket
import sys
import threading
import time
import zlib

MIB = 1024 * 1024
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("attack", "wait")]
MANY = 10_000
PAGE = {"pages": 100, "schemas": 40}
"""Entries on one page: as many as one message may hold."""


def result_with(text):
    return lambda ident: b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (ident, text)


def blocks_of(block, times):
    def pieces(ident):
        for _ in range(times):
            yield block

    return pieces


def note(method, ident=b""):
    return b'{"jsonrpc":"2.0",%s"method":"%s","params":{"level":"info","data":"x"}}' % (ident, method)


def tool(number, schemas):
    filling = {f"p{n:04}": {} for n in range(64 * 1024 // 11)} if schemas else {}
    text = "" if schemas else "x" * 64 * 1024
    return {"name": f"t{number}", "description": text, "inputSchema": {"type": "object", "properties": filling}}


MESSAGES = {
    "brackets": result_with(b"[" + b"[]," * (16 * MIB // 3) + b"[]]"),
    "depth": result_with(b"[" * 100_000 + b"]" * 100_000),
    "surrogate": result_with(b'{"a":"\\ud800"}'),
    "nan": result_with(b'{"a":NaN}'),
    "huge-int": result_with(b'{"a":' + b"9" * 5000 + b"}"),
}


def bomb(size):
    """Blocks of a packed MiB of blanks, one after another; nobody ever reads as far as the checksum."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + block * (size // MIB) + b"\x03\x00" + bytes(8)


def one_message(ident, count):
    """`count` tools of 64 KiB as one answer, in pieces."""
    yield b'{"jsonrpc":"2.0","id":%s,"result":{"tools":[' % ident
    for number in range(count):
        yield (b"," if number else b"") + json.dumps(tool(number, False)).encode()
    yield b"]}}"


class Server:
    """What is the same on both transports; `weapon` is what the next tools/list is answered with."""

    thousands = 1000

    def __init__(self):
        self.weapon = "peace"

    def answer(self, message):
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            info = {"name": "hostile", "version": "1"}
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                "serverInfo": info,
            }
        if method == "tools/list":
            return self.page(params)
        if method == "tools/call":
            if params["name"] == "wait":
                time.sleep(params["arguments"]["seconds"])
            return {"content": [{"type": "text", "text": "still here"}]}
        return {} if method == "ping" else None

    def page(self, params):
        if self.weapon not in ("pages", "schemas"):
            return {"tools": TOOLS}
        start = int(params.get("cursor", 0))
        end = start + PAGE[self.weapon]
        tools = [tool(n, self.weapon == "schemas") for n in range(start, end)]
        following = {"nextCursor": str(end)} if end < MANY else {}
        return {"tools": [*TOOLS, *tools] if start == 0 else tools, **following}


def encoded(message, result):
    body = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode()


class Stdio(Server):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def write(self, *pieces):
        with self.lock:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()

    def serve(self):
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "id" in message and "method" in message:
                threading.Thread(target=self.take, args=(message,), daemon=True).start()

    def take(self, message):
        arguments = (message.get("params") or {}).get("arguments") or {}
        ident = b"%d" % message["id"]
        if message["method"] == "tools/list" and self.weapon not in ("peace", "pages", "schemas"):
            weapon, self.weapon = self.weapon, "peace"
            self.fire(weapon, ident)
            return
        self.thousands = arguments.get("count", 1000)
        if "way" not in arguments:
            self.write(encoded(message, self.answer(message)), b"\n")
            return
        if arguments["way"] == "answer":
            self.fire(arguments["name"], ident)
            return
        if arguments["way"] == "unasked":
            self.fire(arguments["name"], b"null")
        else:
            self.weapon = arguments["name"]
            self.write(note(b"notifications/tools/list_changed"), b"\n")
        self.write(encoded(message, self.answer(message)), b"\n")

    def fire(self, weapon, ident):
        good = result_with(b'{"content":[]}')(ident) + b"\n" if ident != b"null" else b""
        if weapon in MESSAGES:
            self.write(MESSAGES[weapon](ident), b"\n")
        elif weapon == "big":
            self.write(b'{"jsonrpc":"2.0","id":%s,"result":{"a":"' % ident, *blocks_of(b"x" * MIB, 64)(ident), b'"}}\n')
        elif weapon == "one":
            self.write(*one_message(ident, 1000), b"\n")
        elif weapon == "notifications":
            block = (note(b"notifications/message") + b"\n") * 1000
            for _ in range(self.thousands):
                self.write(block)
            self.write(good)
        elif weapon == "requests":
            block = (note(b"ping", b'"id":"q",') + b"\n") * 1000
            for _ in range(100):
                self.write(block)
            self.write(good)


class Http(Server):
    def __init__(self):
        super().__init__()
        self.pushes = queue.Queue()
        self.gzip = bomb(1024 * MIB)

    def serve(self):
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.quietly, args=(connection,), daemon=True).start()

    def quietly(self, connection):
        try:
            with connection:
                self.connected(connection)
        except OSError:
            pass  # the one who reads has had enough, as it should

    def connected(self, connection):
        file = connection.makefile("rb")
        while request := file.readline():
            length = 0
            while (line := file.readline()).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            body = file.read(length)
            if request.startswith(b"GET"):
                self.push(connection)
                return
            message = json.loads(body) if body else {}
            if "id" not in message or "method" not in message:
                connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            elif not self.take(connection, message):
                return

    def push(self, connection):
        self.stream(connection)
        pushes = self.pushes = queue.Queue()
        while True:
            weapon = pushes.get()
            if weapon == "list":
                self.event(connection, note(b"notifications/tools/list_changed"))
            else:
                self.fire_events(connection, weapon, b"null")

    def take(self, connection, message):
        arguments = (message.get("params") or {}).get("arguments") or {}
        ident = b"%d" % message["id"]
        if message["method"] == "tools/list" and self.weapon not in ("peace", "pages", "schemas"):
            weapon, self.weapon = self.weapon, "peace"
            return self.fire(connection, weapon, ident)
        self.thousands = arguments.get("count", 1000)
        if arguments.get("way") == "answer":
            return self.fire(connection, arguments["name"], ident)
        if arguments.get("way") == "unasked":
            self.pushes.put(arguments["name"])
        elif arguments.get("way") == "list":
            self.weapon = arguments["name"]
            self.pushes.put("list")
        self.plain(connection, encoded(message, self.answer(message)))
        return True

    def plain(self, connection, body, more=b""):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n%sContent-Length: %d\r\n\r\n"
        connection.sendall(head % (more, len(body)) + body)

    def stream(self, connection, kind=b"text/event-stream"):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % kind)

    def chunk(self, connection, data):
        connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, connection, message):
        self.chunk(connection, b"data: " + message + b"\n\n")

    def fire(self, connection, weapon, ident):
        """Answer a POST with the weapon; whether the connection is still of use."""
        if weapon in MESSAGES:
            self.plain(connection, MESSAGES[weapon](ident))
            return True
        if weapon == "gzip":
            self.plain(connection, self.gzip, b"Content-Encoding: gzip\r\n")
            return True
        if weapon in ("one", "big"):
            self.stream(connection, b"application/json")
            pieces = one_message(ident, MANY) if weapon == "one" else blocks_of(b"x" * MIB, 64)(ident)
            for piece in pieces:
                self.chunk(connection, piece)
            return False
        self.stream(connection)
        self.fire_events(connection, weapon, ident)
        self.event(connection, result_with(b'{"content":[]}')(ident))
        self.chunk(connection, b"")
        return True

    def fire_events(self, connection, weapon, ident):
        if weapon in MESSAGES:
            self.event(connection, MESSAGES[weapon](ident))
        elif weapon == "sse-line":
            while True:
                self.chunk(connection, b"x" * 65536)
        elif weapon in ("notifications", "requests"):
            text = note(b"notifications/message") if weapon == "notifications" else note(b"ping", b'"id":"q",')
            for _ in range(self.thousands if weapon == "notifications" else 100):
                self.chunk(connection, (b"data: " + text + b"\n\n") * 1000)


def chatter():
    for number in itertools.count():
        sys.stderr.write("".join(f"{number}.{line}{' chatter' * 50}\n" for line in range(50)))
        time.sleep(0.1)


if "--chatter" in sys.argv:
    threading.Thread(target=chatter, daemon=True).start()
(Http if "--http" in sys.argv else Stdio)().serve()
