#!/usr/bin/env python3
"""A server with a process that hides: no parent of ours, a session of its own, no environment; it asks sockets something.

Usage: stdio_escaping.py FILE PATH...
  writes into FILE, as JSON, the first line that came of each unix socket at PATH, as soon as there is something at all of them
"""

import json
import os
import sys

ASKING = """
import json, os, socket, sys, time
from pathlib import Path

file, *paths = sys.argv[1:]
while os.getppid() == int(os.environ["PARENT"]):
    time.sleep(0.01)
said = []
for path in paths:
    with socket.socket(socket.AF_UNIX) as one:
        while one.connect_ex(path):
            time.sleep(0.01)
        one.sendall(b"GET /v1/version HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        said.append(one.makefile().readline().strip())
Path(file + ".new").write_text(json.dumps(said))
os.rename(file + ".new", file)
"""

if os.fork() == 0:
    os.setsid()
    parent = os.getpid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-S", "-c", ASKING, *sys.argv[1:]], {"PARENT": str(parent)})
    os._exit(0)
os.wait()
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        info = {"name": "escaping", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()
