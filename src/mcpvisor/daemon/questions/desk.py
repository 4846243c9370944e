"""Owns the way of every question of a server, from its asking to what the server gets, however whoever is asked may fail."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import anyio

from mcpvisor.daemon.handlers.contract import HandlerAnswer, HandlerQuestion, QuestionHandler
from mcpvisor.daemon.questions.contract import ClientDoor, JsonObject, Prepared, Unaskable, Verdict
from mcpvisor.daemon.questions.deciding import Decision, To, decide
from mcpvisor.daemon.questions.open_questions import CLIENT, OPERATOR, OpenQuestion, OpenQuestions, TooMany, new_id
from mcpvisor.daemon.questions.operator import Operator
from mcpvisor.daemon.questions.pace import Pace
from mcpvisor.daemon.questions.preparing import declined, judge, mode_of, prepare, secrets_of_answer
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.events import ServerEvent
from mcpvisor.supervisor.host_events import QuestionPut, QuestionSettled
from mcpvisor.supervisor.questions import ELICITATION, Question, QuestionSink
from mcpvisor.supervisor.transports.exchange import PeerRefusal

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
_WHY: Final = 500


@dataclass(frozen=True, slots=True)
class Route:
    """Where the routes lead for one question. `handler` is None for the built-in one, `operator`.

    `deadline` is how many seconds this handler may take, where that is less than what any question has.
    """

    name: str
    handler: QuestionHandler | None
    deadline: float | None = None


HandlerFor = Callable[[HandlerQuestion], Route | None]
"""Where the routes lead for a question; None where none fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskLimits:
    """How long a question may take, in seconds, and how many may be open."""

    deadline: float = 300.0
    per_server: int = 16
    per_client: int = 16


class NotOpen(Exception):
    """No open question has that id, or it waits for somebody else; the text says so."""


class DoesNotFit(Exception):
    """An answer that the server would not understand; the text names what is wrong with it."""


class Desk:
    """The one place through which questions of servers pass.

    `tell` takes the events of what becomes of them, `handler_for` is what the routes say, `allowed` what the entry of a server
    allows it to ask of programs (`sampling`, `roots`).
    """

    def __init__(
        self,
        limits: DeskLimits,
        *,
        tell: Callable[[ServerEvent], None],
        handler_for: HandlerFor,
        allowed: Callable[[str], Collection[str]],
        given: Callable[[str, Sequence[str]], None] = lambda _server, _texts: None,
    ) -> None:
        """`given` takes, before the server has them, the texts of an answer that it must not be heard to repeat."""
        self._limits = limits
        self._tell = tell
        self._handler_for = handler_for
        self._allowed = allowed
        self._given = given
        self._open = OpenQuestions(limits.per_server, limits.per_client)
        self._operator = Operator()
        self._pace = Pace()

    # What servers ask

    def sink(self, client: ClientDoor | None = None) -> QuestionSink:
        """`ask` for one client, or for none, as the supervisor takes it."""
        return partial(self.ask, client=client)

    def has_handler(self, server: str, tool: str | None) -> bool:
        """Whether a handler answers elicitations of such a call where its client cannot be asked."""
        return self._handler_for(HandlerQuestion(id="", server=server, mode="form", message="", tool=tool)) is not None

    async def ask(self, question: Question, client: ClientDoor | None = None) -> JsonObject:
        """The raw result for the server; whatever befalls whoever is asked is a decline. Raises PeerRefusal.

        Cancelling it withdraws the question from whoever is asked.
        """
        progress = _Progress(question, new_id(), self._tell)
        try:
            async with self._pace.step():
                prepared = prepare(question)
        except Unaskable as unaskable:
            return progress.settled_by_nobody(str(unaskable))
        asked = _for_handlers(prepared, progress.id)
        route = self._handler_for(asked) if prepared.mode is not None else None
        can = client.can if client is not None else None
        allowed = frozenset(self._allowed(question.server))
        decision = decide(question, prepared.mode, can, has_handler=route is not None, allowed=allowed)
        way = self._way(decision, prepared, asked, client, route)
        if way is None:
            return progress.settled_by_nobody(decision.why)
        try:
            with self._open.opened(progress.id, prepared, way.whom, way.seconds) as one, progress.put(one):
                verdict = await self._answered(prepared, way)
                self._given(question.server, secrets_of_answer(verdict.result, is_clients=way.whom == CLIENT))
                return progress.settled(verdict)
        except TooMany as too_many:
            return progress.settled_by_nobody(str(too_many))

    def _way(
        self, decision: Decision, prepared: Prepared, asked: HandlerQuestion, client: ClientDoor | None, route: Route | None
    ) -> _Way | None:
        """How the decision is carried out; None where nobody is asked."""
        seconds = self._limits.deadline
        if decision.to is To.CLIENT and client is not None:
            return _Way(CLIENT, seconds, partial(client.ask, prepared.question.method, prepared.params))
        if decision.to is not To.HANDLER or route is None:
            return None
        if route.handler is None:
            return _Way(OPERATOR, seconds, partial(_by_handler, self._operator, asked))
        return _Way(
            f"handler {route.name}", min(seconds, route.deadline or seconds), partial(_by_handler, route.handler, asked)
        )

    async def _answered(self, prepared: Prepared, way: _Way) -> Verdict:
        """What the server gets. Raises PeerRefusal, for what is no elicitation."""
        with anyio.move_on_after(way.seconds):
            try:
                answer = await way.answer()
                async with self._pace.step():
                    return judge(prepared, answer)
            except PeerRefusal as refusal:
                if prepared.mode is None:
                    raise
                return declined(f"the {way.whom} answered with an error: {clean_text(refusal.message, _WHY)}")
            except Exception as error:  # noqa: BLE001 - whatever breaks in whoever is asked, the server gets its answer
                why = clean_text(str(error) or type(error).__name__, _WHY)
                return _unanswered(prepared, f"the {way.whom} failed: {why}")
        return _unanswered(prepared, f"no answer of the {way.whom} within {way.seconds:g} s")

    # What operators see and answer

    def open(self) -> Iterable[OpenQuestion]:
        """The questions that are open, the oldest first."""
        return iter(self._open)

    @property
    def waiting_for_operator(self) -> int:
        """How many questions an operator is to answer."""
        return self._open.waiting_for(OPERATOR)

    def answer(self, identity: str, answer: HandlerAnswer) -> OpenQuestion:
        """Answer a question for the operator, and return it. Raises NotOpen, and DoesNotFit while it stays open."""
        one = self._open.get(identity)
        if one is None:
            raise NotOpen(f"no open question has the id {clean_text(identity, 40)!r}; `mcpvisor elicitations` lists them")
        if one.whom != OPERATOR:
            raise NotOpen(f"question {identity} waits for the {one.whom}, who alone can answer it")
        verdict = judge(one.prepared, asdict(answer))
        if verdict.why:
            raise DoesNotFit(verdict.why)
        if not self._operator.settle(identity, answer):
            raise NotOpen(f"question {identity} was answered just now")
        return one


