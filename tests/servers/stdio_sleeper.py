#!/usr/bin/env python3
"""A plain server whose calls can last, and which can leave a process of its own session behind that holds its stdout.

Usage: stdio_sleeper.py [--hold] [--hang-init]
  --hold       starts a process in a session of its own that keeps stdin, stdout and stderr open
  --hang-init  reads initialize and never answers
Tools: echo {text}, pid {}, sleep {seconds}: answers after that time; other calls are answered meanwhile.
"""

import json
import os
import subprocess
import sys
import threading

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "seconds": {"type": "number"}}}
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("echo", "pid", "sleep")]
LOCK = threading.Lock()


def answer(request, result):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


def text(request, value):
    answer(request, {"content": [{"type": "text", "text": str(value)}]})


if "--hold" in sys.argv:
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params") or {}
    if "id" not in request:
        continue
    if method == "initialize" and "--hang-init" in sys.argv:
        continue
    if method == "initialize":
        info = {"name": "sleeper", "version": "1"}
        answer(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        answer(request, {"tools": TOOLS})
    elif method == "ping":
        answer(request, {})
    elif method == "tools/call":
        arguments = params.get("arguments") or {}
        if params["name"] == "sleep":
            threading.Timer(arguments["seconds"], text, [request, "slept"]).start()
        else:
            text(request, os.getpid() if params["name"] == "pid" else arguments.get("text", ""))
    else:
        error = {"code": -32601, "message": "Method not found"}
        with LOCK:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")
            sys.stdout.flush()
