"""Owns how it reads that something is written and not in force: what was rejected, what waits for that, what goes by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcpvisor.daemon.local_time import iso_time

Clock = Callable[[float], str]
"""Writes a time, given in seconds since the epoch."""


def rejected(one: Mapping[str, Any], clock: Clock = iso_time) -> str:
    """A rejection in one line, with the time since when it is one, unless its text says so itself."""
    since = one.get("since")
    when = "" if not since or iso_time(since) in one["error"] else f" (since {clock(since)})"
    return f"{one['where']}: {one['error']}{when}"


def waiting(one: Mapping[str, Any], clock: Clock = iso_time) -> str:
    """An edit that waits in one line, without its server: what waits, for what, since when."""
    where = f"{one['where']}: " if one["where"] else ""
    return f"{where}{one['told']} (since {clock(one['since'])})"


def waiting_briefly(one: Mapping[str, Any], clock: Clock = iso_time) -> str:
    """The same with what it is of, and without the fault that it waits for, for a place where that stands beside it."""
    subject = one["server"] or (f"handler {one['handler']}" if one["handler"] else one["what"])
    new_or_gone = {"start": "new", "stop": "written no more"}.get(one["change"], "edited")
    edit = f"edited ({', '.join(one['fields'])})" if one["fields"] else new_or_gone
    where = f" at {one['where']}" if one["where"] else ""
    return f"{subject}: {edit}{where}, and waits for {one['waits_for']} since {clock(one['since'])} (daemon.strict)"


def removal(one: Mapping[str, Any], clock: Clock = iso_time) -> str:
    """A server that goes in one line: why, since when and until when it may come back."""
    gone = f"its file {one['file']} is gone since {clock(one['since'])}"
    return f"{gone}, and it is removed at {clock(one['at'])} unless that comes back"


def trial(one: Mapping[str, Any], clock: Clock = iso_time) -> str:
    """Until when a version that is tried has to be ready."""
    when = f"at {clock(one['until'])}" if one["until"] is not None else f"{one['within']:g} s after its start"
    return f"unless it is ready, it will be rolled back {when}"
