"""Owns the error by which servers of revision 2025-11-25 say that pages have to be visited first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcpvisor.daemon.gateway.crossing import rejected
from mcpvisor.daemon.gateway.questions.rounds import MAX_QUESTIONS, Questions
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.questions import ELICITATION

JsonObject = dict[str, Any]

URL_REQUIRED: Final = -32042
MISSING_CAPABILITY: Final = -32021


def pages_of(failure: RequestFailed) -> list[Any]:
    """The elicitations that a failure names, as the server wrote them; none where it is another failure."""
    if failure.outcome is not Outcome.PEER_ERROR or failure.code != URL_REQUIRED or not isinstance(failure.data, dict):
        return []
    named = failure.data.get("elicitations")
    return named if isinstance(named, list) else []


def keep_pages(failure: RequestFailed, shown: Callable[[JsonObject], JsonObject | None]) -> list[JsonObject]:
    """The pages that a person may be sent to, as the server wrote them; the failure has those alone, as they are `shown`.

    `shown` gives None for a page that nobody should be sent to. What is no page, and what is over `MAX_QUESTIONS`, goes too.
    """
    named = pages_of(failure)
    fit = [(page, words) for page in named[:MAX_QUESTIONS] if isinstance(page, dict) and (words := shown(page)) is not None]
    if named:
        failure.data = {**failure.data, "elicitations": [words for _, words in fit]}
    return [page for page, _ in fit]


def as_questions(pages: list[JsonObject]) -> Questions:
    """The same pages as questions of 2026-07-28, which knows no ids for them."""
    return {
        f"page-{number}": {"method": ELICITATION, "params": {**without_id(page), "mode": "url"}}
        for number, page in enumerate(pages, 1)
    }


def without_id(params: JsonObject) -> JsonObject:
    """An elicitation without what 2026-07-28 does not know."""
    return {key: value for key, value in params.items() if key != "elicitationId"}


def not_visited(questions: Questions, answers: JsonObject) -> bool:
    """Whether one of the pages was not visited."""
    return any(answers.get(key, {}).get("action") != "accept" for key in questions)


def declined() -> RequestFailed:
    """The refusal where the client says that a page was not visited."""
    return rejected("declined", "the server wants a page to be visited first, and that was declined")


def no_way_to_visit() -> RequestFailed:
    """The refusal where nobody can visit a page: the client cannot be asked to, and nobody else has."""
    text = "the server wants a page to be visited first, and this client cannot be asked to"
    return rejected(
        "missing_capability", text, code=MISSING_CAPABILITY, data={"requiredCapabilities": {"elicitation": {"url": {}}}}
    )
