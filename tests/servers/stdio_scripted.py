#!/usr/bin/env python3
"""A server that does what the method of a request says; standard library only.

echo: the params are the result. silent: no answer. exit {code}: ends. answer_and_exit {size, code}: ends right after a large
answer. close_stdout, close_stdin: closes that pipe and lives on. deaf: answers, then reads no more. offspring {session, bare}:
starts a `sleep` that holds stdout, in a session of its own or without an environment if asked; its pid is the result.
environment, about: what this process has. raw {text}, hex {hex}: writes that before the answer. ask {method}: sends a request
of its own, and gives its answer as the result. A cancellation is told of by the notification notifications/seen.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

out = sys.stdout.buffer


def send(message):
    out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    out.flush()


def write(data, params):
    out.write(data)
    out.flush()
    return params


def answer_and_exit(params, request):
    send({"id": request, "result": {"last": "x" * params["size"]}})
    os._exit(params.get("code", 0))


def close_stdout(params, request):
    os.close(1)
    time.sleep(300)


def close_stdin(params, request):
    os.close(0)
    deaf(params, request)


def deaf(params, request):
    send({"id": request, "result": {}})
    time.sleep(300)


def offspring(params, request):
    environment = {} if params.get("bare") else None
    own = params.get("session", False)
    return {
        "pid": subprocess.Popen(["/bin/sleep", "300"], start_new_session=own, stdin=subprocess.DEVNULL, env=environment).pid
    }


def about(params, request):
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    descriptors = [int(fd) for fd in os.listdir("/proc/self/fd")]
    return {
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "fds": sorted(fd for fd in descriptors if fd > 2)[:-1],  # the last one read the folder
        **{name: int(status[name], 16) for name in ("SigIgn", "SigBlk")},
    }


def ask(params, request):
    send({"id": "q1", "method": params["method"], "params": {}})
    return {"answer": json.loads(sys.stdin.buffer.readline())}


ACTIONS = {
    "silent": lambda params, request: None,
    "exit": lambda params, request: os._exit(params.get("code", 0)),
    "environment": lambda params, request: dict(os.environ),
    "raw": lambda params, request: write(params["text"].encode(), params),
    "hex": lambda params, request: write(bytes.fromhex(params["hex"]), params),
    **{f.__name__: f for f in (answer_and_exit, close_stdout, close_stdin, deaf, offspring, about, ask)},
}

for line in sys.stdin.buffer:
    message = json.loads(line)
    method, request = message.get("method"), message.get("id")
    if method is not None and request is not None:
        action = ACTIONS.get(method, lambda params, request: params)
        result = action(message.get("params") or {}, request)
        if result is not None:
            send({"id": request, "result": result})
    elif method == "notifications/cancelled":
        send({"method": "notifications/seen", "params": message})
