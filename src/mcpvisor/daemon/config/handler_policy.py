"""Owns the keys of a handler of type `policy`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

from mcpvisor.daemon.config.argument_secrets import named_secret
from mcpvisor.daemon.config.entry_scope import Item, kind_of
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.globs import MAX_PATTERN, Glob
from mcpvisor.daemon.handlers.policy_options import (
    ContentValue,
    PolicyAction,
    PolicyOptions,
    PolicyRule,
    QuestionMode,
)

RULE_EXPECTED: Final = 'a table such as { server = "docs", action = "decline" }'
MODE_EXPECTED: Final = '"form" or "url"'
VALUE_EXPECTED: Final = "a text, a number, true or false, or a list of texts"

_T = TypeVar("_T")


def read_policy(entry: TableReader) -> PolicyOptions:
    """`type = "policy"`, `rules`."""
    rules: list[PolicyRule] = []
    for element in entry.elements("rules"):
        table = entry.table_of(element)
        if table is None:
            entry.scope.problem(element, f"is {kind_of(element.value)}", expected=RULE_EXPECTED)
            continue
        if table.item("action") is None:
            entry.scope.problem(element, "the action is missing", expected=RULE_EXPECTED)
        rules.append(_rule(table))
        table.finish()
    return PolicyOptions(rules=tuple(rules))


def _rule(table: TableReader) -> PolicyRule:
    rule = PolicyRule(
        action=table.choice("action", PolicyAction.DECLINE),
        servers=_globs(table, "server"),
        tools=_globs(table, "tool"),
        modes=_each(table, "mode", QuestionMode, MODE_EXPECTED),
        requires=table.words("requires"),
        asks=tuple(Glob(glob.pattern.lower()) for glob in _globs(table, "asks")),
        content=_content(table),
        defaults=table.flag("defaults", False),
    )
    _check(table, rule)
    return rule


def _check(table: TableReader, rule: PolicyRule) -> None:
    """Name what can never come to pass: a person who has written it has meant something else."""
    if rule.action is not PolicyAction.ACCEPT:
        for key in ("content", "defaults"):
            if (item := table.item(key)) is not None:
                table.scope.problem(item, "only an accepted form has a content", expected='action = "accept"')
    if rule.modes == (QuestionMode.URL,):
        for key in ("requires", "asks", "content", "defaults"):
            if (item := table.item(key)) is not None:
                table.scope.problem(item, "a question of this mode has no form", expected='mode = "form"')


def _globs(table: TableReader, key: str) -> tuple[Glob, ...]:
    def convert(pattern: str) -> Glob:
        if not 0 < len(pattern) <= MAX_PATTERN:
            raise ValueError
        return Glob(pattern)

    return _each(table, key, convert, f"patterns of 1 to {MAX_PATTERN} characters")


def _each(table: TableReader, key: str, convert: Callable[[str], _T], expected: str) -> tuple[_T, ...]:
    """What `convert` makes of each word; its ValueError becomes a problem with `expected`."""
    found: list[_T] = []
    for word in table.condition(key):
        try:
            found.append(convert(word))
        except ValueError:
            item = table.item(key)
            assert item is not None
            table.scope.problem(item, "has a word that is not known here", expected=expected)
    return tuple(found)


def _content(table: TableReader) -> tuple[tuple[str, ContentValue], ...]:
    inner = table.table("content")
    if inner is None:
        return ()
    values = ((name, _value(inner, name, item)) for name, item in inner.all_items().items())
    return tuple((name, value) for name, value in values if value is not None)


def _value(table: TableReader, name: str, item: Item) -> ContentValue | None:
    value: Any = item.value
    if isinstance(value, str):
        text = table.text_of(item)
        return None if text is None else named_secret(name, text)
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        texts = [table.text_of(element) for element in table.elements(name)]
        return tuple(named_secret(name, text) for text in texts if text is not None)
    table.scope.problem(item, f"is {kind_of(value)}", expected=VALUE_EXPECTED)
    return None
