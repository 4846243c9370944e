"""Owns the demonstration clock: a resource that changes every second, and tells its subscribers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from mcpvisor.daemon.demo.loop import Call, DemoServer, Resource, Tool, ToolError


def main() -> None:
    """Serve on stdin and stdout."""
    DemoServer(
        "clock",
        "A clock. Read clock://now for the time, subscribe to it to be told each second, or call now for another time zone.",
        tools=(
            Tool(
                "now",
                "The current date and time, in ISO 8601; in UTC unless an offset is given.",
                now,
                {"utc_offset_hours": {"type": "number", "minimum": -12, "maximum": 14, "description": "such as 5.5"}},
            ),
        ),
        resources=(
            Resource("clock://now", "now", "The current time in UTC; changes every second.", lambda: time_at(UTC), 1.0),
        ),
    ).serve()


def now(call: Call) -> str:
    """The tool."""
    hours = call.number("utc_offset_hours", 0)
    if not -12 <= hours <= 14:  # the offsets that exist on earth
        raise ToolError(f"utc_offset_hours must be between -12 and 14, not {hours}")
    return time_at(timezone(timedelta(hours=hours)))


def time_at(zone: timezone) -> str:
    """The time in a zone, to the second."""
    return datetime.now(zone).isoformat(timespec="seconds")


if __name__ == "__main__":
    main()
