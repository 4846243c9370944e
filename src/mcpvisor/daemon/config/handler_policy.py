"""Owns the keys of a handler of type `policy`."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.config.entry_scope import kind_of
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.policy_options import PolicyAction, PolicyOptions, PolicyRule

RULE_EXPECTED: Final = 'a table such as { server = "docs", action = "decline" }'


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
        rules.append(
            PolicyRule(
                action=table.choice("action", PolicyAction.DECLINE), servers=table.words("server"), tools=table.words("tool")
            )
        )
        table.finish()
    return PolicyOptions(rules=tuple(rules))
