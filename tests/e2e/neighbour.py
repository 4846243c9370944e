"""A program that calls one tool all the time, and says what each call took: measured apart from whatever else the tests do.

Usage: -m tests.e2e.neighbour SOCKET TOOL PID...

It prints `{}` when it has a session at the gateway's unix socket SOCKET. Then it reads orders, one a line: at `begin NAME` it
calls TOOL again and again; at `end LEAST` it goes on until there are so many calls, stops, and prints `{"took": [seconds, ...],
"failures": [...]}`. The time for which one of the threads PID, or its own, was ready to run and had no CPU is not counted. It
ends with its stdin.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from typing import Any

from tests.e2e.siege import Client
from tests.stopwatch import Stopwatch

GIVES_UP = 30.0
"""Seconds after which `end` answers although there are fewer calls."""


def main(path: str, tool: str, *pids: str) -> None:
    """Call and obey until stdin ends."""
    client = Client(path).open()
    client.call(tool, text="x")
    print("{}", flush=True)
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    watch = Stopwatch(*map(int, pids), threading.get_native_id())
    while orders.get().startswith("begin"):
        took: list[float] = []
        failures: list[Any] = []
        least, deadline = sys.maxsize, float("inf")
        while len(took) < least and not failures and time.monotonic() < deadline:
            watch.start()
            try:
                answer = client.call(tool, text="x")
            except Exception as error:
                answer = {"error": repr(error)}
            took.append(watch.seconds())
            if "result" not in answer:
                failures.append(answer)
            if least == sys.maxsize and not orders.empty():
                least, deadline = int(orders.get().split()[1]), time.monotonic() + GIVES_UP
        if least == sys.maxsize:
            orders.get()
        print(json.dumps({"took": took, "failures": failures}), flush=True)
    client.close()


def _read(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    orders.put("quit")


if __name__ == "__main__":
    main(*sys.argv[1:])
