"""Owns what can be said of a handler that answers questions by fixed rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mcpvisor.daemon.handlers.globs import Glob
from mcpvisor.supervisor.secret import Secret

ContentValue = str | Secret | int | float | bool | tuple[str | Secret, ...]
"""A fixed answer to one property, as a configuration can say it."""


class PolicyAction(StrEnum):
    """What a rule answers."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


class QuestionMode(StrEnum):
    """The modes of an elicitation."""

    FORM = "form"
    URL = "url"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """One rule: for which questions it is, and what is answered. All its conditions hold, or it does not fit."""

    action: PolicyAction
    servers: tuple[Glob, ...] = ()
    tools: tuple[Glob, ...] = ()
    modes: tuple[QuestionMode, ...] = ()
    requires: tuple[str, ...] = ()
    """Properties that the form must require, all of them."""
    asks: tuple[Glob, ...] = ()
    """In small letters. Fits where any property of the form, required or not, is one of these, whatever its letters' case."""
    content: tuple[tuple[str, ContentValue], ...] = ()
    """Of an accepted form, by property; those that the form does not ask for are left out."""
    defaults: bool = False
    """Whether the other properties have the defaults that the form gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """`type = "policy"`: the first rule that fits answers; where none does, the answer is `decline`."""

    rules: tuple[PolicyRule, ...] = ()
