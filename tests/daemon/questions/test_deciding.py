"""Who answers a question: the one table."""

from __future__ import annotations

import itertools

import pytest
from tests.daemon.questions.asking import ALL, question

from mcpvisor.daemon.questions.contract import CanBeAsked, Mode
from mcpvisor.daemon.questions.deciding import To, decide
from mcpvisor.supervisor.questions import ELICITATION, ROOTS, SAMPLING, Belongs

FORMS, URLS, NOTHING = CanBeAsked(form=True), CanBeAsked(url=True), CanBeAsked()
BOTH = frozenset({"sampling", "roots"})


@pytest.mark.parametrize(
    ("belongs", "mode", "can", "has_handler", "to"),
    [
        (Belongs.CALL, "form", FORMS, False, To.CLIENT),
        (Belongs.CALL, "form", FORMS, True, To.CLIENT),
        (Belongs.CALL, "url", URLS, True, To.CLIENT),
        (Belongs.CALL, "form", URLS, True, To.HANDLER),
        (Belongs.CALL, "url", FORMS, True, To.HANDLER),
        (Belongs.CALL, "url", FORMS, False, To.NOBODY),
        (Belongs.CALL, "form", NOTHING, True, To.HANDLER),
        (Belongs.CALL, "form", NOTHING, False, To.NOBODY),
        (Belongs.CALL, "form", None, True, To.HANDLER),
        (Belongs.CALL, "form", None, False, To.NOBODY),
        (Belongs.AMBIGUOUS, "form", ALL, True, To.HANDLER),
        (Belongs.AMBIGUOUS, "form", ALL, False, To.NOBODY),
        (Belongs.NOBODY, "url", ALL, True, To.HANDLER),
        (Belongs.NOBODY, "url", ALL, False, To.NOBODY),
    ],
)
def test_who_is_asked(belongs: Belongs, mode: Mode, can: CanBeAsked | None, has_handler: bool, to: To) -> None:
    """The client whose call it is, if it can be asked that; else the handler of the routes; else nobody. Never a guess."""
    decision = decide(question(belongs=belongs), mode, can, has_handler=has_handler, allowed=frozenset())

    assert to == decision.to
    assert (to is To.CLIENT) == (decision.why == "")


@pytest.mark.parametrize(
    ("method", "belongs", "can", "allowed", "to"),
    [
        (SAMPLING, Belongs.CALL, ALL, BOTH, To.CLIENT),
        (ROOTS, Belongs.CALL, ALL, BOTH, To.CLIENT),
        (SAMPLING, Belongs.CALL, ALL, frozenset({"roots"}), To.NOBODY),
        (ROOTS, Belongs.CALL, ALL, frozenset({"sampling"}), To.NOBODY),
        (SAMPLING, Belongs.CALL, FORMS, BOTH, To.NOBODY),
        (SAMPLING, Belongs.CALL, None, BOTH, To.NOBODY),
        (SAMPLING, Belongs.AMBIGUOUS, ALL, BOTH, To.NOBODY),
        (ROOTS, Belongs.NOBODY, ALL, BOTH, To.NOBODY),
    ],
)
def test_what_is_for_programs_is_for_the_one_client(
    method: str, belongs: Belongs, can: CanBeAsked | None, allowed: frozenset[str], to: To
) -> None:
    """Sampling and roots go to the client of the call where the entry allows them, and to no handler."""
    assert to == decide(question({}, method=method, belongs=belongs), None, can, has_handler=True, allowed=allowed).to


def test_no_row_asks_a_client_that_is_not_known_to_be_meant() -> None:
    """Over all combinations, a client is asked only for its own call and only what it has declared."""
    modes: tuple[tuple[str, Mode | None], ...] = ((ELICITATION, "form"), (ELICITATION, "url"), (SAMPLING, None), (ROOTS, None))
    flags = itertools.product((False, True), repeat=4)
    cans = [None, *(CanBeAsked(form=f, url=u, sampling=s, roots=r) for f, u, s, r in flags)]
    for (method, mode), belongs, can, has_handler in itertools.product(modes, Belongs, cans, (False, True)):
        asked = question(method=method, belongs=belongs)
        decision = decide(asked, mode, can, has_handler=has_handler, allowed=BOTH)

        assert (decision.to is To.CLIENT) == (belongs is Belongs.CALL and can is not None and can.covers(method, mode))
