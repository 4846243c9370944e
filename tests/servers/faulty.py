#!/usr/bin/env python3
"""A server that is made to fail by order, and keeps a log by which those around it are judged; standard library only.

    faulty.py --name N --era legacy|modern --log FILE --control SOCKET stdio
    faulty.py --name N --era legacy|modern --log FILE --control SOCKET http HOST PORT

Tool `do` {id, work, stream}: its side effect is the line `executed` in the log, written before `work` seconds pass and the
answer is sent. Resource memo://N changes by itself; each change is the line `change`, and is told to whoever is subscribed at
that moment (`told`). Lines are JSON, appended in one write each; `at` is the monotonic clock, which all processes share.

Orders come on the control socket, one JSON object a line, each answered by a line once it holds:
  {"do": "ping"}                                   nothing
  {"do": "touch"}                                  the resource changes now
  {"do": "slow", "by": S, "lasts": S}              every answer waits that long, for so long
  {"do": "close_stdout", "stays": bool}            closes it; `stays`: does not leave when its stdin ends either
  {"do": "refuse", "status": N, "count": N, "retry_after": TEXT}   answers so many requests with this status
  {"do": "cut", "when": before|after|push, "reset": bool}          breaks the connection of the next call, before or after it is
                                                   executed, or now those of all streams on which changes are told
  {"do": "reset"}                                  resets every connection now
  {"do": "wipe", "silent": bool, "says": N}        forgets all sessions; `silent`: their streams stay open; `says`: in which of
                                                   the spellings of the field the loss is told from now on
  {"do": "mend"}                                   ends what is left of slow, refuse and cut
"""

import argparse
import json
import os
import random
import socket
import struct
import sys
import time
import uuid
from contextlib import suppress

sys.modules.setdefault("ssl", None)  # asyncio does without, and hundreds of these are started
import asyncio  # noqa: E402 - see above

LEGACY, MODERN = "2025-11-25", "2026-07-28"
CHANGES = (0.3, 1.2)
"""Seconds from one change to the next, at least and at most."""
TOOL = {
    "name": "do",
    "description": "Do it, once.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
}


LOST = (
    (404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}),
    (404, None),
    (400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}),
    (200, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session expired"}}),
)
"""How a lost session is told."""


class Gone(Exception):
    """The connection was broken by order."""


class Listener:
    """Somebody who is told of changes: of which URIs, how, and over which connection, if there are several."""

    def __init__(self, uris, tell, connection=None):
        self.uris, self.tell, self.connection = uris, tell, connection


