"""What becomes of a version on trial, case by case: nothing here waits, and time is an argument."""

from __future__ import annotations

import pytest

from mcpvisor.daemon.versions.trial import Sight, Trial, Verdict, judge
from mcpvisor.supervisor.goal import BY_POLICY
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus

S, V = State, Verdict
PROGRAM = ServerSpec(name="x", target=StdioLaunch(command="new"), start_timeout=10.0)
FORMER = ServerSpec(name="x", target=StdioLaunch(command="old"))
WEB = ServerSpec(name="x", target=HttpTarget(url="http://127.0.0.1:1/"), start_timeout=10.0)

TABLE = [
    # what is seen, at which time, and what becomes of it in the end
    ([(S.STARTING, 0), (S.NEGOTIATING, 1), (S.RESTORING, 2), (S.READY, 3)], V.GOOD),
    ([(S.STARTING, 0), (S.BACKOFF, 1)], V.WAIT),
    ([(S.STARTING, 0), (S.BACKOFF, 1), (S.STARTING, 2), (S.READY, 3)], V.GOOD),
    ([(S.STARTING, 0), (S.BACKOFF, 10)], V.ROLL_BACK),
    ([(S.STARTING, 0), (S.BACKOFF, 9), (S.STARTING, 9.5), (S.STARTING, 10)], V.ROLL_BACK),
    ([(S.STARTING, 0), (S.BACKOFF, 9), (S.RESTORING, 9.5), (S.RESTORING, 10)], V.WAIT),
    ([(S.STARTING, 0), (S.NEGOTIATING, 10)], V.WAIT),  # it had to wait for its turn, and this try has an end of its own
    ([(S.DRAINING, 0), (S.DRAINING, 30)], V.WAIT),  # the former one finishes its calls, which is no time of the new one
    ([(S.DRAINING, 0), (S.STARTING, 30), (S.BACKOFF, 39)], V.WAIT),
    ([(S.DRAINING, 0), (S.STARTING, 30), (S.BACKOFF, 40)], V.ROLL_BACK),
    ([(S.STARTING, 0), (S.FAILED, 1)], V.ROLL_BACK),
    ([(S.STARTING, 0), (S.AUTH_REQUIRED, 1)], V.ROLL_BACK),
    ([(S.STARTING, 0), (S.CRASH_LOOP, 1)], V.ROLL_BACK),
    ([(S.STARTING, 0), (S.DEGRADED, 1)], V.WAIT),
    ([(S.STARTING, 0), (S.DEGRADED, 10)], V.STANDS),
    ([(S.STARTING, 0), (S.RESTORING, 1), (S.READY, 100)], V.GOOD),
]


def last_of(trial: Trial, sights: list[tuple[Sight, float]]) -> Verdict:
    """The verdict after the last of some looks."""
    verdict = Verdict.WAIT
    for sight, at in sights:
        trial = trial.seen(sight, at)
        verdict = judge(trial, sight, at)
    return verdict


@pytest.mark.parametrize(("seen", "expected"), TABLE)
def test_what_is_seen_decides(seen: list[tuple[State, float]], expected: Verdict) -> None:
    """A final failure at once, a passing one when its time is over; whoever serves calls is not taken back."""
    trial = Trial(candidate=PROGRAM, former=FORMER, former_at=1.0)

    assert expected is last_of(trial, [(Sight(coming=state), at) for state, at in seen])


def test_credentials_that_are_refused_are_not_good_enough() -> None:
    """A session on which no call can be made serves nobody."""
    trial = Trial(candidate=WEB, former=FORMER, former_at=1.0)
    barred = Sight(coming=State.DEGRADED, barred=True)

    assert Verdict.ROLL_BACK is last_of(trial, [(barred, 0.0), (barred, 10.0)])


def test_an_operator_s_rest_stops_the_clock() -> None:
    """While it is stopped nothing is taken back, and its time begins anew when it is started."""
    trial = Trial(candidate=PROGRAM, former=FORMER, former_at=1.0)
    early = [(Sight(coming=State.STARTING), 0.0), (Sight(coming=State.BACKOFF), 1.0)]
    rest = [(Sight(coming=State.STOPPED, at_rest=True), 2.0), (Sight(coming=State.STOPPED, at_rest=True), 99.0)]
    again = [(Sight(coming=State.STARTING), 100.0), (Sight(coming=State.BACKOFF), 109.0)]

    assert Verdict.REST is last_of(trial, [*early, *rest])
    assert Verdict.WAIT is last_of(trial, [*early, *rest, *again])
    assert Verdict.ROLL_BACK is last_of(trial, [*early, *rest, *again, (Sight(coming=State.BACKOFF), 110.0)])


def test_one_that_its_policy_lets_end_is_taken_back() -> None:
    """It ended in good order before it was ready, and would stay ended."""
    trial = Trial(candidate=PROGRAM, former=FORMER, former_at=1.0)

    assert Verdict.ROLL_BACK is last_of(trial, [(Sight(coming=State.STOPPED, ended=True), 1.0)])


@pytest.mark.parametrize(("candidate", "expected"), [(WEB, Verdict.WAIT), (PROGRAM, Verdict.ROLL_BACK)])
def test_at_a_start_an_address_that_is_away_says_nothing(candidate: ServerSpec, expected: Verdict) -> None:
    """Nobody knows whether the former one could be reached; a process that ends does say something."""
    trial = Trial(candidate=candidate, former=FORMER, former_at=1.0, patient=True)
    seen = [(Sight(coming=State.STARTING), 0.0), (Sight(coming=State.BACKOFF), 50.0)]

    assert expected is last_of(trial, seen)
    assert Verdict.ROLL_BACK is last_of(trial, [*seen, (Sight(coming=State.FAILED), 51.0)])


def test_another_edit_is_tried_anew() -> None:
    """Against the same former version; one that is applied in place leaves the time as it is."""
    trial = Trial(candidate=PROGRAM, former=FORMER, former_at=1.0).seen(Sight(coming=State.BACKOFF), 0.0)

    assert (None, False, FORMER) == (
        (anew := trial.edited(WEB, restarts=True)).until, anew.has_failed, anew.former
    )  # fmt: skip
    assert (10.0, True, WEB) == ((same := trial.edited(WEB, restarts=False)).until, same.has_failed, same.candidate)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, Sight(coming=State.READY, reason="why")),
        (
            {"replacing": True, "coming": State.BACKOFF, "coming_reason": "refused"},
            Sight(coming=State.BACKOFF, reason="refused"),
        ),
        ({"wanted": "stopped", "wanted_by": "uid:0 (stop)"}, Sight(coming=State.READY, at_rest=True, reason="why")),
        ({"wanted": "stopped", "wanted_by": BY_POLICY}, Sight(coming=State.READY, ended=True, reason="why")),
    ],
)
def test_what_a_status_shows(more: dict[str, object], expected: Sight) -> None:
    """The newest version counts, not what serves beside it; an operator's wish is another thing than an end by policy."""
    known: dict[str, object] = {"wanted": "running", "wanted_by": "config", **more}
    status = ServerStatus(name="x", state=State.READY, reason="why", since=0.0, state_seconds=0.0, transport="http", **known)  # type: ignore[arg-type]

    assert expected == Sight.of(status)
