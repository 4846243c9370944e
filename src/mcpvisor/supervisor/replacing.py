"""Owns the further generation that is brought up while another serves: how far it is, and when it is tried again.

The one that serves stays in service until this one is ready; a try that fails changes nothing but the reason that is shown.
"""

from __future__ import annotations

from typing import Final

from mcpvisor.supervisor.aftermath import SLOW_RETRY, Reaction, reaction_to, reason_of
from mcpvisor.supervisor.backoff import RestartHistory
from mcpvisor.supervisor.lifecycle_messages import Ended, Launched, Negotiated, Opened
from mcpvisor.supervisor.spec import Change, HttpTarget, RestartPolicy, ServerSpec, change_between
from mcpvisor.supervisor.states import State

REFUSALS: Final = frozenset({"occupied", "protocol"})
"""Causes by which a server has answered a handshake that it does not want it."""

MAX_REFUSALS: Final = 2
"""So many refusals in a row of a session like the one that serves are taken for want of room beside that."""

_OUTCOMES: Final = {
    Reaction.MEND: State.FAILED,
    Reaction.GIVE_UP: State.FAILED,
    Reaction.DONE: State.FAILED,
    Reaction.CREDENTIALS: State.AUTH_REQUIRED,
    Reaction.RETRY: State.BACKOFF,
}


class Replacement:
    """The generation that is to take over. Times are monotonic seconds."""

    def __init__(self, cause: str, reason: str, spec: ServerSpec) -> None:
        self.spec = spec
        """What it was, or is to be, opened with."""
        self.cause = cause
        """Why it is wanted: of `ServerRestarted`'s closed set."""
        self.reason = reason
        self.generation: int | None = None
        """Its number while it is on its way up; None between tries."""
        self.phase = State.STARTING
        """The state that the server would be in if nothing else served."""
        self.outcome: State | None = None
        """The state that the last try would have left the server in; None while one is under way, or before the first."""
        self.deadline: float | None = None
        """When its start times out or, between tries, when the next one is due."""
        self.trouble = ""
        """Why the last try did not come up; empty before one has failed."""
        self.detail = ""
        """The same in the words of what ended it."""
        self.negotiated_at: float | None = None
        self._refusals = 0
        """Tries in a row to which the server answered that it does not want them."""
        self.is_due = False
        """Whether the next try waits for nothing but the end of what is left of a former one."""

    def begun(self, generation: int, spec: ServerSpec) -> None:
        """A try is under way, with this spec."""
        self.generation, self.phase, self.deadline, self.negotiated_at = generation, State.STARTING, None, None
        self.outcome, self.spec = None, spec

    def came_along(self, event: Launched | Opened | Negotiated, budget: float, now: float) -> None:
        """The generation has come a step further; `budget` is how long the next step may take."""
        if isinstance(event, Opened):
            self.phase = State.NEGOTIATING
            return
        self.deadline = now + budget
        if isinstance(event, Negotiated):
            self.phase, self.negotiated_at = State.RESTORING, now

    def came_to_nothing(self, event: Ended, policy: RestartPolicy, history: RestartHistory, now: float) -> bool:
        """The try is over. False where the server is to be tried at once in another way, which says nothing against it."""
        self.generation = None
        reaction = reaction_to(event, policy)
        if reaction is Reaction.ANOTHER_WAY:
            return False
        self.outcome = _OUTCOMES[reaction]
        found = history.next_try(event, policy, now, served=False, counts=False)
        slow = reaction in (Reaction.MEND, Reaction.CREDENTIALS)
        given_up = reaction in (Reaction.GIVE_UP, Reaction.DONE)
        self.deadline = None if given_up else max(found.at, now + SLOW_RETRY if slow else now)
        self.detail = reason_of(event, reaction, policy)
        self.trouble = f"{self.reason}, but the next session did not come up ({self.detail})"
        return True

    def wants_room(self, event: Ended, serving: ServerSpec) -> bool:
        """Whether it did not come up for want of room beside the session that serves, which was opened with that spec.

        A server that says so is believed. Where another session of the very same kind is refused twice without a word of why,
        nothing else is left to be the cause; of an edit the refusal may be of what was edited, and the former one is kept. So
        it is where the server lets no session be ended: it would go on to have no room, and nobody would be served.
        """
        here, there = self.spec.target, serving.target
        if not isinstance(here, HttpTarget) or not isinstance(there, HttpTarget) or here.url != there.url:
            return False
        self._refusals = self._refusals + 1 if event.cause in REFUSALS else 0
        is_same = change_between(serving, self.spec).change in (Change.KEEP, Change.UPDATE)
        return event.endable and (event.cause == "occupied" or (is_same and self._refusals >= MAX_REFUSALS))

    def afresh(self) -> Replacement:
        """The same one, to be tried without waiting; it has been in trouble as before."""
        again = Replacement(self.cause, self.reason, self.spec)
        again.trouble = self.trouble
        return again

    @property
    def standing(self) -> State:
        """The state that the server would be in by now if nothing else served."""
        return self.outcome or self.phase

    @property
    def next_try(self) -> float | None:
        """When the next try is due; None while one is under way, or none is."""
        return self.deadline if self.generation is None else None

    def shown(self, *, serves: bool) -> str:
        """What is shown as the reason beside what else there is to say; `serves`: whether calls reach the former session."""
        if self.trouble:
            now = ", and is tried again now" if self.generation is not None else ""
            return f"{self.trouble}{now}; the former one {'serves on' if serves else 'is kept'}"
        return f"{self.reason}; the next session is being opened"
