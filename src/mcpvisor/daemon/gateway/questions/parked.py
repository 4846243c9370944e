"""Owns the calls that may wait for their client: how each goes on, which are parked, how long, and that each is taken once."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from mcpvisor.daemon.gateway.asking import Hearing, Line
from mcpvisor.daemon.questions.contract import CanBeAsked

JsonObject = dict[str, Any]


class NotReached(Exception):
    """The client cannot be asked just now; the text says why, for people."""


@dataclass(slots=True, eq=False)
class _Open:
    """One question that has no answer yet."""

    method: str
    params: JsonObject
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: JsonObject | None = None
    """None, once it is done, where the client is not asked after all."""


class ParkableCall:
    """One call to a server that may outlast the request of its client; for the server's questions it is that client's door.

    It runs in a task of its own. A request that attends to it gets its outcome, or the questions that are open; while none
    does, it is parked.
    """

    def __init__(self, line: Line, can: CanBeAsked) -> None:
        self.can = can
        """What the client has declared with the request that attends to it, or did so last."""
        self.scope = anyio.CancelScope()
        self._line = line
        self._result: JsonObject = {}
        self._failure: Exception | None = None
        self._is_over = False
        self._taken = anyio.Event()
        self._open: dict[str, _Open] = {}
        self._asked = 0
        self._changed = anyio.Event()

    async def run(self, request: Callable[[], Awaitable[JsonObject]]) -> None:
        """Make the call, and keep its outcome until it is taken. Never raises."""
        with self.scope:
            try:
                self._result = await request()
            except Exception as error:  # noqa: BLE001 - it is raised where somebody attends to the call
                self._failure = error
            self._is_over = True
            self._stir()
            await self._taken.wait()

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """See `ClientDoor`. Raises NotReached where there is no place to park the call."""
        self._asked += 1
        key, question = f"question-{self._asked}", _Open(method, params)
        self._open[key] = question
        self._stir()
        try:
            await question.done.wait()
        finally:
            self._open.pop(key, None)
        if question.answer is None:
            raise NotReached("too many calls wait for their clients already")
        return question.answer

    async def attend(self, hearing: Hearing) -> JsonObject | None:
        """The result of the call; None once the server asks something instead. Raises what the call has raised.

        Cancelling it withdraws the call.
        """
        self._line.hearing = hearing
        try:
            while not self._is_over and not self._open:
                await self._changed.wait()
        except anyio.get_cancelled_exc_class():
            self.scope.cancel()
            raise
        finally:
            self._line.hearing = None
        if not self._is_over:
            return None
        self._taken.set()
        failure, self._failure = self._failure, None
        if failure is None:
            return self._result
        try:
            raise failure
        finally:
            failure = None  # its traceback holds this frame, which must not hold it in turn

    @property
    def questions(self) -> dict[str, JsonObject]:
        """What is open, as a client of 2026-07-28 is asked it."""
        return {key: {"method": one.method, "params": one.params} for key, one in self._open.items()}

    def answered(self, answers: JsonObject, can: CanBeAsked) -> None:
        """The client's answers by the keys of their questions: what it leaves out stays open, what is not open is dropped."""
        self.can = can
        for key in [key for key in self._open if isinstance(answers.get(key), dict)]:
            self._close(key, answers[key])

    def turn_away(self) -> None:
        """Let somebody else answer what is open."""
        for key in list(self._open):
            self._close(key, None)

    def _close(self, key: str, answer: JsonObject | None) -> None:
        question = self._open.pop(key)
        question.answer = answer
        question.done.set()

    def _stir(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class ParkedCalls:
    """The calls that are parked, by handle; a principal has a share of the places."""

    def __init__(self, tasks: anyio.abc.TaskGroup, *, places: int, places_per_principal: int, seconds: float) -> None:
        """A call that nobody comes for within `seconds` is withdrawn from its server. `tasks` is what calls run in."""
        self._tasks = tasks
        self._places = places
        self._places_per_principal = places_per_principal
        self._seconds = seconds
        self._parked: dict[str, tuple[str, ParkableCall]] = {}
        self._of: Counter[str] = Counter()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._parked)

    def begin(self, call: ParkableCall, request: Callable[[], Awaitable[JsonObject]]) -> None:
        """Let a call run; from now on it is attended to or parked until it is over."""
        self._tasks.start_soon(call.run, request)

    def park(self, call: ParkableCall, principal: str) -> str | None:
        """A handle under which the call can be taken up once; None where there is no place for it."""
        self._forget_over()
        if self._is_closed or len(self) >= self._places or self._of[principal] >= self._places_per_principal:
            return None
        handle = secrets.token_hex(16)
        self._parked[handle] = principal, call
        self._of[principal] += 1
        call.scope.deadline = anyio.current_time() + self._seconds
        return handle

    def take(self, handle: str) -> ParkableCall | None:
        """The call of a handle, which is parked no more; None where there is none."""
        self._forget_over()
        if handle not in self._parked:
            return None
        call = self._drop(handle)
        call.scope.deadline = math.inf
        return call

    def close(self) -> None:
        """Withdraw every parked call, and park no more."""
        self._is_closed = True
        for handle in list(self._parked):
            self._drop(handle).scope.cancel()

    def _forget_over(self) -> None:
        """Forget those whose time is over; they were parked in the order in which it ends."""
        now = anyio.current_time()
        while self._parked:
            handle, (_, call) = next(iter(self._parked.items()))
            if call.scope.deadline > now:
                return
            self._drop(handle)

    def _drop(self, handle: str) -> ParkableCall:
        principal, call = self._parked.pop(handle)
        self._of[principal] -= 1
        if not self._of[principal]:
            del self._of[principal]
        return call
