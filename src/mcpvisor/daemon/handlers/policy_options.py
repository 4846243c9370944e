"""Owns what can be said of a handler that answers questions by fixed rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PolicyAction(StrEnum):
    """What a rule answers."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """One rule: for which servers and tools it is, as globs, and what is answered."""

    action: PolicyAction
    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """`type = "policy"`: the first rule that fits answers; where none does, the answer is `decline`."""

    rules: tuple[PolicyRule, ...] = ()