class _Progress:
    """What is told of one question: once to whom it was put, if to anybody, and once what became of it."""

    def __init__(self, question: Question, identity: str, tell: Callable[[ServerEvent], None]) -> None:
        self.id = identity
        self._question = question
        self._tell = tell
        self._began = anyio.current_time()
        self._prepared: Prepared | None = None
        self._whom = "nobody"
        self._is_settled = False

    def put(self, one: OpenQuestion) -> _Progress:
        """It was put to somebody; the context settles it as withdrawn or refused where nothing else did."""
        self._prepared, self._whom = one.prepared, one.whom
        principal = self._question.principal
        self._tell(
            QuestionPut(
                at=one.since,
                server=self._question.server,
                id=self.id,
                method=self._question.method,
                mode=one.prepared.mode or "",
                tool=self._tool(),
                whom=one.whom,
                principal=principal.name if principal is not None else "",
                properties=one.prepared.properties,
                deadline=one.deadline,
            )
        )
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: object) -> None:
        if not self._is_settled:
            is_refused = isinstance(value, PeerRefusal)
            self._settle("refused" if is_refused else "withdrawn", clean_text(str(value), _WHY) if is_refused else "")

    def settled(self, verdict: Verdict) -> JsonObject:
        """The result of a verdict, once it was told."""
        given = verdict.result.get("content") if verdict.action == "accept" else None
        self._settle(verdict.action or ("failed" if verdict.why else "answered"), verdict.why, tuple(given or ()))
        if verdict.action is None and verdict.why:
            raise PeerRefusal(INTERNAL_ERROR, verdict.why)
        return verdict.result

    def settled_by_nobody(self, why: str) -> JsonObject:
        """The decline, or the refusal, of a question that nobody was asked. Raises PeerRefusal."""
        is_elicitation = self._question.method == ELICITATION
        self._settle("decline" if is_elicitation else "refused", why)
        if is_elicitation:
            return declined(why).result
        raise PeerRefusal(METHOD_NOT_FOUND, f"Method not found: {clean_text(self._question.method, 100)}")

    def _settle(self, action: str, why: str, properties: tuple[str, ...] = ()) -> None:
        self._is_settled = True
        question = self._question
        mode = (mode_of(question) or "other") if question.method == ELICITATION else ""
        self._tell(
            QuestionSettled(
                at=time.time(),
                server=question.server,
                id=self.id,
                method=clean_text(question.method, 100),
                mode=mode,
                tool=self._tool(),
                by=self._whom,
                action=action,
                properties=properties,
                seconds=anyio.current_time() - self._began,
                why=why,
            )
        )

    def _tool(self) -> str:
        return clean_text(self._question.tool or "", 128)


@dataclass(frozen=True, slots=True)
class _Way:
    """Whom a question is put to, for how many seconds at the most, and how."""

    whom: str
    seconds: float
    answer: Callable[[], Awaitable[Any]]


async def _by_handler(handler: QuestionHandler, question: HandlerQuestion) -> JsonObject:
    return asdict(await handler.answer(question))


def _for_handlers(prepared: Prepared, identity: str) -> HandlerQuestion:
    return HandlerQuestion(
        id=identity,
        server=prepared.question.server,
        mode=prepared.mode or "form",
        message=prepared.message,
        schema=prepared.params.get("requestedSchema"),
        url=prepared.url,
        tool=prepared.question.tool,
        meta=prepared.params.get("_meta", {}),
    )


def _unanswered(prepared: Prepared, why: str) -> Verdict:
    """No answer: a decline, or for what is no elicitation the error of a client that has failed."""
    return declined(why) if prepared.mode is not None else Verdict(result={}, action=None, why=why)
