#!/usr/bin/env python3
"""A server that takes no hint to leave, and writes down each one it gets.

Usage: stdio_ladder.py FILE    FILE gets a line for each hint, as it comes: its name (`eof` or the signal's) and the
monotonic time.
"""

import json
import signal
import sys
import time

from lite import handle


def note(hint):
    with open(sys.argv[1], "a") as file:
        file.write(f"{hint} {time.monotonic():.6f}\n")


for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, lambda number, _: note(signal.Signals(number).name))
for line in sys.stdin:
    answer = handle(json.loads(line))
    if answer is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
note("eof")
while True:
    time.sleep(60)
