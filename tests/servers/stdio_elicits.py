#!/usr/bin/env python3
"""A server of the older era that asks something while a tool is called; standard library only.

Its tools are `ask` and `echo`. The arguments of `ask` are `method` (elicitation/create where it is missing) and the `params` of
what it asks; its result is, as text, the JSON of the answer that it got.
"""

import json
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "echo")]
STARTED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "elicits", "version": "1"},
}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def asked(number, arguments):
    send({"id": f"q{number}", "method": arguments.get("method", "elicitation/create"), "params": arguments.get("params", {})})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == f"q{number}":
            return {"result": message["result"]} if "result" in message else {"error": message["error"]}
        if message.get("method") == "ping":
            send({"id": message["id"], "result": {}})


def called(number, params):
    answer = params.get("arguments", {}) if params["name"] == "echo" else asked(number, params.get("arguments", {}))
    return {"content": [{"type": "text", "text": json.dumps(answer)}]}


for line in sys.stdin:
    request = json.loads(line)
    method, number, params = request.get("method"), request.get("id"), request.get("params", {})
    if number is None:
        continue
    if method == "initialize":
        send({"id": number, "result": STARTED})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        send({"id": number, "result": called(number, params)})
    elif method == "ping":
        send({"id": number, "result": {}})
    else:
        send({"id": number, "error": {"code": -32601, "message": f"Method not found: {method}"}})
