"""Owns `status --watch`: one picture that is kept true on a terminal, and a line for each change everywhere else."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Generator, Iterator, Mapping
from types import FrameType
from typing import Any, Final, NoReturn

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError
from mcpvisor.daemon.cli.looking import one_of
from mcpvisor.daemon.cli.news import News
from mcpvisor.daemon.cli.output import clean_line, say, say_json_line, tell
from mcpvisor.daemon.cli.screen import Screen, screen_of
from mcpvisor.daemon.cli.status_view import StatusView, status_lines, status_view
from mcpvisor.daemon.control import not_in_force
from mcpvisor.daemon.control.explain_text import clock_time

Status = dict[str, Any]

_ABSENT_SECONDS: Final = 1.0
"""How often a daemon that does not answer is asked again, at the least."""

_ENTER: Final = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, so that what was written before is still there afterwards; no cursor; long lines end at the edge."""

_LEAVE: Final = b"\x1b[?7h\x1b[?25h\x1b[?1049l"


class _Ended(BaseException):
    """A signal has come that ends this process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def watch(client: ControlClient, first: Status, arguments: argparse.Namespace) -> int:
    """Show the status until a signal comes, by which it ends; the daemon may go and come back meanwhile."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    news = News(client, arguments.server)
    looks = _looks(client, first, arguments, news)
    try:
        if arguments.json:
            _as_json(looks)
        elif sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            _as_picture(looks, arguments, news)
        else:
            _as_lines(looks, arguments)
    except _Ended as end:
        sys.stdout.flush()
        signal.signal(end.number, signal.SIG_DFL)
        os.kill(os.getpid(), end.number)  # whoever sent it sees that it was followed
    return 0


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What became another between two statuses: a line for each server, and for each thing that is rejected now."""
    old = {one["name"]: (one["state"], one["reason"]) for one in before["servers"]}
    for server in after["servers"]:
        state, reason = server["state"], server["reason"]
        if old.pop(server["name"], None) != (state, reason):
            yield f"{server['name']} {state}{': ' + clean_line(reason) if reason else ''}"
    yield from (f"{name} is gone" for name in old)
    yield from map(clean_line, _of_configuration(before["config"], after["config"]))


def _of_configuration(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What is not in force any more, or not yet, and that all is again."""
    for one in after["rejected"]:
        if one not in before["rejected"]:
            yield f"rejected from the configuration: {one['where']}: {one['error']}"
    for one in after.get("waiting", ()):
        if one not in before.get("waiting", ()):
            yield f"waits: {not_in_force.waiting_briefly(one)}"
    known = {(one["server"], one["file"]) for one in before.get("removals", ())}
    for one in after.get("removals", ()):
        if (one["server"], one["file"]) not in known:
            yield f"{one['server']}: {not_in_force.removal(one)}"
    if before["rejected"] and not after["rejected"]:
        yield "all of the configuration is in force"


def fitted(title: str, view: StatusView, height: int) -> list[str]:
    """The lines of a picture of that height: of the servers the last ones are left out first, which are as they are wanted."""
    room = max(height - 1 - len(view.head) - len(view.tail), 3)
    rows = view.rows
    if len(rows) > room:
        rows = [*rows[: room - 1], f"... and {len(rows) - room + 1} more"]
    return [title, *view.head, *rows, *view.tail][:height]


def _looks(
    client: ControlClient, first: Status, arguments: argparse.Namespace, news: News
) -> Iterator[Status | CliError | None]:
    """The status each time that it may be another, or why there is none; None where only the screen is another."""
    look: Status | CliError = first
    while True:
        yield look
        is_there = not isinstance(look, CliError)
        seconds = arguments.interval if is_there else min(arguments.interval, _ABSENT_SECONDS)
        while news.wait(seconds, listen=is_there) == "screen":
            yield None
        try:
            look = one_of(client.get("/v1/status", {"server": arguments.server}), arguments.server)
        except CliError as error:
            look = error


def _as_json(looks: Iterator[Status | CliError | None]) -> None:
    """The whole status in one line, at first and whenever anything in it is another but the time."""
    known: Any = None
    for status in _told(looks):
        what = _timeless(status)
        if what != known:
            say_json_line(status)
        known = what


def _timeless(status: Status) -> dict[str, Any]:
    """All of a status but what grows by itself: the time, and how long each server is in its state."""
    servers = [{key: value for key, value in server.items() if key != "state_seconds"} for server in status["servers"]]
    return {**{key: value for key, value in status.items() if key != "now"}, "servers": servers}


def _as_lines(looks: Iterator[Status | CliError | None], arguments: argparse.Namespace) -> None:
    """The whole status at first, then a line for each change."""
    known: Status | None = None
    for status in _told(looks):
        if known is None:
            say("\n".join(status_lines(status, screen_of(arguments)._replace(height=None))))
        else:
            for line in changes(known, status):
                say(f"{clock_time(status['now'])} {line}")
        sys.stdout.flush()
        known = status


def _told(looks: Iterator[Status | CliError | None]) -> Iterator[Status]:
    """The statuses alone; that the daemon has gone, and that it is back, is told once each."""
    is_there = True
    for look in looks:
        if isinstance(look, CliError):
            if is_there:
                tell(f"{look}; it is asked again until it answers")
            is_there = False
        elif look is not None:
            if not is_there:
                tell("the daemon answers again")
            is_there = True
            yield look


def _as_picture(looks: Iterator[Status | CliError | None], arguments: argparse.Namespace, news: News) -> None:
    """The status in place. At the end the screen is as it was before, with the last status below."""
    status: Status = {}
    trouble = ""
    with _other_screen(news) as descriptor:
        try:
            for look in looks:
                if isinstance(look, CliError):
                    trouble = clean_line(str(look))
                elif look is not None:
                    status, trouble = look, ""
                lines = _picture(status, trouble, screen_of(arguments))
                _write(descriptor, "\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
        finally:
            shown = status_lines(status, screen_of(arguments)._replace(height=None))
            last = "\n".join([f"{clock_time(status['now'])}", *shown, ""])
            _write(descriptor, _LEAVE.decode() + last)


def _picture(status: Status, trouble: str, screen: Screen) -> list[str]:
    at = clock_time(status["now"])
    title = f"{at}  mcpvisor status, until Ctrl-C"
    if trouble:
        title = screen.painted(f"{trouble}; this is how it was at {at}, and it is asked again", "failed")
    height = screen.height
    view = status_view(status, screen)
    return fitted(title, view, height) if height is not None else [title, *view.head, *view.rows, *view.tail]


@contextlib.contextmanager
def _other_screen(news: News) -> Generator[int]:
    """The descriptor of a terminal that shows its other screen, also after it was put into the background and brought back."""
    descriptor = sys.stdout.fileno()
    sys.stdout.flush()

    def stop(number: int, _: FrameType | None) -> None:
        os.write(descriptor, _LEAVE)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # Here it goes on when it is brought back.
        signal.signal(number, stop)
        os.write(descriptor, _ENTER)
        news.screen_changed()

    def resized(_: int, __: FrameType | None) -> None:
        news.screen_changed()

    former = {
        signal.SIGTSTP: signal.signal(signal.SIGTSTP, stop),
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, resized),
    }
    os.write(descriptor, _ENTER)
    try:
        yield descriptor
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        os.write(descriptor, b"\x1b[?7h\x1b[?25h")


def _write(descriptor: int, text: str) -> None:
    """Write all of it, past the buffer of stdout, which a signal's handler must not touch."""
    data = text.encode(sys.stdout.encoding, "backslashreplace")
    while data:
        data = data[os.write(descriptor, data) :]


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise _Ended(number)
