"""Owns how verbs write: data to stdout, messages to stderr, plain where no person looks, and never a server's control codes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcpvisor.supervisor.cleaning import escape_json

_GREEN, _YELLOW, _RED, _GREY = "32", "33", "31", "90"

_COLOURS: Final = {
    "ready": _GREEN,
    "degraded": _YELLOW,
    "starting": _YELLOW,
    "negotiating": _YELLOW,
    "restoring": _YELLOW,
    "draining": _YELLOW,
    "backoff": _RED,
    "crash_loop": _RED,
    "auth_required": _RED,
    "failed": _RED,
    "stopped": _GREY,
    "disabled": _GREY,
}

UNSEEN_WIDTH: Final = 100
"""Characters of a reason where nothing says how wide the lines may be."""

_LEAST_WIDTH: Final = 20
"""The last column of a table is never cut below this, however narrow the screen."""


def clean(text: str) -> str:
    """A text of a server, made safe for a terminal: control codes are written out, line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def clean_line(text: str) -> str:
    """As `clean`, on one line."""
    return clean(text).replace("\n", "\\n").replace("\t", " ")


def say(text: str = "") -> None:
    """Write a line of data."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """Write a value as data, for programs."""
    sys.stdout.write(escape_json(json.dumps(value, indent=2, ensure_ascii=False)))
    sys.stdout.write("\n")


def say_json_line(value: Any) -> None:
    """Write one value of a stream as one line, at once."""
    sys.stdout.write(escape_json(json.dumps(value, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def tell(message: str) -> None:
    """Write a message for the person; it is never data."""
    sys.stdout.flush()
    sys.stderr.write(f"mcpvisor: {clean(message)}\n")


def has_colour(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether colour is welcome: on a terminal that knows it, unless `NO_COLOR` is set."""
    return is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def painted(text: str, state: str) -> str:
    """The text in the colour of a state, where colour is welcome."""
    if not has_colour(os.environ, is_terminal=sys.stdout.isatty()):
        return text
    return f"\x1b[{_COLOURS.get(state, '0')}m{text}\x1b[0m"


def width() -> int | None:
    """The width to keep to: `$COLUMNS`, or the terminal's; None where nothing says how wide it is."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def shortened(text: str, most: int) -> str:
    """The text on one line, cut to so many characters."""
    text = clean_line(text)
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def as_is(_: int, __: str, padded: str) -> str:
    """No colour."""
    return padded


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    limit: int | None,
    paint: Callable[[int, str, str], str] = as_is,
) -> list[str]:
    """Columns as wide as their widest cell; the last takes what is left of `limit` and is cut there.

    `paint` colours a cell: it gets the column, the cell and the cell padded, and returns what is written.
    """
    cells = [list(header), *([clean_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header) - 1)]
    room = None if limit is None else max(limit - sum(wide + 2 for wide in widths), _LEAST_WIDTH)
    lines: list[str] = []
    for row in cells:
        left = "".join(paint(column, row[column], row[column].ljust(wide)) + "  " for column, wide in enumerate(widths))
        last = row[-1] if room is None else shortened(row[-1], room)
        lines.append((left + last).rstrip())
    return lines
