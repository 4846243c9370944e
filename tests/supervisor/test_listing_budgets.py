"""How much of a server's lists is read."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcpvisor.supervisor.listing import MAX_BYTES, MAX_ENTRIES, MAX_PAGES, read_list

pytestmark = pytest.mark.anyio


def pages(entries: list[dict[str, Any]]):
    """A server whose every page holds these entries, under names of their own, without end."""
    asked: list[int] = []

    async def ask(method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        asked.append(len(asked))
        named = [{"name": f"{asked[-1]}-{number}", "inputSchema": {}, **entry} for number, entry in enumerate(entries)]
        return {"tools": named, "nextCursor": str(asked[-1])}

    return ask


@pytest.mark.parametrize(
    ("entries", "over"),
    [
        ([{"description": "x" * 1024 * 1024}] * 4, "size"),
        ([{}] * 1000, "size"),
        ([{}], "size"),
        ([{"inputSchema": {"properties": {str(number): {} for number in range(5000)}}}] * 10, "values"),
    ],
    ids=["bytes", "entries", "pages", "values"],
)
async def test_endless_lists_are_cut(entries: list[dict[str, Any]], over: str):
    """A list over any of its limits is kept as far as it was read, and says which kind of limit it was."""
    listed = await read_list("tools", pages(entries))
    size = sum(len(str(entry)) for entry in listed.entries)

    assert over == listed.over
    assert listed.cut
    assert 0 < len(listed.entries) <= MAX_ENTRIES
    assert size <= MAX_BYTES + MAX_PAGES * 100


async def test_others_have_their_turns_while_a_list_is_judged():
    """Schemas that take long to judge are judged in slices."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await read_list("tools", pages([{"inputSchema": {"properties": {str(number): {} for number in range(5000)}}}] * 10))
        tasks.cancel_scope.cancel()

    assert turns > 10
