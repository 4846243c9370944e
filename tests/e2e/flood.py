"""A program that floods a gateway: CONNECTIONS connections, each with DEPTH requests before it reads an answer, for SECONDS.

Usage: flood.py HOST:PORT TOKEN SESSION KIND CONNECTIONS DEPTH SECONDS [COUNT]   Prints how many answers came. KIND is one of
BODIES; `stranger` has no token, `initialize` no session. With COUNT it ends after so many requests.
"""

import itertools
import socket
import sys
import threading
import time

BODIES = {
    "ping": b'{"jsonrpc":"2.0","id":%d,"method":"ping"}',
    "notification": b'{"jsonrpc":"2.0","method":"notifications/x"}',
    "call": b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"quiet__echo","arguments":{"text":"x"}}}',
    "initialize": b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}',
    "garbage": b"{",
    "stranger": b"{}",
}
HEAD = (
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\ncontent-length: %d\r\n"
)

address, token, session, kind, connections, depth, seconds = sys.argv[1:8]
count = int(sys.argv[8]) if len(sys.argv) > 8 else sys.maxsize
host, _, port = address.rpartition(":")
numbers = itertools.count(100)
answers = itertools.count()


def request(number):
    body = BODIES[kind] % number if b"%d" in BODIES[kind] else BODIES[kind]
    head = HEAD % len(body)
    if kind != "stranger":
        head += b"authorization: Bearer %s\r\n" % token.encode()
    if kind not in ("stranger", "initialize"):
        head += b"mcp-session-id: %s\r\n" % session.encode()
    return head + b"\r\n" + body


def flood():
    end = time.monotonic() + float(seconds)
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(5)
    while time.monotonic() < end:
        sent = [request(number) for _, number in zip(range(int(depth)), numbers, strict=False) if number < 100 + count]
        if not sent:
            break
        try:
            connection.sendall(b"".join(sent))
            got, rest = 0, b""
            while got < len(sent):
                data = connection.recv(65536)
                if not data:
                    raise ConnectionError
                found = (rest + data).count(b"HTTP/1.1 ")
                rest = (rest + data)[-8:]
                got += found
                for _ in range(found):
                    next(answers)
        except OSError:
            connection.close()
            connection = socket.create_connection((host, int(port)))
            connection.settimeout(5)
    connection.close()


threads = [threading.Thread(target=flood) for _ in range(int(connections))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(next(answers))
