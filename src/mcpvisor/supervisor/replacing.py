"""Owns the further generation that is brought up while another serves: how far it is, and when it is tried again.

The one that serves stays in service until this one is ready; a try that fails changes nothing but the reason that is shown.
"""

from __future__ import annotations

from mcpvisor.supervisor.aftermath import SLOW_RETRY, Reaction, reaction_to, reason_of
from mcpvisor.supervisor.backoff import RestartHistory
from mcpvisor.supervisor.lifecycle_messages import Ended, Launched, Negotiated, Opened
from mcpvisor.supervisor.spec import RestartPolicy
from mcpvisor.supervisor.states import State


class Replacement:
    """The generation that is to take over. Times are monotonic seconds."""

    def __init__(self, cause: str, reason: str) -> None:
        self.cause = cause
        """Why it is wanted: of `ServerRestarted`'s closed set."""
        self.reason = reason
        self.generation: int | None = None
        """Its number while it is on its way up; None between tries."""
        self.phase = State.STARTING
        """The state that the server would be in if nothing else served."""
        self.deadline: float | None = None
        """When its start times out or, between tries, when the next one is due."""
        self.trouble = ""
        """Why the last try did not come up; empty before one has failed."""
        self.negotiated_at: float | None = None
        self.is_due = False
        """Whether the next try waits for nothing but the end of what is left of a former one."""

    def begun(self, generation: int) -> None:
        """A try is under way."""
        self.generation, self.phase, self.deadline, self.negotiated_at = generation, State.STARTING, None, None

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
        found = history.next_try(event, policy, now, served=False, counts=False)
        slow = reaction in (Reaction.MEND, Reaction.CREDENTIALS)
        given_up = reaction in (Reaction.GIVE_UP, Reaction.DONE)
        self.deadline = None if given_up else max(found.at, now + SLOW_RETRY if slow else now)
        detail = reason_of(event, reaction, policy)
        self.trouble = f"{self.reason}, but the next session did not come up ({detail})"
        return True

    def afresh(self) -> Replacement:
        """The same one, to be tried without waiting; it has been in trouble as before."""
        again = Replacement(self.cause, self.reason)
        again.trouble = self.trouble
        return again

    @property
    def next_try(self) -> float | None:
        """When the next try is due; None while one is under way, or none is."""
        return self.deadline if self.generation is None else None

    def shown(self, *, serves: bool) -> str:
        """What is shown as the reason beside what else there is to say; `serves`: whether calls reach the former session."""
        if self.trouble:
            return f"{self.trouble}; the former one {'serves on' if serves else 'is kept'}"
        return f"{self.reason}; the next session is being opened"
