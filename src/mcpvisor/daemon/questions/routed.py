"""Owns where the routes lead for a question: to which handler, and how long that one may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerQuestion, QuestionHandler
from mcpvisor.daemon.handlers.policy import PolicyHandler
from mcpvisor.daemon.handlers.policy_options import PolicyOptions
from mcpvisor.daemon.handlers.routing import Routing, Subject
from mcpvisor.daemon.handlers.specs import OPERATOR, HandlerSpec
from mcpvisor.daemon.questions.desk import Route

Running = Callable[[str], QuestionHandler | None]
"""The handler of that name that runs and answers questions, for the types whose handlers live longer than one question."""


class RoutedQuestions:
    """See `HandlerFor`. `routing` and `specs` are what is in force now."""

    def __init__(
        self, routing: Callable[[], Routing], specs: Callable[[], Mapping[str, HandlerSpec]], running: Running
    ) -> None:
        self._routing = routing
        self._specs = specs
        self._running = running

    def __call__(self, question: HandlerQuestion) -> Route | None:
        """The first handler that the routes name: a question has one answer."""
        ways = self._routing().ways(Subject(kind="elicitation", server=question.server, tool=question.tool))
        if not ways:
            return None
        name = ways[0].handler
        if name == OPERATOR:
            return Route(OPERATOR, None)
        spec = self._specs()[name]
        if isinstance(spec.options, PolicyOptions):
            return Route(name, PolicyHandler(spec.options), spec.deadline)
        return Route(name, self._running(name) or _Absent(), spec.deadline)


class _Absent:
    """Stands for a handler that does not run now."""

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`."""
        del question
        raise DeliveryFailed("it does not run, or answers no questions")
