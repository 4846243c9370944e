"""Owns the one door to a server: who may pass, how long it may take, and what is known when it fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio

from mcpvisor.supervisor.admission import Admission
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.observer import CallObserver
from mcpvisor.supervisor.offer import NOTHING, Offer
from mcpvisor.supervisor.open_calls import CallClock, OpenCall
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import QuestionSink
from mcpvisor.supervisor.replay import busy_wait, may_replay
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.states import ADMITTING, COMING, WAKEABLE, State
from mcpvisor.supervisor.transports.exchange import LogSink, ProgressSink

JsonObject = dict[str, Any]
REQUEST_TIMEOUT: Final = -32001


class Carrier(Protocol):
    """What carries a request: the generation that serves now."""

    async def request(
        self,
        method: str,
        params: JsonObject | None,
        *,
        on_progress: ProgressSink | None,
        on_log: LogSink | None,
        client_capabilities: JsonObject | None,
        log_level: str | None,
        call: OpenCall,
    ) -> JsonObject:
        """Send one request. Raises RequestFailed."""
        ...

    async def roots_changed(self) -> None:
        """Tell the server that the roots of its client are others; nothing where it has not been offered any."""
        ...


class PrivateDoor(Protocol):
    """An instance of a server that runs for one client."""

    @property
    def connection(self) -> Connection:
        """Its door."""
        ...

    def in_use(self) -> AbstractContextManager[None]:
        """A call of the client is under way: it does not end for want of calls."""
        ...


class PrivateDoors(Protocol):
    """The instances of a server that run for one client each; `mcpvisor.supervisor.instances.Instances` is it."""

    def of(self, principal: Principal) -> PrivateDoor | None:
        """The one of a client, started where there is none; None: it uses the shared one. Raises RequestFailed."""
        ...

    def existing(self, principal: Principal) -> PrivateDoor | None:
        """The one of a client, if it has one."""
        ...


@dataclass(slots=True)
class _Call:
    """One request on its way through the door; `sent` is whether the server may have it."""

    method: str
    params: JsonObject | None
    on_progress: ProgressSink | None
    on_log: LogSink | None
    client_capabilities: JsonObject | None
    log_level: str | None
    asked: OpenCall
    """The same as far as questions of the server go."""
    clock: CallClock
    sent: bool = False
    waited: int = 0
    """How many times the server was too busy and is asked again."""
    doubt: RequestFailed | None = None
    """The failure of an earlier try after which the server may have done it."""

    @property
    def tool(self) -> str | None:
        """The name of the tool that is called, as the server knows it; None of any other request."""
        name = self.params.get("name") if self.method == "tools/call" and self.params is not None else None
        return name if isinstance(name, str) else None


class Connection:
    """One server's door; the same object for as long as the server is configured.

    State, carrier and offer are written by the server's actor alone.
    """

    def __init__(self, spec: ServerSpec, observer: CallObserver, wake: Callable[[], None], mask: Mask) -> None:
        self.spec = spec
        self.state = State.STARTING if spec.enabled else State.DISABLED
        self.reason = ""
        self.next_attempt: float | None = None
        """Monotonic time of the next try by itself."""
        self.offer: Offer = NOTHING
        self.stale = False
        self.era: str | None = None
        self.first_try = anyio.Event()
        self.awaiting = 0
        """Requests that wait for the server to be up."""
        self.admission = Admission(spec.concurrency, spec.queue)
        self.private: PrivateDoors | None = None
        """The instances that run for one client each; None at the door of such a one."""
        self._observer = observer
        self._wake = wake
        self._mask = mask
        self._returns = spec.enabled
        self._call_again_at: float | None = None
        """Monotonic time when a call that is refused now is worth another try."""
        self._carrier: Carrier | None = None
        self._changed = anyio.Event()

    @property
    def name(self) -> str:
        return self.spec.name

    # Written by the actor

    def moved(
        self, state: State, reason: str, next_attempt: float | None, *, call_again_at: float | None, returns: bool
    ) -> None:
        """The server is in another state, `returns` when it is wanted running; whoever waits for it looks again."""
        self.state, self.reason, self.next_attempt, self._returns = state, reason, next_attempt, returns
        self._call_again_at = call_again_at
        if state not in COMING and state is not State.RESTORING:  # its lists are not in before it is ready
            self.first_try.set()
        self._changed.set()
        self._changed = anyio.Event()

    def recalled(self, offer: Offer) -> None:
        """What the server offered last, before this daemon began: lists have it at once, and wait for no first try."""
        self.offer, self.stale = offer, True
        self.first_try.set()

    def carried_by(self, carrier: Carrier | None) -> None:
        """Requests go to this generation from now on; None while there is none."""
        self._carrier = carrier

    def respecified(self, spec: ServerSpec) -> None:
        """A new spec: limits and times hold for every request that comes from now on."""
        self.spec = spec
        self.admission.limit(spec.concurrency, spec.queue)

    # The door

    async def request(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        principal: Principal,
        deadline: float | None = None,
        on_progress: ProgressSink | None = None,
        on_log: LogSink | None = None,
        client_capabilities: JsonObject | None = None,
        log_level: str | None = None,
        on_question: QuestionSink | None = None,
        on_pause: Callable[[], None] | None = None,
    ) -> JsonObject:
        """The server's raw result for one request on behalf of `principal`.

        `deadline` is in seconds from now and bounds everything, waiting included, and no progress extends it; without it the
        spec's `call_timeout` runs from the last sign of life. `call_max` bounds either. Cancelling the caller cancels the
        request. `log_level` is sent to servers of the newer era, which log to nobody who does not ask; `on_log` gets the log
        messages that belong to the call, see `LogSink`. `on_question` answers what the server asks for the sake
        of this call, and is cancelled with it; without it the supervisor's own does. While a question is open no time passes
        for the call, by whatever limit: how long people may think is the answerer's to bound. `on_pause` is told when the
        server ends the stream of the answer before that is in, and is asked for the rest. Raises RequestFailed.
        """
        own = self._own_door(method, principal)
        if own is not None:
            with own.in_use():
                return await own.connection.request(
                    method,
                    params,
                    principal=principal,
                    deadline=deadline,
                    on_progress=on_progress,
                    on_log=on_log,
                    client_capabilities=client_capabilities,
                    log_level=log_level,
                    on_question=on_question,
                    on_pause=on_pause,
                )
        hard = min(self.spec.call_max, self.spec.call_max if deadline is None else deadline)
        clock = CallClock(hard, self.spec.call_timeout if deadline is None else deadline)
        tool = (params or {}).get("name") if method == "tools/call" else None
        named = tool if isinstance(tool, str) else None
        asked = OpenCall(method, principal, tool=named, sink=on_question, clock=clock, on_pause=on_pause)
        call = _Call(method, params, on_progress, on_log, client_capabilities, log_level, asked, clock)
        started = anyio.current_time()
        outcome, error_type = "cancelled", "error"
        self._observer.call_started(self.name)
        try:
            result = await self._within_time(call, min(hard, self.spec.wait_ready))
            outcome, error_type = "ok", "tool_error" if result.get("isError") is True else ""
        except RequestFailed as failure:
            outcome = failure.outcome.value
            # Servers and proxies quote in their refusals what they were sent: our credentials are nothing for callers.
            failure.message = self._mask.text(failure.message)
            failure.args = (failure.message,)
            failure.data = self._mask.told(failure.data)
            raise
        else:
            return result
        finally:
            asked.end()
            seconds = anyio.current_time() - started
            self._observer.call_ended(self.name, self.spec.transport, method, outcome, error_type, seconds)

    def _own_door(self, method: str, principal: Principal) -> PrivateDoor | None:
        """The instance that runs for this client alone; None where it uses this one. Raises RequestFailed."""
        if self.private is None:
            return None
        try:
            return self.private.of(principal)
        except RequestFailed as refused:
            self._observer.call_started(self.name)
            self._observer.call_ended(self.name, self.spec.transport, method, refused.outcome.value, "error", 0.0)
            raise

    async def roots_changed(self, *, principal: Principal) -> None:
        """A client works in other folders: a server that may ask for them (`allow`) is told, as far as it is up."""
        own = self.private.existing(principal) if self.private is not None else None
        if own is not None:
            await own.connection.roots_changed(principal=principal)
        elif self.state in ADMITTING and self._carrier is not None:
            await self._carrier.roots_changed()

    async def _within_time(self, call: _Call, patience: float) -> JsonObject:
        now = anyio.current_time()
        wanted = call.on_progress

        def alive(progress: JsonObject) -> None:
            call.clock.heard()
            if wanted is not None:
                wanted(progress)
                self._observer.call_progressed(self.name, call.tool, progress)

        if wanted is not None:
            call.on_progress = alive
        with call.clock.scope:
            try:
                return await self._admitted(call, patience=now + patience)
            except RequestFailed as failure:
                if call.doubt is not None and failure.outcome is Outcome.NOT_SENT:
                    raise call.doubt from failure  # that the second try was not sent says nothing of the first one
                raise
        seconds = anyio.current_time() - now
        if not call.sent:
            raise RequestFailed(
                Outcome.NOT_SENT, "deadline", f"{self.name} had no room for {call.method} within {seconds:.1f} s"
            )
        cause = "deadline" if call.clock.has_run_out else "silence"
        message = f"{self.name} gave no answer to {call.method} within {seconds:.1f} s"
        raise RequestFailed(Outcome.TIMEOUT, cause, message, code=REQUEST_TIMEOUT)

    async def _admitted(self, call: _Call, *, patience: float) -> JsonObject:
        async with self.admission.place(call.asked.principal):
            replayed = False
            while True:
                carrier = await self._serving(patience)
                call.sent = True
                try:
                    return await carrier.request(
                        call.method,
                        call.params,
                        on_progress=call.on_progress,
                        on_log=call.on_log,
                        client_capabilities=call.client_capabilities,
                        log_level=call.log_level,
                        call=call.asked,
                    )
                except RequestFailed as failure:
                    call.sent = replayed or failure.outcome is not Outcome.NOT_SENT
                    if await self._waited_out(call, failure):
                        continue
                    if not self._may_go_again(call, failure, replayed=replayed, patience=patience):
                        raise
                    replayed = call.sent
                    if failure.outcome is Outcome.MAYBE_EXECUTED:
                        call.doubt = failure
                    if self._carrier is carrier:
                        await self._change(patience, failure)

    @staticmethod
    async def _waited_out(call: _Call, failure: RequestFailed) -> bool:
        """Wait as long as a busy server wants, if that ends within the call's own time; whether it is to be asked again."""
        wait = busy_wait(failure, call.waited)
        if wait is None or anyio.current_time() + wait >= anyio.current_effective_deadline():
            return False
        call.waited += 1
        await anyio.sleep(wait)
        return True

    def _may_go_again(self, call: _Call, failure: RequestFailed, *, replayed: bool, patience: float) -> bool:
        """Once at most for what may have run; for what was not sent as often as the patience lasts."""
        if anyio.current_time() >= patience or (replayed and failure.outcome is not Outcome.NOT_SENT):
            return False
        tool = self.tool(call.params) if call.method == "tools/call" else None
        return may_replay(failure, call.method, tool, self.spec, was_asked=call.asked.was_answered)

    async def _change(self, patience: float, failure: RequestFailed) -> None:
        """Wait for the next change of the server, since the same carrier would fail again; raises `failure` in vain."""
        changed = self._changed
        with anyio.move_on_after(max(0.0, patience - anyio.current_time())):
            await changed.wait()
            return
        raise failure

    async def _serving(self, patience: float) -> Carrier:
        """The generation that serves, waiting for it while it is near. Raises RequestFailed (`not_sent`)."""
        while True:
            if self.state in ADMITTING and self._carrier is not None:
                return self._carrier
            if self.state in WAKEABLE:
                self._wake()
            if not self._is_near(patience):
                raise self._away()
            self.awaiting += 1
            try:
                with anyio.move_on_after(patience - anyio.current_time()) as scope:
                    await self._changed.wait()
            finally:
                self.awaiting -= 1
            if scope.cancelled_caught:
                raise self._away()

    def _is_near(self, patience: float) -> bool:
        if self.state in COMING or self.state in ADMITTING:
            return True
        if self.state is State.DRAINING:
            return self._returns  # the next generation follows as soon as this one is gone
        return self.state is State.BACKOFF and (self.next_attempt is None or self.next_attempt <= patience)

    def _away(self) -> RequestFailed:
        again = self._call_again_at
        retry = None if again is None else max(0.0, round(again - anyio.current_time(), 3))
        why = f": {self.reason}" if self.reason else ""
        return RequestFailed(Outcome.NOT_SENT, self.state.value, f"{self.name} is {self.state.value}{why}", retry_after_s=retry)

    def tool(self, params: JsonObject | None) -> JsonObject | None:
        """The server's own entry for the tool that a call names; None when it lists none of that name."""
        name = (params or {}).get("name")
        return next((tool for tool in self.offer.tools if tool.get("name") == name), None)

    def __repr__(self) -> str:
        return f"<Connection {self.name}: {self.state.value}, {self.admission.running} running, {self.admission.queued} queued>"
