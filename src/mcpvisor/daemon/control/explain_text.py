"""Owns how an explanation reads: what is wrong, what comes next and what to do in the first three lines, the evidence below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.spans import seconds
from mcpvisor.daemon.local_time import far_away, local_time

Explanation = Mapping[str, Any]

EVENTS_SHOWN: Final = 10
STDERR_SHOWN: Final = 12
_DROPS_SHOWN: Final = 10

_BY_ENTRY: Final = "config"
"""Who holds what an entry wants; everybody else is told of by name."""

_JUST_NOW: Final = 2.0
"""Seconds for which a time that passed may be called now; the daemon acts on it within much less."""

_PLAIN_FIELDS: Final = (
    "handler",
    "id",
    "method",
    "mode",
    "tool",
    "belongs",
    "principal",
    "whom",
    "action",
    "by",
    "properties",
    "catalog",
    "entry",
    "limits",
    "why",
    "old",
    "new",
    "outcome",
    "cause",
    "detail",
    "reason",
    "origin",
    "pid",
    "exit_code",
    "signal",
    "generation",
    "change",
    "source",
    "order",
    "who",
    "misses",
    "allowed",
    "count",
    "excerpt",
    "aside",
    "forgotten",
    "lost",
    "uri",
    "state",
    "fields",
    "level",
    "failures",
)
"""The fields of events that say something in one line, in the order in which they are shown."""


def clock_time(at: float) -> str:
    """A time of day as the person's own clock shows it; with the date where it is not today."""
    moment = local_time(at)
    if moment is None:
        return far_away(at)
    today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def as_text(explanation: Explanation, clock: Callable[[float], str] = clock_time) -> str:
    """The explanation for a person; `clock` writes a time, given in seconds since the epoch."""
    lines = [
        _sentence(str(explanation["what"])),
        _sentence(f"Next: {explanation['next']}{_when(explanation, clock)}"),
        _sentence(f"You: {explanation['remedy']}"),
        "",
        *_facts(explanation, clock),
        *_list("left out of its lists", [f"{d['kind']} {d['entry']}: {d['why']}" for d in explanation["catalog_drops"]]),
        *_list("subscriptions", [subscription_line(one, clock) for one in explanation["subscriptions"]]),
        *_list("URIs claimed twice", explanation["uri_conflicts"]),
        *_list("events", [event_line(event, clock) for event in explanation["events"][-EVENTS_SHOWN:]], last=True),
        *_list("stderr", [stderr_line(line, clock) for line in explanation["stderr"][-STDERR_SHOWN:]], last=True),
    ]
    return "\n".join(lines)


def event_line(event: Mapping[str, Any], clock: Callable[[float], str] = clock_time) -> str:
    """One event on one line."""
    is_uncounted = event["kind"] == "probe_missed" and not event["misses"]
    hidden = ("misses", "allowed") if is_uncounted else ()
    shown = {name: _written(event.get(name)) for name in _PLAIN_FIELDS if name not in hidden}
    said = [f"{name}={value}" for name, value in shown.items() if value]
    if is_uncounted:
        said.append("(busy: it does not count)")
    return " ".join([clock(event["at"]), str(event["kind"]), *said])


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, cast("Sequence[object]", value)))
    return "" if value is None else str(value)


def stderr_line(line: Mapping[str, Any], clock: Callable[[float], str] = clock_time) -> str:
    """One line of a server's stderr, with when it was written."""
    return f"{clock(line['at'])} {line['line']}"


def subscription_line(one: Mapping[str, Any], clock: Callable[[float], str] = clock_time) -> str:
    """One wanted resource: its text in quotes, since it is compared letter by letter, and how it stands."""
    poll = f", read every {seconds(one['poll'])}" if one["state"] == "polled" else ""
    why = f": {one['reason']}" if one["reason"] else ""
    due = f"; next try at {clock(one['next_retry'])}" if one["next_retry"] is not None and one["state"] == "failed" else ""
    return f"{one['uri']!r} {one['state']}{poll}{_holders(one)}{why}{due}"


def _holders(one: Mapping[str, Any]) -> str:
    """For whom else than its entry a resource is watched: the first of them, and how many more."""
    others = [who for who in one["holders"] if who != _BY_ENTRY]
    if not others:
        return ""
    more = one["holders_in_all"] - 1 - (_BY_ENTRY in one["holders"])
    return f" for {others[0]}" + (f" and {more} more" if more else "")


