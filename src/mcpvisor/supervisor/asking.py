"""Owns the questions of one server: which it may ask, how many, who gets each, and what it hears where nobody answers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.open_calls import Origin
from mcpvisor.supervisor.questions import ELICITATION, QUESTION_METHODS, ROOTS, SAMPLING, Question, QuestionSink
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.transports.codec import encode
from mcpvisor.supervisor.transports.exchange import PeerRefusal

JsonObject = dict[str, Any]

MAX_OPEN: Final = 16
"""Questions of one server that are open at one time."""
PER_SECOND: Final = 5.0
BURST: Final = 20
"""Questions that a server may ask of one identity, and of nobody, at once after it was silent for a while."""
REFUSALS_TOLD: Final = 1.0
"""Seconds between two reports of questions that were too many."""

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603

DECLINED: Final[JsonObject] = {"action": "decline"}
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})
_KEY_OF: Final = {SAMPLING: "sampling", ROOTS: "roots"}
"""What has to be in `allow` for a method to be offered."""

_METHOD: Final = 100

_log = logging.getLogger(__name__)


async def decline(question: Question) -> JsonObject:
    """Answer for nobody: no to every elicitation, no roots, and no model to sample from. Raises PeerRefusal."""
    if question.method == ELICITATION:
        return dict(DECLINED)
    if question.method == ROOTS:
        return {"roots": []}
    raise PeerRefusal(METHOD_NOT_FOUND, "nobody is there to sample for")


def capabilities(allow: tuple[str, ...]) -> JsonObject:
    """What is declared to servers of the older era that they may ask."""
    declared: JsonObject = {"elicitation": {"form": {}, "url": {}}}
    if "sampling" in allow:
        declared["sampling"] = {}
    if "roots" in allow:
        declared["roots"] = {"listChanged": True}
    return declared


def restricted(declared: JsonObject, allow: tuple[str, ...]) -> JsonObject:
    """The capabilities of a client as far as the server may use them."""
    return {name: value for name, value in declared.items() if name not in _KEY_OF.values() or name in allow}


class _Allowance:
    """How many questions are let through: `BURST` at once, and `PER_SECOND` from then on."""

    def __init__(self) -> None:
        self._tokens = float(BURST)
        self._counted_at = anyio.current_time()

    @property
    def is_whole(self) -> bool:
        """Whether it is as it was in the beginning."""
        return self._now() >= BURST

    def take(self) -> bool:
        """Let one through; False where it is one too many."""
        self._tokens, self._counted_at = self._now(), anyio.current_time()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _now(self) -> float:
        return min(float(BURST), self._tokens + (anyio.current_time() - self._counted_at) * PER_SECOND)


class QuestionReport(Protocol):
    """Who is told of the questions of a server; every method is quick and free of failure."""

    def question_asked(self, question: Question) -> None:
        """A question was let through."""
        ...

    def question_answered(self, question: Question, outcome: str, by: str, seconds: float) -> None:
        """It is over; see `QuestionAnswered` for the words."""
        ...

    def refused(self, reason: str, detail: str) -> None:
        """Questions were refused; see `WireHooks`."""
        ...


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a question ended: what the server gets, and in which word it is told."""

    outcome: str
    result: JsonObject | None = None
    refusal: PeerRefusal | None = None


class Asking:
    """The questions of one server, over all its sessions. `sink` answers what belongs to no call that has a sink of its own."""

    def __init__(self, spec: ServerSpec, sink: QuestionSink, report: QuestionReport) -> None:
        self.spec = spec
        """Written by the actor; what it allows holds from the next question on."""
        self._sink = sink
        self._report = report
        self._open = 0
        self._allowances: dict[str, _Allowance] = {}
        """By the identity whose call it is, empty where that is not known: whose calls ask much takes nothing from another."""
        self._refused = 0
        self._told_at = float("-inf")

    async def answer(self, method: str, params: JsonObject, origin: Origin) -> JsonObject:
        """The result for a request of the server. Raises PeerRefusal; cancelled when nobody waits for the answer."""
        if method not in QUESTION_METHODS or _KEY_OF.get(method, "") not in ("", *self.spec.allow):
            raise PeerRefusal(METHOD_NOT_FOUND, f"Method not found: {clean_text(method, _METHOD)}")
        call = origin.call
        self._admit(call.principal.name if call is not None else "")
        question = Question(
            server=self.spec.name,
            method=method,
            params=params,
            belongs=origin.belongs,
            principal=call.principal if call is not None else None,
            tool=origin.tool,
        )
        by, sink = ("caller", call.sink) if call is not None and call.sink is not None else ("default", self._sink)
        began = anyio.current_time()
        outcome = "withdrawn"
        self._open += 1
        self._report.question_asked(question)
        try:
            with origin.waiting():
                ended = await self._ask(question, sink, origin)
            outcome = ended.outcome
        finally:
            self._open -= 1
            self._report.question_answered(question, outcome, by, anyio.current_time() - began)
        for one in origin.suspects:
            one.was_answered = True
        if ended.refusal is not None:
            raise ended.refusal
        assert ended.result is not None
        return ended.result

    async def _ask(self, question: Question, sink: QuestionSink, origin: Origin) -> _Ended:
        """Whatever befalls the sink is a no; only who cancels from outside cancels the question."""
        with anyio.CancelScope() as scope:
            if origin.call is None:
                return await self._answered(question, sink)
            with origin.call.owning(scope):
                return await self._answered(question, sink)
        return _no(question, "call_ended")

    @staticmethod
    async def _answered(question: Question, sink: QuestionSink) -> _Ended:
        await anyio.lowlevel.checkpoint()  # the call may be over by now
        try:
            result = await sink(question)
            encode(result)
        except PeerRefusal as refusal:
            return _Ended("refused", refusal=refusal)
        except Exception:  # noqa: BLE001 - whatever breaks in an answerer, the session goes on
            _log.exception("a question of %s (%s) could not be put to anybody", question.server, question.method)
            return _no(question, "failed")
        if question.method != ELICITATION:
            return _Ended("answered", result)
        action = result.get("action")
        return _Ended(str(action), result) if action in _ACTIONS else _no(question, "failed")

    def _admit(self, whose: str) -> None:
        """Let a question through. Raises PeerRefusal where there are too many."""
        now = anyio.current_time()
        self._allowances = {name: one for name, one in self._allowances.items() if name == whose or not one.is_whole}
        if self._open < MAX_OPEN and self._allowances.setdefault(whose, _Allowance()).take():
            return
        self._refused += 1
        if now - self._told_at >= REFUSALS_TOLD:
            rule = f"{MAX_OPEN} questions at one time" if self._open >= MAX_OPEN else f"{PER_SECOND:g} questions a second"
            self._report.refused("rate", f"more than {rule}: {self._refused} refused")
            self._told_at, self._refused = now, 0
        raise PeerRefusal(INTERNAL_ERROR, "too many questions at one time; ask again later")


def _no(question: Question, outcome: str) -> _Ended:
    if question.method == ELICITATION:
        return _Ended(outcome, dict(DECLINED))
    return _Ended(outcome, refusal=PeerRefusal(INTERNAL_ERROR, "nobody has answered"))
