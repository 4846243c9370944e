"""Owns what the reader of stdout can see: whether colour is welcome, how wide a line may be, and how many of them there are."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

WHEN: Final = ("auto", "always", "never")
"""What `--color` may say."""

_GREEN, _YELLOW, _RED, _GREY = "32", "33", "31", "90"

_COLOURS: Final = {
    "ready": _GREEN,
    "degraded": _YELLOW,
    "starting": _YELLOW,
    "negotiating": _YELLOW,
    "restoring": _YELLOW,
    "draining": _YELLOW,
    "backoff": _YELLOW,
    "crash_loop": _RED,
    "auth_required": _RED,
    "failed": _RED,
    "stopped": _GREY,
    "disabled": _GREY,
    "absent": _RED,
    "closed": _GREEN,
    "open": _RED,
    "half_open": _YELLOW,
}
"""Of the states of servers and handlers, and of circuits; what is none of them has no colour."""

_UNKNOWN: Final = (80, 24)
"""Of a terminal that does not say how large it is."""


class Screen(NamedTuple):
    """Where stdout goes. `width` and `height` are None where nothing bounds them, as in a pipe."""

    colour: bool = False
    width: int | None = None
    height: int | None = None

    def painted(self, text: str, state: str) -> str:
        """The text in the colour of a state."""
        code = _COLOURS.get(state)
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code is not None else text

    def bold(self, text: str) -> str:
        """The text as what is to be seen first."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text


def screen_of(arguments: argparse.Namespace) -> Screen:
    """The screen as it is now; it may have another size the next time."""
    is_terminal = sys.stdout.isatty()
    when = getattr(arguments, "color", None) or "auto"
    colour = has_colour(os.environ, is_terminal=is_terminal, when=when)
    width, height = _size() if is_terminal else (None, None)
    named = os.environ.get("COLUMNS", "")
    return Screen(colour, int(named) if named.isdecimal() and int(named) else width, height)


def has_colour(environ: Mapping[str, str], *, is_terminal: bool, when: str = "auto") -> bool:
    """Whether colour is welcome: by `--color`, else by `NO_COLOR`, by `FORCE_COLOR` or `CLICOLOR_FORCE`, by the terminal."""
    if when != "auto":
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return is_terminal and environ.get("CLICOLOR") != "0" and environ.get("TERM", "dumb") != "dumb"


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return _UNKNOWN
    return size.columns or _UNKNOWN[0], size.lines or _UNKNOWN[1]
