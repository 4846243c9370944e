#!/usr/bin/env python3
"""A plain server that falls ill on request; standard library only.

Usage: stdio_moody.py [--mute METHOD,...]   It never answers these methods.
Tools: pid {}; sleep {seconds}: answers after that time, other calls are answered meanwhile; grow {mib}: uses so much more
memory; deaf {}: answers, then reads no more; close_stdout {}: closes its stdout without an answer and lives on.
With $FIELD_LOG it notes there what it was asked, and each call that it has done.
"""

import json
import os
import sys
import threading
import time

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pid", "sleep", "grow", "deaf", "close_stdout")]
MUTE = sys.argv[sys.argv.index("--mute") + 1].split(",") if "--mute" in sys.argv else []
LOCK = threading.Lock()
held = []


def note(event, **data):
    if "FIELD_LOG" in os.environ:
        with open(os.environ["FIELD_LOG"], "a") as log:
            log.write(json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), **data}) + "\n")


def answer(request, **reply):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
        sys.stdout.flush()


def done(request, text):
    note("done", tool=request["params"]["name"])
    answer(request, result={"content": [{"type": "text", "text": str(text)}]})


def call(request):
    name, arguments = request["params"]["name"], request["params"].get("arguments") or {}
    if name == "sleep":
        threading.Timer(arguments["seconds"], done, [request, "slept"]).start()
        return
    if name == "close_stdout":
        os.close(1)
        time.sleep(300)
    if name == "grow":
        held.append(bytearray(os.urandom(1024)) * (1024 * arguments["mib"]))
    done(request, os.getpid())
    if name == "deaf":
        time.sleep(300)


for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    note("in", method=method)
    if "id" not in request or method in MUTE:
        continue
    if method == "initialize":
        info = {"name": "moody", "version": "1"}
        answer(request, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        answer(request, result={"tools": TOOLS})
    elif method == "ping":
        answer(request, result={})
    elif method == "tools/call":
        call(request)
    else:
        answer(request, error={"code": -32601, "message": "Method not found"})
