"""Owns where the routes lead for a question: to which handler, and how long that one may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerQuestion, QuestionHandler
from mcpvisor.daemon.handlers.policy import PolicyHandler
from mcpvisor.daemon.handlers.policy_options import PolicyOptions
from mcpvisor.daemon.handlers.routing import Routing, Subject
from mcpvisor.daemon.handlers.specs import OPERATOR, HandlerSpec
from mcpvisor.daemon.questions.desk import Route


class Engine(Protocol):
    """What is in force of handlers."""

    @property
    def routing(self) -> Routing:
        """The routes."""
        ...

    def object_of(self, handler: str) -> object | None:
        """What runs for the handler of that name, which may answer questions; None while there is nothing."""
        ...


class RoutedQuestions:
    """See `HandlerFor`. `engine` is asked for anew with each question, `specs` are those in force now."""

    def __init__(self, engine: Callable[[], Engine], specs: Callable[[], Mapping[str, HandlerSpec]]) -> None:
        self._engine = engine
        self._specs = specs

    def __call__(self, question: HandlerQuestion) -> Route | None:
        """The first handler that the routes name: a question has one answer."""
        ways = self._engine().routing.ways(Subject(kind="elicitation", server=question.server, tool=question.tool))
        if not ways:
            return None
        name = ways[0].handler
        if name == OPERATOR:
            return Route(OPERATOR, None)
        spec = self._specs().get(name)
        if spec is not None and isinstance(spec.options, PolicyOptions):
            return Route(name, PolicyHandler(spec.options), spec.deadline)
        running = self._engine().object_of(name)
        handler = running if isinstance(running, QuestionHandler) else _Absent()
        return Route(name, handler, spec.deadline if spec is not None else None)


class _Absent:
    """Stands for a handler that does not run now."""

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`."""
        del question
        raise DeliveryFailed("it does not run, or answers no questions")
