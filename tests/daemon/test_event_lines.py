"""Each telling event is one log line with its level, its sentence and its fields."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mcpvisor.daemon.event_lines import EventLines
from mcpvisor.supervisor import events as ev
from mcpvisor.supervisor import host_events
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.states import State


def lines_of(*events: ev.Event, level: str = "debug") -> list[tuple[str, str, dict[str, Any]]]:
    """What is written for these events on a bus."""
    order = ["debug", "info", "warning", "error"]
    written: list[tuple[str, str, dict[str, Any]]] = []
    bus = EventBus()
    bus.attach(EventLines(lambda *line: written.append(line), lambda at: order.index(at) >= order.index(level)))
    for event in events:
        bus.emit(event)
    return written


def changed(new: State, old: State = State.STARTING, reason: str = "why") -> ev.ServerStateChanged:
    return ev.ServerStateChanged(at=1.0, server="docs", old=old, new=new, reason=reason, next_attempt=None)


def test_a_change_of_state_says_from_what_to_what_and_why():
    """The line names server, both states and the reason, and carries them as fields."""
    [(level, message, fields)] = lines_of(changed(State.BACKOFF, State.READY, "process exited (code 1)"))

    assert ("warning", "docs: ready -> backoff: process exited (code 1)") == (level, message)
    assert {
        "mcp_event": "ServerStateChanged",
        "server": "docs",
        "old": "ready",
        "new": "backoff",
        "reason": "process exited (code 1)",
        "next_attempt": None,
    } == fields


@pytest.mark.parametrize(("count", "many"), [(1, "1 event has become a dead letter"), (2, "2 events have become dead letters")])
def test_dead_letters_are_told_with_their_number(count: int, many: str):
    """The line says whose they are, how many, and why."""
    [(level, message, _)] = lines_of(host_events.HandlerGaveUp(at=1.0, handler="hook", count=count, why="a bad day"))

    assert ("error", f"handler hook: {many}: a bad day") == (level, message)


def test_the_time_of_the_next_attempt_is_told():
    """A state that ends by itself says when."""
    event = dataclasses.replace(changed(State.BACKOFF), next_attempt=0.0)
    [(_, message, _)] = lines_of(event)

    assert "; next attempt at 19" in message


@pytest.mark.parametrize(
    ("state", "level"),
    [
        (State.READY, "info"),
        (State.NEGOTIATING, "debug"),
        (State.DEGRADED, "warning"),
        (State.CRASH_LOOP, "error"),
        (State.FAILED, "error"),
        (State.AUTH_REQUIRED, "error"),
    ],
)
def test_the_level_follows_the_state(state, level):
    """What needs somebody is an error, what mends itself a warning, what passes is for debugging."""
    assert [level] == [line[0] for line in lines_of(changed(state))]


@pytest.mark.parametrize(("wanted", "level"), [(True, "info"), (False, "warning")])
def test_an_unasked_end_of_a_process_is_a_warning(wanted, level):
    """A process that ended by itself is worth more attention than one that was stopped."""
    event = ev.ProcessEnded(at=1.0, server="docs", pid=7, generation=1, exit_code=None, signal=9, seconds=1.5, wanted=wanted)
    [(at, message, _)] = lines_of(event)

    assert (level, True) == (at, message.endswith("after 1.5 s: signal 9"))


def test_stderr_is_one_line_each_under_its_server():
    """Each line of a server's stderr is a record of its own, and dropped ones are counted before them."""
    written = lines_of(ev.StderrWritten(at=1.0, server="docs", lines=("one", "two"), dropped=3))

    assert [
        ("warning", "docs: 3 lines of stderr over the rate were dropped"),
        ("info", "docs: stderr: one"),
        ("info", "docs: stderr: two"),
    ] == [line[:2] for line in written]
    assert {"docs"} == {line[2]["server"] for line in written}


def test_nothing_of_a_server_breaks_a_line_or_shows_a_credential():
    """Line breaks and escapes of a reason are replaced, and its credentials masked."""
    [(_, message, fields)] = lines_of(changed(State.FAILED, reason="a\nb\x1b[2J https://u:canary@h/"))

    assert "canary" not in message + str(fields)
    assert not {"\n", "\x1b"} & set(message)


