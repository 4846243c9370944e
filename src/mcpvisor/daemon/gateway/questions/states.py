"""Owns what a sealed `requestState` holds: where a call goes on when its client comes back with the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mcpvisor.daemon.gateway.crossing import rejected
from mcpvisor.daemon.gateway.questions.sealing import Seals
from mcpvisor.supervisor.errors import Outcome, RequestFailed

JsonObject = dict[str, Any]

MAX_CONTENT: Final = 64 * 1024
"""Bytes that a state may hold: the server's own state, and what it has asked."""

MAX_TEXT: Final = 2 * MAX_CONTENT
"""Characters of a state that is looked at."""


class Parked(msgspec.Struct, tag="parked", frozen=True):
    """The call is held here, under a handle that is good once."""

    handle: str


class Passed(msgspec.Struct, tag="passed", frozen=True):
    """The server of 2026-07-28 is asked again: with its own state, and with the answers to what it has asked."""

    state: str | None
    questions: dict[str, JsonObject]
    """What the client was asked, as the server wrote it."""
    answers: JsonObject
    """What somebody else has answered already, since the client could not be asked for it."""
    ids: dict[str, str]
    """Under which id each question is told of."""
    at: float
    """When the client was asked, in wall-clock seconds."""


class Visit(msgspec.Struct, tag="visit", frozen=True):
    """The server of the handshake era is asked anew, once what it wants visited was visited."""

    questions: dict[str, JsonObject]


Continuation = Parked | Passed | Visit


class _Sealed(msgspec.Struct):
    until: float
    """Wall-clock seconds: a state may be older than the daemon."""
    to: Continuation


class States:
    """Writes and reads states. What is wrong with one is nobody's business: it is unknown."""

    def __init__(self, seals: Seals, seconds: float, now: Callable[[], float] = time.time) -> None:
        """`seconds` is for how long a state is good; `now` gives wall-clock seconds."""
        self._seals = seals
        self.seconds = seconds
        self._now = now

    def write(self, to: Continuation, bound: bytes) -> str:
        """A `requestState` for a client. Raises RequestFailed where the server has said too much to be kept in it."""
        content = msgspec.json.encode(_Sealed(self._now() + self.seconds, to))
        if len(content) > MAX_CONTENT:
            text = f"the server's question and its state are over the {MAX_CONTENT} bytes that are passed on"
            raise RequestFailed(Outcome.MAYBE_EXECUTED, "input_required", text, code=-32603)
        return self._seals.seal(content, bound)

    def read(self, text: str, bound: bytes) -> Continuation:
        """Where a client's call goes on. Raises RequestFailed, the same for whatever reason."""
        content = self._seals.open(text if len(text) <= MAX_TEXT else "", bound)
        if content is None:
            raise unknown_state()
        sealed = msgspec.json.decode(content, type=_Sealed)
        if self._now() > sealed.until:
            raise unknown_state()
        return sealed.to


def unknown_state() -> RequestFailed:
    """The one refusal of a state that is not known, was changed, has been used, is over, or is another's."""
    return rejected("unknown_state", "the requestState is not known here: it was used, is too old, or never was")
