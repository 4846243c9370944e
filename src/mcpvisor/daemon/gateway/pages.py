"""Owns how long lists are cut into pages, and the cursors between them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from mcpvisor.daemon.gateway.catalog import Listed

PAGE_ENTRIES: Final = 1_000
"""Large, because many clients read the first page only."""

STALE_META_KEY: Final = "mcpvisor/stale"
"""Set on the entries of a server that is away: they are what it offered last."""


class BadCursor(ValueError):
    """The cursor is not one of ours, or the list has changed since it was given out."""


def page(entries: Sequence[Listed], stamp: str, cursor: str | None) -> tuple[Sequence[Listed], str | None]:
    """The entries of one page and the cursor of the next, None at the end.

    `stamp` names this very list: a cursor is only good for the list it was made for. Raises BadCursor.
    """
    start = 0 if cursor is None else _position(cursor, stamp)
    if start > len(entries):
        raise BadCursor
    end = start + PAGE_ENTRIES
    following = _cursor(stamp, end) if end < len(entries) else None
    return entries[start:end], following


def shown(listed: Listed, *, stale: bool) -> dict[str, Any]:
    """The entry as it is sent; the mark of staleness is no change of the catalog, and stands in `_meta` only."""
    if not stale:
        return listed.entry
    meta = listed.entry.get("_meta")
    return {**listed.entry, "_meta": {**(meta if isinstance(meta, dict) else {}), STALE_META_KEY: True}}


def _cursor(stamp: str, position: int) -> str:
    return base64.urlsafe_b64encode(f"{stamp}:{position}".encode()).decode()


def _position(cursor: str, stamp: str) -> int:
    try:
        of, _, position = base64.urlsafe_b64decode(cursor.encode()).decode().rpartition(":")
    except (binascii.Error, ValueError):
        raise BadCursor from None
    if of != stamp or not position.isascii() or not position.isdigit() or len(position) > 9:
        raise BadCursor
    return int(position)
