"""Owns the questions that an operator answers: each is held until somebody does, or nobody waits any more."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from mcpvisor.daemon.handlers.contract import HandlerAnswer, HandlerQuestion


@dataclass(slots=True)
class _Held:
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: HandlerAnswer | None = None


class Operator:
    """The built-in handler of the name `operator`."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`: what `settle` says of this question."""
        held = self._held[question.id] = _Held()
        try:
            await held.answered.wait()
        finally:
            del self._held[question.id]
        assert held.answer is not None
        return held.answer

    def settle(self, identity: str, answer: HandlerAnswer) -> bool:
        """Answer a question; false where none of that id is held, or it was just answered."""
        held = self._held.get(identity)
        if held is None or held.answered.is_set():
            return False
        held.answer = answer
        held.answered.set()
        return True
