"""Owns the handler of type `policy`: an answer by the first rule that fits, decided at once and by nothing but the question."""

from __future__ import annotations

from typing import Any

from mcpvisor.daemon.handlers.contract import HandlerAnswer, HandlerQuestion, JsonObject
from mcpvisor.daemon.handlers.globs import any_matches
from mcpvisor.daemon.handlers.policy_options import ContentValue, PolicyAction, PolicyOptions, PolicyRule
from mcpvisor.supervisor.secret import Secret, reveal


class PolicyHandler:
    """Answers questions by the rules of one handler."""

    def __init__(self, options: PolicyOptions) -> None:
        self._options = options

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`."""
        return answer_by(self._options.rules, question)


def answer_by(rules: tuple[PolicyRule, ...], question: HandlerQuestion) -> HandlerAnswer:
    """What the first rule that fits says; a decline where none does."""
    rule = next((rule for rule in rules if fits(rule, question)), None)
    if rule is None:
        return HandlerAnswer(action="decline")
    if rule.action is not PolicyAction.ACCEPT or question.mode == "url":
        return HandlerAnswer(action=rule.action.value)
    return HandlerAnswer(action="accept", content=_content(rule, _properties(question)))


def fits(rule: PolicyRule, question: HandlerQuestion) -> bool:
    """Whether a rule is for a question."""
    properties = _properties(question)
    required = (question.schema or {}).get("required", [])
    return (
        (not rule.servers or any_matches(rule.servers, question.server))
        and (not rule.tools or (question.tool is not None and any_matches(rule.tools, question.tool)))
        and (not rule.modes or question.mode in rule.modes)
        and all(name in required for name in rule.requires)
        and (not rule.asks or any(any_matches(rule.asks, one) for name in properties for one in _spellings(name)))
    )


def _spellings(name: str) -> tuple[str, ...]:
    """A property's name as patterns are held against it: it is no path, and a `/` in it must not hide it from a `*`."""
    lower = name.lower()
    return (lower, lower.replace("/", "_")) if "/" in lower else (lower,)


def _properties(question: HandlerQuestion) -> JsonObject:
    properties = (question.schema or {}).get("properties", {})
    return properties if isinstance(properties, dict) else {}


def _content(rule: PolicyRule, properties: JsonObject) -> JsonObject:
    """What is fixed, and where it is wanted the form's own defaults; all of it only as far as it is asked for."""
    content: JsonObject = {}
    if rule.defaults:
        content |= {name: field["default"] for name, field in properties.items() if "default" in field}
    return content | {name: _plain(value) for name, value in rule.content if name in properties}


def _plain(value: ContentValue) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    return [reveal(one) for one in value] if isinstance(value, tuple) else value
