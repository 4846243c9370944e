"""Owns the demonstration server whose one tool takes its time, tells how far it is, and can be stopped."""

from __future__ import annotations

from mcpvisor.daemon.demo.loop import Call, DemoServer, Tool, ToolError

_MOST_SECONDS = 600


def main() -> None:
    """Serve on stdin and stdout."""
    DemoServer(
        "slow",
        "Counts down, one step a second, and tells its progress; cancel the call to stop it.",
        tools=(
            Tool(
                "count_down",
                "Counts down from the given number of seconds, with a progress notification each second.",
                count_down,
                {"seconds": {"type": "integer", "minimum": 1, "maximum": _MOST_SECONDS, "default": 5}},
            ),
        ),
    ).serve()


def count_down(call: Call) -> str:
    """The tool: waits a second for each step."""
    steps = int(call.number("seconds", 5))
    if not 1 <= steps <= _MOST_SECONDS:
        raise ToolError(f"seconds must be between 1 and {_MOST_SECONDS}, not {steps}")
    for step in range(steps):
        call.progress(step, steps, f"{steps - step}...")
        if call.cancelled.wait(1):
            return f"stopped with {steps - step} to go"
    call.progress(steps, steps, "lift-off")
    return "lift-off"


if __name__ == "__main__":
    main()
