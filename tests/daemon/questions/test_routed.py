"""Where the routes lead for a question."""

from __future__ import annotations

import pytest

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerQuestion
from mcpvisor.daemon.handlers.globs import Glob
from mcpvisor.daemon.handlers.policy import PolicyHandler
from mcpvisor.daemon.handlers.policy_options import PolicyOptions
from mcpvisor.daemon.handlers.routing import Match, Route, Routing, RoutingOptions
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions
from mcpvisor.daemon.questions.routed import RoutedQuestions
from mcpvisor.supervisor.secret import Secret

ASKED = frozenset({"elicitation"})
RULES = HandlerSpec(name="rules", options=PolicyOptions(), deadline=3.0)


class Answerer:
    """Something that runs and answers questions."""

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`."""
        del question
        return HandlerAnswer(action="cancel")


class Engine:
    """What is in force: some routes, and one thing that runs."""

    def __init__(self, routing: Routing, running: object | None = None) -> None:
        self.routing = routing
        self._running = running

    def object_of(self, handler: str) -> object | None:
        """See `Engine`."""
        return self._running if handler == "ask" else None


def question(server: str = "git", tool: str | None = "commit") -> HandlerQuestion:
    return HandlerQuestion(id="1", server=server, mode="form", message="x", tool=tool)


def routed(routing: Routing, *specs: HandlerSpec, running: object | None = None) -> RoutedQuestions:
    engine = Engine(routing, running)
    return RoutedQuestions(lambda: engine, lambda: {spec.name: spec for spec in specs})


def to(*handlers: str, server: str = "**", tools: tuple[Glob, ...] = ()) -> Route:
    return Route(handlers=handlers, kinds=ASKED, servers=(Glob(server),), tools=tools)  # type: ignore[arg-type, unused-ignore]


def test_no_route_leads_nowhere() -> None:
    """Neither a route of other events, nor the default, nor one of another tool is for questions."""
    routing = Routing(
        routes=(Route(handlers=("rules",)), to("rules", tools=(Glob("push"),))), options=RoutingOptions(default=("rules",))
    )

    assert None is routed(routing, RULES)(question())


def test_the_first_handler_is_the_one() -> None:
    """A question has one answer, also where all routes that fit count."""
    routing = Routing(routes=(to("operator", "rules"), to("rules")), options=RoutingOptions(match=Match.ALL))
    route = routed(routing, RULES)(question())
    assert route is not None

    assert ("operator", None, None) == (route.name, route.handler, route.deadline)


def test_a_policy_needs_nothing_that_runs() -> None:
    """Its rules are those in force, and its deadline its own."""
    route = routed(Routing(routes=(to("rules"),)), RULES)(question())
    assert route is not None

    assert ("rules", True, 3.0) == (route.name, isinstance(route.handler, PolicyHandler), route.deadline)


@pytest.mark.anyio
async def test_a_handler_that_runs_answers_and_one_that_does_not_fails() -> None:
    """What takes events only, or is not there now, is a failure with its reason, which is a decline."""
    options = WebhookOptions(url="https://a.example/", secrets=(Secret("s" * 16),))
    spec, routing = HandlerSpec(name="ask", options=options), Routing(routes=(to("ask"),))
    good, mute, gone = (routed(routing, spec, running=running)(question()) for running in (Answerer(), object(), None))
    assert good is not None
    assert good.handler is not None

    assert HandlerAnswer(action="cancel") == await good.handler.answer(question())
    for route in (mute, gone):
        assert route is not None
        assert route.handler is not None
        with pytest.raises(DeliveryFailed, match="does not run, or answers no questions"):
            await route.handler.answer(question())
