"""Owns the demonstration server that fails on request, so that one can watch what the supervisor does about it."""

from __future__ import annotations

import itertools
import os
import sys

from mcpvisor.daemon.demo.loop import Call, DemoServer, Tool, ToolError

_calls = itertools.count(1)


def main() -> None:
    """Serve on stdin and stdout."""
    DemoServer(
        "flaky",
        "Fails when asked to: divide by zero for a tool error, crash for the end of the process, hang for no answer at all.",
        tools=(
            Tool(
                "divide",
                "Divides a by b; a division by zero is answered with a tool error.",
                divide,
                {"a": {"type": "number"}, "b": {"type": "number"}},
                ("a", "b"),
            ),
            Tool(
                "crash",
                "Ends the process at once, without an answer; the supervisor starts another.",
                crash,
                {"exit_code": {"type": "integer", "minimum": 0, "maximum": 255, "default": 1}},
                read_only=False,
            ),
            Tool(
                "hang",
                "Gives no answer for that many seconds; other calls are answered meanwhile.",
                hang,
                {"seconds": {"type": "number", "minimum": 0, "default": 3600}},
            ),
            Tool("count", "How many times this tool was called since the process began: 1 again after a crash.", count),
        ),
    ).serve()


def divide(call: Call) -> str:
    """The quotient."""
    try:
        return str(call.number("a") / call.number("b"))
    except ArithmeticError as error:
        raise ToolError(str(error)) from error


def crash(call: Call) -> str:
    """The end of the process, as abrupt as an end can be that still has an exit code."""
    code = int(call.number("exit_code", 1)) & 0xFF
    print(f"asked to crash: exit code {code}", file=sys.stderr, flush=True)
    os._exit(code)


def hang(call: Call) -> str:
    """No answer, until the time is over or nobody waits for it."""
    withdrawn = call.cancelled.wait(call.number("seconds", 3600))
    return "nobody waits any more" if withdrawn else "here at last"


def count(_: Call) -> str:
    """The number of calls in the life of this process."""
    return str(next(_calls))


if __name__ == "__main__":
    main()
