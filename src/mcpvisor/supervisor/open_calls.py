"""Owns the calls that are open, as far as questions of their server go: whose one is, and that no time passes meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import anyio

from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import Belongs, QuestionSink
from mcpvisor.supervisor.replay import READ_ONLY

_READS_THAT_ASK = frozenset({"prompts/get", "resources/read"})


def may_ask(method: str) -> bool:
    """Whether a server may ask something in order to answer this.

    Calls, prompts and reads, as revision 2026-07-28 has it, and whatever the protocol does not know.
    """
    return method in _READS_THAT_ASK or method not in READ_ONLY


def may_log(_: str) -> bool:
    """Whether a server may log something while it answers this: it may whatever it is asked."""
    return True


class CallClock:
    """The time of one call, in monotonic seconds: neither of its two ends comes nearer while a question is open."""

    def __init__(self, hard: float, idle: float) -> None:
        """Begins now: `hard` seconds at most in all, `idle` from the last sign of life."""
        now = anyio.current_time()
        self._hard_at = now + hard
        self._idle = idle
        self._idle_at = now + idle
        self._questions = 0
        self._stopped_at = now
        self.scope = anyio.CancelScope()
        """Cancelled when the time is over."""
        self._set()

    @property
    def has_run_out(self) -> bool:
        """Whether the call has had all of its time, rather than none of it without a sign of life."""
        return anyio.current_time() >= self._hard_at

    def heard(self) -> None:
        """The server has given a sign of life."""
        self._idle_at = (self._stopped_at if self._questions else anyio.current_time()) + self._idle
        self._set()

    @contextmanager
    def stopped(self) -> Generator[None]:
        """A question is open: what is left of the time is left afterwards."""
        if not self._questions:
            self._stopped_at = anyio.current_time()
        self._questions += 1
        self._set()
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                waited = anyio.current_time() - self._stopped_at
                self._hard_at += waited
                self._idle_at += waited
            self._set()

    def _set(self) -> None:
        self.scope.deadline = math.inf if self._questions else min(self._hard_at, self._idle_at)


class OpenCall:
    """One request of a caller, from the door until its result; it may be sent more than once."""

    def __init__(
        self,
        method: str,
        principal: Principal,
        *,
        tool: str | None,
        sink: QuestionSink | None,
        clock: CallClock,
        on_pause: Callable[[], None] | None = None,
    ) -> None:
        """`on_pause` is told when the server ends the stream of the answer before that is in, and is asked for the rest."""
        self.method = method
        self.principal = principal
        self.tool = tool
        self.sink = sink
        """Who answers its questions; None: whoever answers those of nobody."""
        self.was_answered = False
        """Whether a question was answered that it may have waited for: to send it again would ask again, or do more."""
        self.has_ended = False
        self._on_pause = on_pause
        self._clock = clock
        self._questions: set[anyio.CancelScope] = set()
        self._watchers: list[Callable[[], None]] = []
        self.questions = 0
        """How many questions are open that it may wait for."""

    def paused(self) -> None:
        """The server has ended the stream of the answer, which is taken up again."""
        if self._on_pause is not None:
            self._on_pause()

    def end(self) -> None:
        """The call is over, and so are its questions."""
        self.has_ended = True
        for scope in self._questions:
            scope.cancel()

    @contextmanager
    def owning(self, scope: anyio.CancelScope) -> Generator[None]:
        """A question of this call is open, which ends with it: `scope` is cancelled then."""
        self._questions.add(scope)
        if self.has_ended:
            scope.cancel()
        try:
            yield
        finally:
            self._questions.discard(scope)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """The call may be waiting for the answer to a question."""
        with self._clock.stopped():
            self._count(1)
            try:
                yield
            finally:
                self._count(-1)

    def _count(self, by: int) -> None:
        self.questions += by
        for watcher in self._watchers:
            watcher()

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Generator[None]:
        """Call `watcher` whenever the number of its open questions changes."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something that a server says comes from."""

    belongs: Belongs
    call: OpenCall | None = None
    """The call of the one client that is concerned; of several the newest one. None unless `belongs` is `call`."""
    suspects: tuple[OpenCall, ...] = ()
    """All calls that may be the cause."""

    @property
    def tool(self) -> str | None:
        """The tool that was called, where that is certain."""
        return self.call.tool if self.call is not None and len(self.suspects) == 1 else None

    @contextmanager
    def waiting(self) -> Generator[None]:
        """A question of this origin is open."""
        with ExitStack() as stack:
            for call in self.suspects:
                stack.enter_context(call.waiting())
            yield


OF_NOBODY = Origin(Belongs.NOBODY)


def origin_within(call: OpenCall | None) -> Origin:
    """What comes within the answer to a request belongs to it; None: the request was none of a caller."""
    return OF_NOBODY if call is None else Origin(Belongs.CALL, call, (call,))


def origin_among(
    open_calls: Sequence[OpenCall], given_up: Iterable[OpenCall] = (), counts: Callable[[str], bool] = may_ask
) -> Origin:
    """Whose something is of which the wire does not say it; never a guess. `counts` says in answer to which methods it comes.

    `open_calls` are the calls on the wire, the newest last; `given_up` those that nobody waits for any more, while the server
    may still be at them. Calls of one session are of one client; where there are no sessions, each call is of its own.
    """
    asking = tuple(call for call in open_calls if counts(call.method))
    if not asking:
        return OF_NOBODY
    newest = asking[-1]
    others = [*asking[:-1], *(call for call in given_up if counts(call.method))]
    if all(_is_of_one_client(newest.principal, other.principal) for other in others):
        return Origin(Belongs.CALL, newest, asking)
    return Origin(Belongs.AMBIGUOUS, None, asking)


def _is_of_one_client(one: Principal, other: Principal) -> bool:
    return one == other and one.session is not None
