"""Owns the questions that are open: how many may be, and what is known of each while somebody thinks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.questions.contract import Prepared
from mcpvisor.supervisor.principal import Principal

CLIENT: Final = "client"
OPERATOR: Final = "operator"
"""Whom a question waits for; a handler is `handler NAME`. The built-in handler of that name waits for a person."""


class TooMany(Exception):
    """A question that is one too many; the text says by which limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that waits for its answer. `since` and `deadline` are wall-clock seconds, as they were when it was asked."""

    id: str
    prepared: Prepared
    whom: str
    since: float
    deadline: float
    opened_at: float
    """As `since`, by the monotonic clock."""
    seconds: float
    """How long it waits at the most."""


class OpenQuestions:
    """All that are open, the oldest first. `per_server` and `per_client` are the most that may be.

    One identity has at most half of what a server may have, however many clients it is: who answers nothing leaves room.
    """

    def __init__(self, per_server: int, per_client: int) -> None:
        self._per_server = per_server
        self._per_identity = max(1, per_server // 2)
        self._per_client = per_client
        self._open: dict[str, OpenQuestion] = {}

    def __iter__(self) -> Generator[OpenQuestion]:
        yield from self._open.values()

    def get(self, identity: str) -> OpenQuestion | None:
        return self._open.get(identity)

    def waiting_for(self, whom: str) -> int:
        """How many wait for that one."""
        return sum(one.whom == whom for one in self._open.values())

    @contextmanager
    def opened(self, identity: str, prepared: Prepared, whom: str, seconds: float) -> Generator[OpenQuestion]:
        """The question is open as long as the context lasts, and waits `seconds` at the most. Raises TooMany."""
        question = prepared.question
        if sum(one.prepared.question.server == question.server for one in self) >= self._per_server:
            raise TooMany(f"more than {counted(self._per_server, 'question')} of this server would be open")
        if question.principal is not None and self._of_identity(question.principal, question.server) >= self._per_identity:
            raise TooMany(f"more than {counted(self._per_identity, 'question')} of this server to one identity would be open")
        if question.principal is not None and self._of(question.principal) >= self._per_client:
            raise TooMany(f"more than {counted(self._per_client, 'question')} to this client would be open")
        now = time.time()
        one = OpenQuestion(
            id=identity,
            prepared=prepared,
            whom=whom,
            since=now,
            deadline=now + seconds,
            opened_at=anyio.current_time(),
            seconds=seconds,
        )
        self._open[identity] = one
        try:
            yield one
        finally:
            del self._open[identity]

    def _of(self, principal: Principal) -> int:
        return sum(one.prepared.question.principal == principal for one in self)

    def _of_identity(self, principal: Principal, server: str) -> int:
        return sum(
            question.server == server and question.principal is not None and question.principal.name == principal.name
            for question in (one.prepared.question for one in self)
        )


def new_id() -> str:
    """A name for a question that no other one has, short enough to be typed."""
    return secrets.token_hex(5)