def test_params_of_notifications_are_not_written():
    """What a server puts into a notification is nobody's business here."""
    event = ev.ServerNotified(at=1.0, server="docs", method="notifications/message", params={"data": "canary"})

    assert "canary" not in str(lines_of(event))


def test_a_kill_by_the_kernel_is_told_with_its_reason():
    """A server that ran out of memory is told apart from one that somebody has killed."""
    event = ev.ProcessEnded(
        at=1.0, server="docs", pid=7, generation=2, exit_code=None, signal=9, seconds=3.0, wanted=False,
        why="over its memory limit of 512MiB",
    )  # fmt: skip
    [(level, message, _)] = lines_of(event)

    told = "docs: process 7 ended unasked after 3.0 s: signal 9, by the kernel: over its memory limit of 512MiB"
    assert ("warning", told) == (level, message)


def test_limits_that_do_not_hold_are_a_warning():
    """The line names the limits of the entry that are not enforced, and why."""
    [(level, message, fields)] = lines_of(
        ev.LimitsNotEnforced(at=1.0, server="docs", limits=("memory", "cpu"), why="no control groups")
    )

    assert ("warning", "docs: runs without its limits of memory, cpu: no control groups") == (level, message)
    assert ["memory", "cpu"] == fields["limits"]


@pytest.mark.parametrize(("cause", "level"), [("auth", "error"), ("auth_unavailable", "warning")])
def test_credentials_that_cannot_be_fetched(cause, level):
    """What somebody has to mend is an error, a source that is away mends itself; both say when it is asked again."""
    event = ev.CredentialsFailed(at=1.0, server="docs", cause=cause, detail="answered 401", retry_in=2.0)
    [(at, message, _)] = lines_of(event)

    assert (level, "docs: no credentials: answered 401; not asked for again within 2 s") == (at, message)


def test_new_credentials_are_told_with_their_expiry():
    """The line says where they come from, and until when they are good where that is known."""
    told = [ev.CredentialsRefreshed(at=1.0, server="docs", source="store", expires_at=at) for at in (None, 0.0)]
    [(_, plain, _), (_, dated, _)] = lines_of(*told)

    assert "docs: has credentials (store)" == plain
    assert dated.startswith("docs: has credentials until 19")


@pytest.mark.parametrize(
    ("seconds", "asleep", "told"),
    [
        (3600.0, 0.0, "the wall clock has jumped 3600 s ahead: every session is probed"),
        (-60.4, 0.0, "the wall clock has jumped 60 s back: every session is probed"),
        (90.0, 90.0, "the machine has slept for 90 s: every session is probed"),
    ],
)
def test_a_jump_of_the_clocks_is_one_line(seconds, asleep, told):
    """It says which way and how far, and tells sleep from a clock that was set."""
    [(level, message, fields)] = lines_of(ev.ClockJumped(at=1.0, seconds=seconds, asleep=asleep))

    assert ("warning", told) == (level, message)
    assert {"mcp_event": "ClockJumped", "seconds": seconds, "asleep": asleep} == fields


def test_what_becomes_of_subscriptions_is_told():
    """A failure is a warning with its reason, its end is good news, and a restore is one line whatever the number."""
    failed = ev.SubscriptionAsked(at=1.0, server="docs", uri="x://1", state="failed", why="not today", next_retry=None)
    mended = dataclasses.replace(failed, state="polled", why="")
    lost = ev.SubscriptionsRestored(at=1.0, server="docs", generation=2, counts={"active": 3, "polled": 1, "failed": 2})
    whole = dataclasses.replace(lost, counts={"active": 3, "failed": 0})
    lines = [(level, message) for level, message, _ in lines_of(failed, mended, lost, whole)]

    assert lines == [
        ("warning", "docs: changes of 'x://1' do not reach us: not today"),
        ("info", "docs: changes of 'x://1' reach us now (polled)"),
        ("warning", "docs: 4 of 6 subscriptions restored"),
        ("info", "docs: 3 of 3 subscriptions restored"),
    ]


