"""The reading of lists: all pages, within budgets, whatever the server does with its cursors."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.listing import LIST_SECONDS, MAX_PAGES, Listed, read_list

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class Pages:
    """A server's list: pages by cursor, with the cursors that were asked for."""

    def __init__(self, pages: dict[str | None, dict[str, Any]]) -> None:
        self.pages = pages
        self.asked: list[str | None] = []

    async def ask(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        assert method == "prompts/list"
        cursor = (params or {}).get("cursor")
        self.asked.append(cursor)
        page = self.pages[cursor]
        if "error" in page:
            raise page["error"]
        return page


def page(*names: str, cursor: str | None = None) -> dict[str, Any]:
    return {"prompts": [{"name": name} for name in names], **({} if cursor is None else {"nextCursor": cursor})}


def error(code: int, outcome: Outcome = Outcome.PEER_ERROR) -> dict[str, Any]:
    return {"error": RequestFailed(outcome, "error_answer", "no", code=code)}


def names(listed: Listed) -> list[str]:
    return [entry["name"] for entry in listed.entries]


async def test_all_pages_are_read() -> None:
    """In their order."""
    listed = await read_list("prompts", Pages({None: page("a", cursor="2"), "2": page("b", "c")}).ask)

    assert (names(listed), listed.cut) == (["a", "b", "c"], "")


@pytest.mark.parametrize(
    ("pages", "expected", "asked", "cut"),
    [
        ({None: page("a", cursor="x"), "x": page("a", cursor="x")}, ["a"], [None, "x"], "a cursor came a second time"),
        (
            {None: page("a", cursor="x"), "x": page("b", cursor="y"), "y": page("c", cursor="x")},
            ["a", "b", "c"],
            [None, "x", "y"],
            "a cursor came a second time",
        ),
        ({None: page("a", cursor=""), "": page("a", cursor="")}, ["a"], [None, ""], ""),
        ({None: page("a", cursor=""), "": page("b")}, ["a", "b"], [None, ""], ""),
    ],
    ids=["same", "cycle", "empty at the end", "empty before a page"],
)
async def test_cursors_are_followed_once(pages: dict[Any, Any], expected: list[str], asked: list[Any], cut: str) -> None:
    """A cursor that comes again ends the reading; an empty one is followed once, since for some servers it is a page."""
    server = Pages(pages)
    listed = await read_list("prompts", server.ask)

    assert (names(listed), server.asked, listed.cut) == (expected, asked, cut)


async def test_a_list_without_end_is_cut() -> None:
    """After a hundred pages; what was read stands."""
    numbers = itertools.count()

    async def ask(method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        number = next(numbers)
        return page(f"p{number}", cursor=str(number))

    listed = await read_list("prompts", ask)

    assert (len(listed.entries), listed.cut) == (MAX_PAGES, f"the list has more than {MAX_PAGES} pages")


async def test_pages_share_one_time() -> None:
    """Thirty seconds for all of them, however slow each is; what was read stands."""
    numbers = itertools.count()

    async def ask(method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        await anyio.sleep(7)
        number = next(numbers)
        return page(f"p{number}", cursor=str(number))

    began = anyio.current_time()
    listed = await read_list("prompts", ask)

    assert (len(listed.entries), listed.cut) == (4, f"its pages took over {LIST_SECONDS:g} s")
    assert anyio.current_time() - began == pytest.approx(LIST_SECONDS)


async def test_a_method_that_is_not_there_is_an_empty_list() -> None:
    """Some servers offer a capability and refuse its list; nothing is wrong with the connection."""
    assert await read_list("prompts", Pages({None: error(-32601)}).ask) == Listed()


async def test_a_server_that_warms_up_is_asked_again() -> None:
    """Two errors, then the list: no caller sees the errors."""
    answers = iter([error(-32603), error(-32603), page("a")])

    async def ask(method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        answer = next(answers)
        if "error" in answer:
            raise answer["error"]
        return answer

    assert names(await read_list("prompts", ask)) == ["a"]


async def test_a_first_page_that_fails_is_a_failure_and_a_later_one_a_cut() -> None:
    """Half a list is better than none, when it says that it is half."""
    with pytest.raises(RequestFailed):
        await read_list("prompts", Pages({None: error(-1, Outcome.MAYBE_EXECUTED)}).ask)
    listed = await read_list("prompts", Pages({None: page("a", cursor="2"), "2": error(-1, Outcome.MAYBE_EXECUTED)}).ask)

    assert (names(listed), listed.cut) == (["a"], "a later page failed: no")


@pytest.mark.parametrize("answer", [{}, {"prompts": None}, {"prompts": "x"}, {"prompts": [], "nextCursor": 5}])
async def test_an_odd_page_is_an_empty_one(answer: dict[str, Any]) -> None:
    """A page that holds no list holds nothing."""
    assert await read_list("prompts", Pages({None: answer}).ask) == Listed()
