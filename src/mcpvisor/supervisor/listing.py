"""Owns the reading of a server's lists: all pages, within budgets, and never the same cursor twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from mcpvisor.supervisor.entries import Dropped, Judge
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.pace import Pace, let_go
from mcpvisor.supervisor.transports.codec import Refusal, count_values, encode

JsonObject = dict[str, Any]
Ask = Callable[[str, JsonObject | None], Awaitable[JsonObject]]
"""Sends one request of a list, by method and params; raises RequestFailed."""

MAX_PAGES: Final = 100
MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 32 * 1024 * 1024
MAX_LIST_VALUES: Final = 250_000
"""JSON values in the entries of one list, which are kept: at some 200 bytes each they cost 50 MB."""

LIST_SECONDS: Final = 30.0
"""How long all pages of one list may take together."""

TRIES: Final = 3
RETRY_SECONDS: Final = 0.5
METHOD_NOT_FOUND: Final = -32601

METHODS: Final[dict[CatalogKind, str]] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resource_templates": "resources/templates/list",
    "prompts": "prompts/list",
}
MEMBERS: Final[dict[CatalogKind, str]] = {
    "tools": "tools",
    "resources": "resources",
    "resource_templates": "resourceTemplates",
    "prompts": "prompts",
}
CAPABILITY: Final[dict[CatalogKind, str]] = {
    "tools": "tools",
    "resources": "resources",
    "resource_templates": "resources",
    "prompts": "prompts",
}


@dataclass(slots=True)
class Listed:
    """One list as read: the good entries, what was dropped, and why the reading stopped before the end, if it did."""

    entries: tuple[JsonObject, ...] = ()
    dropped: list[Dropped] = field(default_factory=list[Dropped])
    cut: str = ""
    over: Refusal | None = None
    """The limit that the list was cut at; None where it is whole, or was cut for another reason."""


class _Reading:
    """The entries of all pages so far, within the budgets of one list."""

    def __init__(self, kind: CatalogKind) -> None:
        self.judge = Judge(kind)
        self.over: Refusal | None = None
        self._member = MEMBERS[kind]
        self._count = self._size = self._values = 0

    async def take(self, page: JsonObject) -> None:
        """Take the entries out of one page, up to the budgets; others have their turns in between, whatever entries cost."""
        entries = page.get(self._member)
        if not isinstance(entries, list):
            return
        pace = Pace()
        entries.reverse()
        while entries:
            entry = entries.pop()
            text = encode(entry)
            self._count += 1
            self._size += len(text)
            self._values += count_values(text)
            if self._size > MAX_BYTES or self._count > MAX_ENTRIES:
                self.over = "size"
            elif self._values > MAX_LIST_VALUES:
                self.over = "values"
            if self.over is not None:
                await let_go([entry, *entries])
                return
            for _ in self.judge.judging(entry):
                await pace.pause()

    def end(self, cut: str) -> Listed:
        """The list as far as it was read."""
        return Listed(self.judge.kept, self.judge.dropped, cut, self.over)


async def read_list(kind: CatalogKind, ask: Ask) -> Listed:
    """Read all pages of one list.

    An error on a page is tried again a few times, since servers answer errors while they warm up; "method not found" is an
    empty list. Raises RequestFailed when the first page cannot be had; a later one only cuts the list.
    """
    reading = _Reading(kind)
    cut = ""
    cursors: set[str] = set()
    params: JsonObject | None = None
    with anyio.move_on_after(LIST_SECONDS) as scope:
        for _ in range(MAX_PAGES):
            try:
                page = await _page(METHODS[kind], params, ask)
            except RequestFailed as failure:
                if failure.code == METHOD_NOT_FOUND and failure.outcome is Outcome.PEER_ERROR:
                    break
                if params is None:
                    raise
                cut = f"a later page failed: {failure.message}"
                break
            await reading.take(page)
            if reading.over is not None:
                cut = f"the list is over {MAX_ENTRIES} entries, {MAX_BYTES} bytes or {MAX_LIST_VALUES} values"
                break
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                break
            if cursor in cursors:
                cut = "" if cursor == "" else "a cursor came a second time"
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        else:
            cut = f"the list has more than {MAX_PAGES} pages"
            reading.over = "size"
    if scope.cancelled_caught:
        if params is None:
            raise RequestFailed(Outcome.TIMEOUT, "list_timeout", f"{METHODS[kind]} took over {LIST_SECONDS:g} s")
        cut = f"its pages took over {LIST_SECONDS:g} s"
    return reading.end(cut)


async def _page(method: str, params: JsonObject | None, ask: Ask) -> JsonObject:
    for attempt in range(TRIES):
        try:
            return await ask(method, params)
        except RequestFailed as failure:
            warming_up = failure.outcome is Outcome.PEER_ERROR and failure.code != METHOD_NOT_FOUND
            if not warming_up or attempt == TRIES - 1:
                raise
        await anyio.sleep(RETRY_SECONDS * 2**attempt)
    raise AssertionError("unreachable: the last try returns or raises")