def test_an_update_is_told_by_what_is_known_of_it():
    """A resource that may have changed is not said to have changed."""
    updated = ev.ResourceUpdated(at=1.0, server="docs", uri="x://1", reason="polled")
    lines = [message for _, message, _ in lines_of(updated, dataclasses.replace(updated, reason="resync"))]

    assert ["docs: 'x://1' has changed (polled)", "docs: 'x://1' may have changed (resync)"] == lines


def test_numbers_are_no_news():
    """Samples and answered probes write nothing, and hidden levels cost no line."""
    sample = ev.ProcessesSampled(at=1.0, server="docs", processes=1, resident_bytes=1, cpu_seconds=1.0)

    assert [] == lines_of(sample, ev.ProbeAnswered(at=1.0, server="docs", seconds=0.1))
    assert [] == lines_of(changed(State.STARTING), level="info")


def test_every_other_event_has_its_line():
    """No event that the supervisor may emit is silently forgotten by the log."""
    silent = {"Event", "ServerEvent", "ProcessesSampled", "ProbeAnswered", "SubscriptionsCounted"}
    fillers = {
        "str": "x",
        "int": 1,
        "float": 1.0,
        "bool": False,
        "float | None": None,
        "State": State.READY,
        "tuple[str, ...]": ("x",),
        "dict[str, int]": {"active": 1},
    }
    kinds = [
        kind for kind in {**vars(ev), **vars(host_events)}.values() if isinstance(kind, type) and issubclass(kind, ev.Event)
    ]
    missing = set()
    for kind in kinds:
        values = {f.name: fillers.get(str(f.type), "tools") for f in dataclasses.fields(kind) if f.name != "params"}
        if kind.__name__ not in silent and not lines_of(kind(**values)):
            missing.add(kind.__name__)

    assert set() == missing


def test_a_server_without_a_name_is_called_so():
    """A line about a session reads as a sentence, whatever the server has left out."""
    opened = ev.SessionOpened(
        at=1.0, server="docs", generation=1, era="modern", protocol_version="2026-07-28", transport="http", implementation="",
        seconds=0.1,
    )  # fmt: skip
    [(_, message, _)] = lines_of(opened)

    assert "docs: session with a server that does not say its name, modern protocol 2026-07-28" == message


@pytest.mark.parametrize(
    ("misses", "expected"),
    [(2, "probe 2 of 3 not answered"), (0, "a probe was not answered, which does not count while calls are in flight")],
)
def test_a_missed_probe_says_whether_it_counts(misses, expected):
    """A probe that a busy server has not answered is none of so many."""
    [(_, message, _)] = lines_of(ev.ProbeMissed(at=1.0, server="docs", misses=misses, allowed=3))

    assert f"docs: {expected}" == message


def test_questions_are_told_by_whose_they_are():
    """Who called what, or that nobody knows; what became of one, and a warning where whoever was asked broke down."""
    asked = ev.QuestionAsked(at=1.0, server="docs", method="elicitation/create", belongs="call", principal="uid:7", tool="book")
    nobody = dataclasses.replace(asked, belongs="nobody", principal=None, tool=None)
    answered = ev.QuestionAnswered(at=1.0, server="docs", method="roots/list", outcome="answered", by="caller", seconds=2.5)
    failed = dataclasses.replace(answered, outcome="failed")
    several = dataclasses.replace(asked, tool=None)
    unknown = dataclasses.replace(nobody, belongs="ambiguous")
    lines = [(level, message) for level, message, _ in lines_of(asked, several, nobody, unknown, answered, failed)]

    assert lines == [
        ("debug", "docs: asks elicitation/create for 'book', called by uid:7"),
        ("debug", "docs: asks elicitation/create for a call of uid:7"),
        ("debug", "docs: asks elicitation/create for nobody's call"),
        ("debug", "docs: asks elicitation/create while several clients call"),
        ("debug", "docs: roots/list: answered after 2.5 s"),
        ("warning", "docs: roots/list: failed after 2.5 s"),
    ]
