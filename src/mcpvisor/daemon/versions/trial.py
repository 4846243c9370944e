"""Owns the decision what becomes of a new version of a server: it stands, it is taken back, or it has time left.

Nothing here reads a clock or a server: what was seen and what time it is are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from mcpvisor.supervisor.goal import BY_POLICY
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus

_FINAL: Final = frozenset({State.FAILED, State.AUTH_REQUIRED, State.CRASH_LOOP})
"""States that no passing of time is expected to mend."""

_FAILED: Final = _FINAL | {State.BACKOFF}
"""States that a try which came to nothing leads to."""


class Verdict(StrEnum):
    """What is to be done with a version on trial."""

    WAIT = "wait"
    REST = "rest"
    """An operator has it at rest: no time passes for it, and nothing is taken back."""
    GOOD = "good"
    """It is ready."""
    STANDS = "stands"
    """It serves calls, and is not wholly ready in its time: no reason to take it back, nor to call it good."""
    ROLL_BACK = "roll_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a look at a server shows of the newest version of its entry."""

    coming: State
    """How far that version is, whatever else still serves."""
    at_rest: bool = False
    """Whether an operator, or its entry, wants it not to run."""
    ended: bool = False
    """Whether it ended well, and its restart policy leaves it at that."""
    barred: bool = False
    """Whether no call can be made for want of credentials that are taken."""
    reason: str = ""

    @classmethod
    def of(cls, status: ServerStatus) -> Sight:
        """What a status shows."""
        ended = status.wanted != "running" and status.wanted_by == BY_POLICY
        return cls(
            coming=status.coming or status.state,
            at_rest=status.wanted != "running" and not ended,
            ended=ended,
            barred=status.is_barred and not status.replacing,
            reason=status.coming_reason or status.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A version that is being tried, and the one that it has to be as good as. `former_at` is wall-clock seconds."""

    candidate: ServerSpec
    former: ServerSpec
    former_at: float
    until: float | None = None
    """When its time is over, on the clock that `now` is read from; None before its first try has begun."""
    has_failed: bool = False
    """Whether a try has come to nothing."""
    patient: bool = False
    """Whether an address that nobody can reach says nothing against it, since nobody knows that of the former one either."""

    def seen(self, sight: Sight, now: float) -> Trial:
        """The same after another look."""
        if sight.at_rest:
            return replace(self, until=None, has_failed=False)
        has_begun = sight.coming not in (State.DRAINING, State.STOPPED, State.DISABLED)
        until = now + self.candidate.start_timeout if self.until is None and has_begun else self.until
        return replace(self, until=until, has_failed=self.has_failed or sight.coming in _FAILED)

    def edited(self, candidate: ServerSpec, *, restarts: bool) -> Trial:
        """The same for a newer version, which is tried anew where it `restarts` the server."""
        if not restarts:
            return replace(self, candidate=candidate)
        return Trial(candidate=candidate, former=self.former, former_at=self.former_at, patient=self.patient)


def judge(trial: Trial, sight: Sight, now: float) -> Verdict:
    """What is to be done, of a trial that has `seen` this sight."""
    if sight.at_rest:
        return Verdict.REST
    if sight.ended or sight.coming in _FINAL:
        return Verdict.ROLL_BACK
    if sight.coming is State.READY:
        return Verdict.GOOD
    if trial.until is None or now < trial.until:
        return Verdict.WAIT
    match sight.coming:
        case State.DEGRADED:
            return Verdict.ROLL_BACK if sight.barred else Verdict.STANDS
        case State.RESTORING:
            return Verdict.WAIT  # calls are served, and the reading of the lists has an end of its own
        case State.BACKOFF if trial.patient and trial.candidate.transport != "stdio":
            return Verdict.WAIT
        case _:
            return Verdict.ROLL_BACK if trial.has_failed else Verdict.WAIT  # a try under way has an end of its own
