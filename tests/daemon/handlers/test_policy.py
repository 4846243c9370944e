"""Policies: which rule fits a question, and what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvisor.daemon.handlers.contract import HandlerAnswer, HandlerQuestion
from mcpvisor.daemon.handlers.globs import Glob
from mcpvisor.daemon.handlers.policy import PolicyHandler, answer_by, fits
from mcpvisor.daemon.handlers.policy_options import PolicyAction, PolicyOptions, PolicyRule, QuestionMode
from mcpvisor.supervisor.secret import Secret

DECLINE = PolicyRule(action=PolicyAction.DECLINE)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "apiToken": {"type": "string"}, "size": {"type": "string", "default": "M"}},
    "required": ["name"],
}


def asked(**changed: Any) -> HandlerQuestion:
    given: dict[str, Any] = {"id": "1", "server": "git", "mode": "form", "message": "x", "schema": SCHEMA, "tool": "commit"}
    return HandlerQuestion(**{**given, **changed})


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, True),
        ({"servers": (Glob("g*"), Glob("x"))}, True),
        ({"servers": (Glob("github"),)}, False),
        ({"tools": (Glob("commit"),)}, True),
        ({"tools": (Glob("push"),)}, False),
        ({"modes": (QuestionMode.FORM,)}, True),
        ({"modes": (QuestionMode.URL,)}, False),
        ({"requires": ("name",)}, True),
        ({"requires": ("name", "size")}, False),
        ({"asks": (Glob("*token*"), Glob("*password*"))}, True),
        ({"asks": (Glob("*password*"),)}, False),
        ({"servers": (Glob("git"),), "tools": (Glob("push"),)}, False),
    ],
)
def test_all_conditions_of_a_rule_hold_or_it_does_not_fit(conditions: dict[str, Any], expected: bool) -> None:
    """Server, tool, mode, required properties, and any property asked for; a rule without conditions fits everything."""
    assert expected == fits(PolicyRule(action=PolicyAction.CANCEL, **conditions), asked())


def test_a_rule_for_tools_fits_no_question_without_one() -> None:
    """What belongs to no known tool is not of the tools that are named."""
    assert not fits(PolicyRule(action=PolicyAction.ACCEPT, tools=(Glob("**"),)), asked(tool=None))


@pytest.mark.parametrize("name", ["password", "my/Password", "a/b/password/c", "/password"])
def test_no_property_hides_from_a_pattern(name: str) -> None:
    """A name is no path: `*` means all of it, also where a server has put a slash into it."""
    rule = PolicyRule(action=PolicyAction.DECLINE, asks=(Glob("*password*"),))
    schema = {"type": "object", "properties": {name: {"type": "string"}}}

    assert fits(rule, asked(schema=schema))
    assert fits(PolicyRule(action=PolicyAction.DECLINE, asks=(Glob(name.lower()),)), asked(schema=schema))


def test_a_question_with_an_address_has_no_properties() -> None:
    """Conditions on a form do not hold where there is none."""
    rule = PolicyRule(action=PolicyAction.ACCEPT, asks=(Glob("**"),))

    assert not fits(rule, asked(mode="url", schema=None, url="https://a.example/"))


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        (DECLINE, HandlerAnswer(action="decline")),
        (PolicyRule(action=PolicyAction.CANCEL), HandlerAnswer(action="cancel")),
        (PolicyRule(action=PolicyAction.ACCEPT), HandlerAnswer(action="accept", content={})),
        (PolicyRule(action=PolicyAction.ACCEPT, defaults=True), HandlerAnswer(action="accept", content={"size": "M"})),
        (
            PolicyRule(action=PolicyAction.ACCEPT, defaults=True, content=(("size", "L"), ("name", Secret("x")), ("other", 1))),
            HandlerAnswer(action="accept", content={"size": "L", "name": "x"}),
        ),
        (
            PolicyRule(action=PolicyAction.ACCEPT, content=(("name", ("a", "b")),)),
            HandlerAnswer(action="accept", content={"name": ["a", "b"]}),
        ),
    ],
)
def test_what_a_rule_answers(rule: PolicyRule, answer: HandlerAnswer) -> None:
    """What is fixed goes before the form's defaults; what is not asked for is left out; secrets leave as their value."""
    assert answer == answer_by((rule, DECLINE), asked())


def test_consent_to_an_address_has_no_content() -> None:
    """A rule for both modes accepts an address without one."""
    rule = PolicyRule(action=PolicyAction.ACCEPT, content=(("name", "x"),))

    assert HandlerAnswer(action="accept") == answer_by((rule,), asked(mode="url", schema=None, url="https://a.example/"))


@pytest.mark.anyio
async def test_the_first_rule_that_fits_counts_and_else_it_is_a_decline() -> None:
    """Rules stand in their order; where none fits, nothing is accepted."""
    rules = (
        PolicyRule(action=PolicyAction.ACCEPT, servers=(Glob("x"),)),
        PolicyRule(action=PolicyAction.CANCEL, servers=(Glob("git"),)),
    )
    handler = PolicyHandler(PolicyOptions(rules=rules))

    assert "cancel" == (await handler.answer(asked())).action
    assert "decline" == (await handler.answer(asked(server="y"))).action
