"""Owns how the status reads: first what is wrong and what the daemon does next, then the servers, then all other trouble."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mcpvisor.daemon.cli.output import clean_line
from mcpvisor.daemon.cli.screen import Screen
from mcpvisor.daemon.cli.table import table
from mcpvisor.daemon.control import not_in_force
from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.explain_text import clock_time
from mcpvisor.daemon.control.spans import seconds
from mcpvisor.daemon.control.tally import tally

_HEADER: Final = ("NAME", "STATE", "SINCE", "NEXT", "TRANSPORT", "ERA", "PID", "RESTARTS", "REASON")
_STATE_COLUMN: Final = 1
_SPARE: Final = ("ERA", "TRANSPORT", "PID", "RESTARTS")

_JUST_NOW: Final = 2.0
"""Seconds for which a try that is due may be called due now."""

_NAMES_SHOWN: Final = 5

_NEXT: Final = {
    "failed": ("looked at again", "nothing until its entry is edited, or an order"),
    "auth_required": ("waits for other credentials, tried again", "waits for other credentials"),
    "crash_loop": ("one careful try", "nothing until its entry is edited, or an order"),
    "backoff": ("tried again", "tried again once the last try has ended"),
    "degraded": ("it serves, what is missing is tried again", "it serves, what is missing is tried again"),
    "draining": ("ended at the latest", "ended when its calls are done"),
    "restoring": ("calls are served, given up", "calls are served"),
    "negotiating": ("given up", "waits for the handshake"),
    "starting": ("given up", "waits for its turn to start"),
}
"""What the daemon does next in a state, the worst first: where it is bound to a time, and where it is not."""

_HINDERED: Final = {
    "credentials": ("no call can be made, tried again", "no call can be made until it takes what credentials there are"),
    "silence": ("it does not answer probes, asked again", "it does not answer probes, and is asked again"),
    "refusal": ("it refuses what it is asked, asked again", "it refuses what it is asked, and is asked again"),
}
"""The same for a session that stands and is not known to serve, by what is in the way."""

_WAITS: Final = "once what their edits wait for is corrected"

_ENDS_BY_DEADLINE: Final = frozenset({"draining", "restoring", "negotiating", "starting"})


class StatusView(NamedTuple):
    """The status in three parts. What is wrong comes first in `head` and in `rows`, whose first is the header."""

    head: list[str]
    rows: list[str]
    tail: list[str]


def status_lines(status: Mapping[str, Any], screen: Screen = Screen()) -> list[str]:  # noqa: B008 - it cannot be changed
    """The status for a person. Where the servers push what is wrong off the screen, it is said once more below them."""
    head, rows, tail = status_view(status, screen)
    lines = [*head, *rows, *tail]
    if screen.height is not None and len(lines) >= screen.height and len(head) > 1:
        lines += ["", *head]
    return lines


def status_view(status: Mapping[str, Any], screen: Screen) -> StatusView:
    """The parts of the status; no cell is cut but the reason, and that only where the screen has a width."""
    now = status["now"]
    servers = sorted(status["servers"], key=_urgency)
    count = tally(status["ready"], status["total"], (one.get("wanted", "") for one in servers))
    head = [screen.bold(count), *_wrong(servers, _waiting(status), now, screen)]
    if stopping := status.get("stopping"):
        head.insert(0, screen.bold(f"stopping: {clean_line(stopping)}"))
    rows = table(
        _HEADER,
        [_row(server, now) for server in servers],
        screen.width,
        lambda column, cell, text: screen.painted(text, cell) if column == _STATE_COLUMN else text,
        spare=_SPARE,
    )
    return StatusView(head, rows if servers else [], [*_tail(status)])


def _urgency(server: Mapping[str, Any]) -> int:
    """What is not as wanted comes first, the worst of it before the rest; all others stay in their order."""
    order = list(_NEXT)
    if server["healthy"]:
        return 2 * len(order) + 1
    place = order.index(server["state"]) if server["state"] in _NEXT else len(order)
    return 2 * place + (not server.get("hindrance"))


def _waiting(status: Mapping[str, Any]) -> frozenset[str]:
    """The servers of which an edit waits for what is wrong elsewhere."""
    return frozenset(one["server"] for one in status["config"].get("waiting", ()))


def _wrong(servers: Sequence[Mapping[str, Any]], waiting: Collection[str], now: float, screen: Screen) -> Iterator[str]:
    """For each state that is not wanted who is in it, and what comes next; those that wait for faults of others apart."""
    by_state: dict[tuple[str, str, bool], list[Mapping[str, Any]]] = {}
    for server in servers:
        if not server["healthy"]:
            key = (server["state"], server.get("hindrance") or "", server["name"] in waiting)
            by_state.setdefault(key, []).append(server)
    for (state, hindrance, waits), those in by_state.items():
        names = ", ".join(one["name"] for one in those[:_NAMES_SHOWN])
        more = f" and {len(those) - _NAMES_SHOWN} more" if len(those) > _NAMES_SHOWN else ""
        following = _WAITS if waits and state == "failed" else _following(state, hindrance, those, now)
        yield f"  {len(those)} {screen.painted(state, state)}: {names}{more}{following and ': ' + following}"


def _following(state: str, hindrance: str, those: Sequence[Mapping[str, Any]], now: float) -> str:
    """What the daemon does next with servers in a state, and when with the first of them."""
    bound, unbound = _HINDERED.get(hindrance) or _NEXT.get(state, ("", ""))
    ends = state in _ENDS_BY_DEADLINE
    times = [due for one in those if (due := one.get("deadline") if ends else _due(one)) is not None]
    if not times:
        return unbound
    first = "the first " if len(times) > 1 else ""
    due = min(times)
    return f"{bound} {first}{f'in {seconds(due - now)}' if due > now else 'now'}"


def _due(server: Mapping[str, Any]) -> float | None:
    """When it is tried again, or where it refuses what it is asked, asked again."""
    due: float | None = server["next_attempt"]
    return server.get("probe_next") if due is None else due


def _row(server: Mapping[str, Any], now: float) -> tuple[str, ...]:
    due = _due(server)
    return (
        server["name"],
        server["state"],
        seconds(server.get("state_seconds", now - server["since"])),  # a daemon of an older version tells none
        "-" if due is None else f"in {seconds(due - now)}" if due > now else "now" if due > now - _JUST_NOW else "overdue",
        server["transport"],
        server["era"] or "-",
        "-" if server["pid"] is None else str(server["pid"]),
        str(server["restarts"]),
        server["reason"],
    )


def _tail(status: Mapping[str, Any]) -> Iterator[str]:
    yield from (_instances(server) for server in status["servers"] if server.get("instances"))
    store = status.get("state_store")
    if store is not None and not store["up"]:
        yield ""
        yield f"the state store is degraded, what is new is kept in memory only: {clean_line(store['reason'])}"
    if store is not None and store.get("damaged"):
        yield ""
        yield f"the state file was damaged at the start, its orders do not stand any more; it is {clean_line(store['damaged'])}"
    if waiting := status.get("waiting_questions"):
        yield ""
        yield f"{counted(waiting, 'question')} waiting for an operator: `mcpvisor elicitations` shows and answers them"
    if troubles := _handler_troubles(status.get("handlers", ()), status["now"]):
        yield from ("", *troubles)
    yield from _not_in_force(status["config"])


def _not_in_force(config: Mapping[str, Any]) -> Iterator[str]:
    """What is written and not done: what is wrong, what waits for that, and what is done later by itself."""
    if config["rejected"]:
        yield ""
        yield "rejected from the configuration (what was accepted before keeps running):"
        yield from (f"  {clean_line(not_in_force.rejected(one, clock_time))}" for one in config["rejected"])
    if waiting := config.get("waiting"):
        yield ""
        yield "right, and not applied before that is corrected:"
        yield from (f"  {clean_line(not_in_force.waiting_briefly(one, clock_time))}" for one in waiting)
    if trials := config.get("trials"):
        yield ""
        yield from (f"{one['server']}: its edit is on trial; {not_in_force.trial(one, clock_time)}" for one in trials)
    if settings := config.get("needs_restart"):
        yield ""
        yield clean_line(f"edited, and read when the daemon starts: {', '.join(settings)}")
    if removals := config.get("removals"):
        yield ""
        yield from (clean_line(f"{one['server']}: {not_in_force.removal(one, clock_time)}") for one in removals)


def _instances(server: Mapping[str, Any]) -> str:
    """What runs of a server beside the instance that its row is about."""
    failing = f"; {clean_line(server['instance_failing'])}" if server["instance_failing"] else ""
    return f"{server['name']}: {counted(server['instances'], 'instance')} for one client each{failing}"


def _handler_troubles(handlers: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """A line for each handler that takes nothing, or has given something up."""
    lines: list[str] = []
    for handler in handlers:
        name, parts = handler["name"], list[str]()
        if handler.get("circuit", "closed") != "closed":
            due = handler.get("next_try")
            again = f", tried again in {seconds(due - now)}" if due is not None and due > now else ""
            parts.append(f"left alone after {counted(handler['failures'], 'failure')}{again}: {handler['last_error']}")
        elif handler.get("trouble"):
            parts.append(f"takes nothing now: {handler['trouble']}")
        if handler["state"] == "absent" and handler["waiting"]:
            parts.append(f"is not configured, and {counted(handler['waiting'], 'event')} wait until it is again")
        if handler["dead"]:
            parts.append(f"{counted(handler['dead'], 'dead letter')}, see `mcpvisor events dead`")
        lines += [clean_line(f"handler {name}: {part}") for part in parts]
    return lines
