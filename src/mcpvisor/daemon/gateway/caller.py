"""Owns what the gateway knows of a request before the SDK sees it, and how it is carried along."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcpvisor.daemon.gateway.sessions import Session

_SCOPE_KEY: Final = "mcpvisor.caller"


@dataclass(slots=True)
class Caller:
    """Who a request is made for, and in which session; `session` is None in the era that has none."""

    principal: str
    session: Session | None = None


def set_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Say who makes the request of this ASGI scope."""
    scope[_SCOPE_KEY] = caller


def caller_of(scope: MutableMapping[str, Any]) -> Caller:
    """Who makes the request of this ASGI scope. Raises KeyError where the guard was bypassed."""
    caller = scope[_SCOPE_KEY]
    assert isinstance(caller, Caller)
    return caller
