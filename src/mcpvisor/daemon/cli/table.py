"""Owns how rows become a table: columns in line whatever script a cell is in, and lines that fit the screen where they can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from unicodedata import category, east_asian_width

from mcpvisor.daemon.cli.output import clean_line

_GAP: Final = 2

_LEAST_WIDTH: Final = 20
"""The last column of a table is never cut below this, however narrow the screen."""

_ROOM: Final = 40
"""The last column has so much before columns that one can do without are shown."""

Paint = Callable[[int, str, str], str]
"""Colours a cell: gets the column, the cell and the cell padded, and returns what is written."""


def as_is(_: int, __: str, padded: str) -> str:
    """No colour."""
    return padded


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: two for a wide character, none for an accent that stands on another."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def padded(text: str, columns: int) -> str:
    """The text, filled up with blanks."""
    return text + " " * (columns - columns_of(text))


def shortened(text: str, most: int) -> str:
    """The text on one line, cut to so many columns; that it was cut shows."""
    text = clean_line(text)
    if columns_of(text) <= most:
        return text
    kept, used = 0, 0
    while used + _columns(text[kept]) <= most - 1:
        used += _columns(text[kept])
        kept += 1
    return text[:kept] + "\u2026"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    limit: int | None,
    paint: Paint = as_is,
    *,
    spare: Sequence[str] = (),
) -> list[str]:
    """Columns as wide as their widest cell; the last takes what is left of `limit` and is cut there, and no other is ever cut.

    `spare` names columns that are left out, in this order, while the last has too little room.
    """
    cells = [list(header), *([clean_line(cell) for cell in row] for row in rows)]
    last = len(header) - 1
    widths = [max(columns_of(row[column]) for row in cells) for column in range(last)]
    shown = list(range(last))
    room = None
    if limit is not None:
        needed = min(_ROOM, max(columns_of(row[last]) for row in cells))
        for name in spare:
            if _left(limit, widths, shown) >= needed:
                break
            shown.remove(header.index(name))
        room = max(_left(limit, widths, shown), _LEAST_WIDTH)
    lines: list[str] = []
    for row in cells:
        left = "".join(paint(column, row[column], padded(row[column], widths[column])) + " " * _GAP for column in shown)
        lines.append((left + (row[last] if room is None else shortened(row[last], room))).rstrip())
    return lines


def _left(limit: int, widths: Sequence[int], shown: Sequence[int]) -> int:
    return limit - sum(widths[column] + _GAP for column in shown)


def _columns(character: str) -> int:
    if east_asian_width(character) in "WF":
        return 2
    return 0 if category(character) in ("Mn", "Me") else 1