def _sentence(text: str) -> str:
    first = text[:1]
    return (text if text.endswith((".", "!", "`")) else text + ".") if first else text


def _when(explanation: Explanation, clock: Callable[[float], str]) -> str:
    at = explanation["next_at"]
    if at is None:
        return ""
    ahead = at - explanation["now"]
    if ahead > 0:
        return f" - at {clock(at)}, in {seconds(ahead)}"
    return f" - at {clock(at)}, which is now" if ahead > -_JUST_NOW else f" - it was due at {clock(at)}, {seconds(-ahead)} ago"


def _facts(explanation: Explanation, clock: Callable[[float], str]) -> Iterator[str]:
    server = explanation["server"]
    since = f"{clock(explanation['since'])} ({seconds(explanation['state_seconds'])} ago)"
    yield _fact("state", f"{explanation['state']} since {since}")
    ordered = f", {clock(server['wanted_at'])}" if server.get("wanted_at") else ""
    yield _fact("wanted", f"{explanation['wanted']} (by {explanation['wanted_by']}{ordered})")
    spoken = ", ".join(str(one) for one in (server["era"], server["protocol_version"], server["implementation"]) if one)
    yield _fact("speaks", f"{server['transport']}{': ' + spoken if spoken else ''}")
    if server["pid"] is not None:
        yield _fact("process", f"pid {server['pid']}, generation {server['generation']}")
    yield _fact("restarts", str(server["restarts"]))
    if server.get("instances"):
        failing = f"; {server['instance_failing']}" if server["instance_failing"] else ""
        yield _fact("instances", f"{server['instances']} for one client each{failing}")
    if (expiry := server["token_expires_at"]) is not None:
        ahead = expiry - explanation["now"]
        left = f"in {seconds(ahead)}" if ahead > 0 else f"{seconds(-ahead)} ago"
        yield _fact("token", f"{'expires' if ahead > 0 else 'expired'} {clock(expiry)} ({left})")
    if explanation["last_exit"]:
        yield _fact("last exit", _exit(explanation["last_exit"], server))
    if server["limits_not_enforced"]:
        yield _fact("limits", f"not enforced: {server['limits_not_enforced']}")
    if explanation["stdout_excerpt"]:
        yield _fact(
            "stdout", f"{counted(explanation['stdout_noise'], 'line')} of no message, such as: {explanation['stdout_excerpt']}"
        )
    offer = ", ".join(counted(server[kind], kind.removesuffix("s")) for kind in ("tools", "resources", "prompts"))
    yield _fact("offers", offer + (" (last known, it is away)" if server["stale"] else ""))
    if server["push"]:
        due = server.get("push_next")
        again = f"; asked for again at {clock(due)}" if due is not None else ""
        yield _fact("push", f"{server['push']}{': ' if server['push_reason'] else ''}{server['push_reason']}{again}")
    subscriptions = server["subscriptions"]
    if subscriptions["wanted"]:
        strangers = counted(explanation["unwanted_updates"], "update") if explanation["unwanted_updates"] else ""
        unwanted = f"; {strangers} of what nobody wants" if strangers else ""
        yield _fact("subscribed", f"{subscriptions['active']} of {subscriptions['wanted']}{unwanted}")
    yield _fact("written in", explanation["origin"] or "no file")
    if server["shown_name"]:
        yield _fact("written as", server["shown_name"])


def _exit(how: str, server: Mapping[str, Any]) -> str:
    """How a process ended, and which: it need not be the last one of the generation that is shown above."""
    by_us = ", ended by the daemon" if server["last_exit_wanted"] else ""
    return f"{how} (generation {server['last_exit_generation']}, pid {server['last_exit_pid']}{by_us})"


def _fact(name: str, value: str) -> str:
    return f"  {name:<10} {value}"


def _list(title: str, entries: list[str], *, last: bool = False) -> Iterator[str]:
    """A titled list; empty ones are left out. With `last` the entries were cut at their start already."""
    if not entries:
        return
    yield ""
    yield f"{title}:"
    shown = entries if last else entries[:_DROPS_SHOWN]
    yield from (f"  {entry}" for entry in shown)
    if len(shown) < len(entries):
        yield f"  ... and {len(entries) - len(shown)} more"