class Log:
    """The log that is the oracle's."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event, **fields):
        line = {"event": event, "at": time.monotonic(), "pid": os.getpid(), **fields}
        os.write(self.fd, json.dumps(line).encode() + b"\n")


class Faulty:
    """What the server is, whatever carries it; `listeners` are those who are told of changes, each by its own key."""

    def __init__(self, options):
        self.name, self.modern = options.name, options.era == "modern"
        self.uri = f"memo://{options.name}"
        self.log = Log(options.log)
        self.version = 0
        self.listeners = {}
        self.slow_by = self.slow_until = 0.0
        self.cuts, self.refusals = [], []
        self.stays = False
        self.log.note("start")

    # The protocol

    async def answer(self, message, subscribed):
        """The answer to a request, None for anything else; `subscribed` takes a subscription's URI, or None for its end."""
        method, params = message.get("method"), message.get("params") or {}
        if method is None or "id" not in message:
            return None
        try:
            result = await self.result(method, params, subscribed)
        except KeyError:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        except ValueError as fault:
            return {"jsonrpc": "2.0", "id": message["id"], "error": fault.args[0]}
        late = self.slow_by if time.monotonic() < self.slow_until else 0.0
        if late:
            await asyncio.sleep(late)
        return {"jsonrpc": "2.0", "id": message["id"], "result": self.stamped(method, result)}

    def stamped(self, method, result):
        if not self.modern:
            return result
        cached = {"ttlMs": 0, "cacheScope": "private"} if method != "tools/call" else {}
        return {"resultType": "complete", **cached, **result}

    async def result(self, method, params, subscribed):
        if self.modern and method in ("initialize", "ping", "resources/subscribe", "resources/unsubscribe"):
            raise ValueError({"code": -32022, "message": "Unsupported", "data": {"supported": [MODERN], "requested": LEGACY}})
        capabilities = {"tools": {}, "resources": {"subscribe": True}}
        info = {"name": self.name, "version": "1"}
        match method:
            case "server/discover" if self.modern:
                return {"supportedVersions": [MODERN], "capabilities": capabilities, "serverInfo": info}
            case "initialize":
                return {"protocolVersion": LEGACY, "capabilities": capabilities, "serverInfo": info}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [TOOL]}
            case "resources/list":
                return {"resources": [{"uri": self.uri, "name": self.name}]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                return {"contents": [{"uri": self.uri, "text": f"{os.getpid()}:{self.version}"}]}
            case "resources/subscribe" | "resources/unsubscribe":
                self.log.note("subscribed", method=method, uri=params["uri"])
                subscribed(params["uri"] if method == "resources/subscribe" else None)
                return {}
            case "tools/call":
                return await self.do(params.get("arguments") or {})
        raise KeyError(method)

    async def do(self, arguments):
        self.log.note("executed", id=arguments["id"])
        if arguments.get("work"):
            await asyncio.sleep(arguments["work"])
        return {"content": [{"type": "text", "text": arguments["id"]}]}

    # Changes

    async def change(self):
        while True:
            await asyncio.sleep(random.uniform(*CHANGES))
            self.touch()

    def touch(self):
        self.version += 1
        told = [listener.tell for listener in self.listeners.values() if self.uri in listener.uris]
        self.log.note("change", uri=self.uri, version=self.version, told=len(told))
        for tell in told:
            with suppress(OSError, Gone):
                tell("notifications/resources/updated", {"uri": self.uri})

    def listen(self, message, send, key, connection=None):
        """Take a `subscriptions/listen`: acknowledge it, and tell changes by `send` from now on."""
        wanted = (message.get("params") or {}).get("notifications") or {}
        uris = [uri for uri in wanted.get("resourceSubscriptions") or () if uri == self.uri]
        meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        self.log.note("subscribed", method="subscriptions/listen", uris=uris)
        honoured = {"resourceSubscriptions": uris} if uris else {}

        def tell(method, params):
            send({"jsonrpc": "2.0", "method": method, "params": {**params, **meta}})

        tell("notifications/subscriptions/acknowledged", {"notifications": honoured})
        self.listeners[key] = Listener(uris, tell, connection)

    # Orders

    async def control(self, reader, writer):
        with suppress(ConnectionError):
            while line := await reader.readline():
                order = json.loads(line)
                self.log.note("ordered", order=order)
                getattr(self, "order_" + order.pop("do"))(**order)
                writer.write(b"{}\n")
                await writer.drain()
        writer.close()

    def order_ping(self):
        pass

    def order_touch(self):
        self.touch()

    def order_slow(self, by, lasts):
        self.slow_by, self.slow_until = by, time.monotonic() + lasts

    def order_refuse(self, status, count, retry_after=None):
        self.refusals += [(status, retry_after)] * count

    def order_mend(self):
        self.slow_until = 0.0
        self.cuts.clear()
        self.refusals.clear()


class Stdio(Faulty):
    """One client, over the pipes."""

    def order_close_stdout(self, stays):
        self.stays = stays
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # the pipe is closed by it, and no other file gets its number
        os.close(nowhere)

    def send(self, message):
        os.write(1, json.dumps(message).encode() + b"\n")

    async def one(self, message):
        def subscribed(uri):
            self.listeners["client"] = Listener([uri] if uri else [], tell)

        def tell(method, params):
            self.send({"jsonrpc": "2.0", "method": method, "params": params})

        if message.get("method") == "subscriptions/listen" and self.modern:
            self.listen(message, self.send, message["id"])
            return
        if message.get("method") == "notifications/cancelled":
            self.listeners.pop((message.get("params") or {}).get("requestId"), None)
        with suppress(OSError):
            reply = await self.answer(message, subscribed)
            if reply is not None:
                self.send(reply)

    async def open(self):
        pass

    async def serve(self):
        reader = await stdin()
        tasks = set()
        while line := await reader.readline():
            task = asyncio.create_task(self.one(json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if self.stays:
            await asyncio.Event().wait()


class Http(Faulty):
    """Streamable HTTP; in the older era with sessions and a GET stream for each."""

    def __init__(self, options):
        super().__init__(options)
        self.host, self.port = options.host, options.port
        self.sessions, self.loss = {}, LOST[0]
        self.connections = set()

    async def open(self):
        self.server = await asyncio.start_server(self.connected, self.host, self.port, limit=1 << 20, backlog=512)
        self.log.note("listening", port=self.server.sockets[0].getsockname()[1])

    async def serve(self):
        await (await stdin()).read()  # until whoever has started it is gone

    async def connected(self, reader, writer):
        self.connections.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length") or 0))
                await self.exchange(head[0].split(" ")[0], headers, body, reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, Gone):
            pass
        finally:
            self.connections.discard(writer)
            writer.close()

    def reply(self, writer, status, message=None, **headers):
        body = b"" if message is None else json.dumps(message).encode()
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items() if value is not None)
        head = f"HTTP/1.1 {status} As Ordered\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}{more}\r\n".encode() + body)

    def open_stream(self, writer):
        headers = ("Content-Type: text/event-stream", "Cache-Control: no-cache", "Transfer-Encoding: chunked")
        writer.write("\r\n".join(("HTTP/1.1 200 OK", *headers, "", "")).encode())

    def event(self, writer, message):
        data = f"event: message\ndata: {json.dumps(message)}\n\n".encode()
        if writer.is_closing():
            raise Gone
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def exchange(self, verb, headers, body, reader, writer):
        session = headers.get("mcp-session-id")
        if self.refusals:
            status, retry_after = self.refusals.pop(0)
            asked = 'Bearer error="invalid_token"' if status == 401 else None
            self.reply(writer, status, Retry_After=retry_after, WWW_Authenticate=asked)
        elif verb != "POST" and self.modern:
            self.reply(writer, 405, Allow="POST")
        elif verb == "DELETE":
            self.forget(session)
            self.reply(writer, 200)
        elif verb == "GET":
            await self.push(session, reader, writer)
        else:
            await self.post(json.loads(body), session, reader, writer)

    async def push(self, session, reader, writer):
        if session not in self.sessions:
            self.reply(writer, *(self.loss if self.loss[0] != 200 else LOST[0]))
            return
        uris = self.sessions[session]
        self.open_stream(writer)

        def tell(method, params):
            self.event(writer, {"jsonrpc": "2.0", "method": method, "params": params})

        self.listeners[session] = Listener(uris, tell, writer)
        await self.until_closed(session, reader)

    async def until_closed(self, key, reader):
        listener = self.listeners[key]
        try:
            await reader.read(1)
        finally:
            if self.listeners.get(key) is listener:  # it may have been opened a second time
                del self.listeners[key]
        raise Gone

    def forget(self, session):
        self.sessions.pop(session, None)
        self.listeners.pop(session, None)

    async def post(self, message, session, reader, writer):
        method = message.get("method")
        opened = None
        if method == "initialize" and not self.modern:
            session = opened = uuid.uuid4().hex
            self.sessions[opened] = []
        elif not self.modern and session not in self.sessions:
            self.reply(writer, *self.loss)
            return
        if method == "subscriptions/listen" and self.modern:
            self.open_stream(writer)
            self.listen(message, lambda frame: self.event(writer, frame), writer, writer)
            await self.until_closed(writer, reader)
        arguments = (message.get("params") or {}).get("arguments") or {}
        cut = self.cuts.pop(0) if method == "tools/call" and self.cuts else None
        if arguments.get("stream") or (cut and not cut[1]):
            self.open_stream(writer)
            await writer.drain()
        if cut and cut[0] == "before":
            self.end(writer, reset=cut[1])
        uris = self.sessions.get(session, [])

        def subscribed(uri):
            uris[:] = [uri] if uri else []

        answer = await self.answer(message, subscribed)
        if cut:
            self.end(writer, reset=cut[1])
        if answer is None:
            self.reply(writer, 202)
        elif arguments.get("stream"):
            self.event(writer, answer)
            writer.write(b"0\r\n\r\n")
        else:
            status = 404 if answer.get("error", {}).get("code") == -32601 and self.modern else 200
            self.reply(writer, status, answer, Mcp_Session_Id=opened)

    # Orders

    def end(self, writer, *, reset):
        self.break_off(writer, reset=reset)
        raise Gone

    @staticmethod
    def break_off(writer, *, reset):
        raw = writer.get_extra_info("socket")
        if reset and raw is not None:
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if reset:
            writer.transport.abort()
        else:
            writer.close()

    def order_cut(self, when, reset):
        if when == "push":
            for listener in list(self.listeners.values()):
                self.break_off(listener.connection, reset=reset)
        else:
            self.cuts.append((when, reset))

    def order_reset(self):
        for connection in list(self.connections):
            self.break_off(connection, reset=True)

    def order_wipe(self, silent, says):
        self.loss = LOST[says]
        for uris in self.sessions.values():
            uris.clear()
        self.sessions.clear()
        if not silent:
            self.order_cut("push", reset=False)


async def stdin():
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--era", choices=("legacy", "modern"), required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--control", required=True)
    parser.add_argument("kind", choices=("stdio", "http"))
    parser.add_argument("host", nargs="?", default="127.0.0.1")
    parser.add_argument("port", nargs="?", type=int, default=0)
    return parser.parse_args()


async def main():
    options = parse()
    puppet = (Stdio if options.kind == "stdio" else Http)(options)
    await puppet.open()
    with suppress(FileNotFoundError):
        os.unlink(options.control)
    door = await asyncio.start_unix_server(puppet.control, options.control)
    changing = asyncio.create_task(puppet.change())
    await puppet.serve()
    changing.cancel()
    door.close()
    os._exit(0)  # at once: what is left of connections has nothing to say, and Python 3.11 would complain of them


if __name__ == "__main__":
    asyncio.run(main())
