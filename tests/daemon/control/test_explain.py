from __future__ import annotations

import pytest

from mcpvisor.daemon.control.evidence import Evidence, uri_conflicts
from mcpvisor.daemon.control.explain import explain
from mcpvisor.daemon.control.explain_text import as_text
from mcpvisor.supervisor.events import (
    AccessDenied,
    CatalogEntryDropped,
    LogLevelAsked,
    ProbeMissed,
    ServerStateChanged,
    StdoutNoise,
)
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.process.stderr import StderrLine
from mcpvisor.supervisor.signs import NO_SIGNS, CatalogDrop, Signs
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.subscriptions.standing import SubscriptionState, SubscriptionStatus

NOW = 1000.0
SPEC = ServerSpec(name="s", target=StdioLaunch(command="true"))


@pytest.fixture
def explained(puppet):
    """Explains a server in a given state; returns the explanation and its three first lines."""

    def run(state, *history, signs=NO_SIGNS, stderr=(), stderr_dropped=0, subscriptions=(), strangers=0, missed=None, **other):
        status = puppet.a_status("s", state, **{"since": NOW - 12, "state_seconds": 12.0, **other})
        evidence = Evidence(
            status=status,
            spec=SPEC,
            signs=signs,
            history=history,
            stderr=stderr,
            stderr_dropped=stderr_dropped,
            subscriptions=subscriptions,
            strangers=strangers,
            missed=missed,
        )
        explanation = explain(evidence, NOW)
        return explanation, as_text(explanation, clock=lambda at: f"<{at:g}>").split("\n")

    return run


def test_a_push_channel_that_is_not_there_says_when_it_is_asked_for_again(explained):
    """A server without a push channel is asked again, and the explanation says when."""
    _, lines = explained(State.READY, push="none", push_reason="GET was answered 405", push_next=NOW + 290)
    _, never = explained(State.READY, push="open")

    assert any(line.endswith("none: GET was answered 405; asked for again at <1290>") for line in lines)
    assert ["  push       open"] == [line for line in never if "push" in line]


def test_a_server_that_hangs_at_its_handshake(explained):
    """A hanging handshake is named, with how long it has lasted and when the daemon gives it up."""
    _, (what, following, remedy, *_) = explained(
        State.NEGOTIATING, reason="waiting for its answer to initialize", deadline=NOW + 228
    )

    assert "s has not finished the handshake, for 12 s now: waiting for its answer to initialize." == what
    assert "Next: the daemon waits for the handshake, then ends this try and makes another - at <1228>, in 4 min." == following
    assert "run its command by hand" in remedy


def test_what_a_handshake_waits_for_is_named(explained):
    """Which message has no answer, since when, and what follows when; advice of an earlier try is told as such."""
    asked = {"reason": "the handshake is under way", "asked_at": NOW - 1.5, "deadline": NOW + 58}
    _, probed = explained(State.NEGOTIATING, asked="server/discover", asked_until=NOW + 0.5, **asked)
    _, waiting = explained(State.NEGOTIATING, signs=Signs(cause="connect_failed"), asked="initialize", **asked)

    assert [
        "s has not finished the handshake, for 12 s now: it was sent server/discover 2 s ago and has not answered.",
        "Next: if it is silent until then it is sent initialize, as servers of the older era want it - at <1000.5>, in 500 ms.",
    ] == probed[:2]
    assert [
        "s has not finished the handshake, for 12 s now: it was sent initialize 2 s ago and has not answered.",
        "Next: the daemon waits for the handshake, then ends this try and makes another - at <1058>, in 58 s.",
    ] == waiting[:2]
    assert waiting[2].startswith("You: wait for this try; of the one before: ")
    assert probed[2].startswith("You: wait; if it never answers, ")


def test_a_server_that_hung_and_waits_for_its_next_try(explained):
    """After a start that timed out the remedy is about slow starts, and the next try has its time."""
    explanation, (what, following, remedy, *_) = explained(
        State.BACKOFF, signs=Signs(cause="start_timeout"), reason="no answer within 60 s", next_attempt=NOW + 30
    )

    assert "start_timeout" == explanation["cause"]
    assert "s is down: no answer within 60 s." == what
    assert following.endswith("at <1030>, in 30 s.")
    assert "raise start_timeout in /etc/mcpvisor/mcpvisor.toml:7" in remedy


def test_a_program_that_is_not_installed(explained):
    """A missing program is named with the place where its command is written."""
    _, (what, following, remedy, *_) = explained(
        State.FAILED, signs=Signs(cause="no_such_program"), reason="no program 'npx' on PATH", next_attempt=NOW + 300
    )

    assert "s cannot work as its entry is written: no program 'npx' on PATH." == what
    assert "looks again now and then" in following
    assert "in 5 min" in following
    assert "install the program" in remedy
    assert "/etc/mcpvisor/mcpvisor.toml:7" in remedy


def test_an_entry_that_waits_for_an_edit(explained):
    """An invalid entry waits for an edit, and says so instead of a time."""
    _, (_, following, remedy, *_) = explained(State.FAILED, reason="unknown key 'comand'")

    assert "Next: the daemon waits for an edit of the entry." == following
    assert "You: correct /etc/mcpvisor/mcpvisor.toml:7, then `mcpvisor reload`" == remedy


def test_a_flood_on_stderr(explained):
    """A server that is ready and floods stderr is called both, with how much was dropped."""
    explanation, (what, _, remedy, *_) = explained(State.READY, stderr_dropped=12000)

    assert 12000 == explanation["stderr_dropped"]
    assert "s is ready, but it floods stderr (12000 lines over the rate were dropped)." == what
    assert "log level" in remedy


def test_a_crash_loop(explained):
    """A crash loop says how often in what time, how the last process ended, its last words and the next careful try."""
    signs = Signs(cause="process_exited", ends=5, ends_seconds=50.0)
    explanation, (what, following, remedy, *rest) = explained(
        State.CRASH_LOOP, signs=signs, reason="more than 5 ends in 60 s", next_attempt=NOW + 250,
        last_exit="exited with code 1",
        stderr=(StderrLine(NOW - 10, "KeyError: 'TOKEN'"),),
    )  # fmt: skip

    assert "s keeps ending (5 ends in 50 s): more than 5 ends in 60 s; its last process exited with code 1." == what
    assert "one careful try" in following
    assert "in 4 min" in following
    assert "mcpvisor restart s" in remedy
    assert "  <990> KeyError: 'TOKEN'" == rest[-1]
    assert [{"at": 990, "line": "KeyError: 'TOKEN'"}] == explanation["stderr"]


def test_a_stop_by_an_operator(explained):
    """A stopped server says who stopped it, that nothing will happen, and how to start it."""
    _, (what, following, remedy, *_) = explained(
        State.STOPPED, wanted="stopped", wanted_by="uid:0 (stop)", reason="stop ordered by uid:0"
    )

    assert "s was stopped: stop ordered by uid:0." == what
    assert "Next: nothing happens until `start`, or until the daemon's own next start." == following
    assert "You: `mcpvisor start s`" == remedy


@pytest.mark.parametrize(("by", "advice"), [("config", "set `enabled = true`"), ("uid:0", "`mcpvisor enable s`")])
def test_a_disabled_server(explained, by, advice):
    """A disabled server says by whom, and the way back fits who did it."""
    _, (what, _, remedy, *_) = explained(State.DISABLED, wanted="disabled", wanted_by=by)

    assert f"s is disabled by {by}." == what
    assert remedy.startswith(f"You: {advice}")


def test_refused_credentials(explained):
    """A server that refuses the credentials says that others are waited for, and where they are written."""
    _, (what, following, remedy, *_) = explained(
        State.AUTH_REQUIRED, signs=Signs(cause="auth"), reason="HTTP 401", next_attempt=NOW + 300
    )

    assert "s refuses the credentials it was given: HTTP 401." == what
    assert "waits for other credentials" in following
    assert "`auth` or `headers` in /etc/mcpvisor/mcpvisor.toml:7" in remedy


def test_credentials_that_cannot_be_fetched(explained):
    """Where there are none to be refused the fault is their source's, and it is that which is to be mended."""
    failed = Signs(cause="auth", is_penniless=True)
    reason = "the token endpoint https://x/token answered 401 Unauthorized: invalid_client"
    _, (what, _, remedy, *_) = explained(State.AUTH_REQUIRED, signs=failed, reason=reason, next_attempt=NOW + 300)

    assert f"s has no credentials: {reason}." == what
    assert "You: mend what the reason names (`auth` or `header_command` in /etc/mcpvisor/mcpvisor.toml:7)" in remedy
    assert "`mcpvisor restart s` tries at once" in remedy

    _, (what, *_) = explained(State.AUTH_REQUIRED, signs=Signs(cause="auth"), reason="HTTP 401")
    assert "s refuses the credentials it was given: HTTP 401." == what


def test_a_session_without_credentials(explained):
    """A session that is kept while its credentials cannot be fetched is not said to answer calls."""
    reason = "no credentials: the token endpoint https://x/token answered 503 Service Unavailable"
    _, (what, _, remedy, *_) = explained(State.DEGRADED, reason=reason)

    assert f"s keeps its session, but there is nothing to send a call with: {reason}." == what
    assert remedy.startswith("You: look at why its credentials cannot be fetched")


def test_a_session_whose_credentials_are_refused(explained):
    """Nor is one whose server refuses what it is given, whatever was missed before; the next session changes nothing of it."""
    reason = "credentials refused: HTTP 401; restart ordered, but the next session did not come up; the former one is kept"
    _, (what, _, remedy, *_) = explained(
        State.DEGRADED, reason=reason, missed=ProbeMissed(at=NOW, server="s", misses=1, allowed=3)
    )

    assert f"s keeps its session, but the server refuses the credentials it is given: {reason}." == what
    assert "`auth` or `headers` in /etc/mcpvisor/mcpvisor.toml:7" in remedy


@pytest.mark.parametrize("asked_to_wait", [True, False])
@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("no room: ping was answered 503 Service Unavailable", "it is overloaded or limits its clients"),
        ("refuses: tools/list: the server answered 400 Bad Request", "look at that server's own log for why it refuses"),
        ("answers with errors: tools/list was answered -32603: no", "look at that server's own log for why it refuses"),
    ],
)
def test_a_server_that_refuses_what_it_is_asked(explained, reason, remedy, asked_to_wait):
    """It is not said to answer calls: what it answered, to what, for how long, and when it is looked at again."""
    explanation, (what, following, you, *_) = explained(
        State.DEGRADED,
        reason=reason,
        transport="http",
        refused_since=NOW - 180,
        probe_next=NOW + 20,
        probe_asked_to_wait=asked_to_wait,
    )
    when = "when the server asked it to (its Retry-After), and no earlier" if asked_to_wait else "by itself"

    assert f"s keeps its session, but the server refuses what it is asked: {reason}; so for 3 min now." == what
    assert f"Next: the daemon keeps the session, and probes it again {when} - at <1020>, in 20 s." == following
    assert you.startswith(f"You: {remedy}")
    assert ("leave it that" in you) == asked_to_wait
    assert ("refusal", NOW - 180, NOW + 20) == tuple(
        explanation["server"][key] for key in ("hindrance", "refused_since", "probe_next")
    )


def test_a_process_that_answers_with_errors(explained):
    """Of a process there is stderr to look at."""
    _, (_, _, remedy, *_) = explained(State.DEGRADED, reason="answers with errors: ping was answered -32603: no")

    assert "You: look at its stderr for why it answers with errors; `mcpvisor restart s` makes a fresh session." == remedy


def test_silence_is_not_said_to_answer_calls(explained):
    """Nor is a server that is busy with calls and answers no probe, whatever the events still have of it."""
    _, (what, _, remedy, *_) = explained(State.DEGRADED, reason="busy: a probe was not answered")

    assert "s keeps its session, but does not answer probes: busy: a probe was not answered." == what
    assert remedy.startswith("You: look at whether its process")


def test_a_call_that_the_credentials_are_not_for(explained):
    """A refusal for want of a scope is told of a server that is ready, with what to do."""
    _, (what, _, remedy, *_) = explained(State.READY, signs=Signs(denied="HTTP 403: it wants the scope tools:run"))
    assert "s is ready, but it denies its credentials some of the calls (HTTP 403: it wants the scope tools:run)." == what
    assert remedy.startswith("You: give its credentials what the refusal names")


@pytest.mark.parametrize(("expiry", "text"), [(NOW + 90, "expires <1090> (in 90 s)"), (NOW - 5, "expired <995> (5 s ago)")])
def test_the_expiry_of_a_token(explained, expiry, text):
    """When the fetched token expires is told among the facts, and nothing where there is none."""
    _, lines = explained(State.READY, token_expires_at=expiry)
    assert [f"  token      {text}"] == [line for line in lines if line.startswith("  token ")]
    _, lines = explained(State.READY, token_expires_at=None)
    assert [] == [line for line in lines if line.startswith("  token ")]


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_three_sentences(explained, state):
    """In every state there is a sentence on what is, one on what comes, and one on what to do; none of them is empty."""
    _, lines = explained(state)

    assert lines[0].startswith("s ")
    assert len(lines[1]) > len("Next: .")
    assert len(lines[2]) > len("You: .")
    assert "" == lines[3]


def test_a_server_that_ends_without_a_word(explained):
    """A server that ended and left nothing on stderr is to be run by hand; one that left words, to be read."""
    _, (_, _, silent, *_) = explained(State.BACKOFF, signs=Signs(cause="process_exited"))
    _, (_, _, loud, *_) = explained(State.BACKOFF, signs=Signs(cause="process_exited"), stderr=(StderrLine(NOW, "oh"),))

    assert "it left no word on stderr: run its command by hand" in silent
    assert "its last words on stderr are below" in loud


def test_blemishes_of_the_catalog(explained):
    """Entries that were left out are counted in the first line, also those that are not named, and named below."""
    drop = CatalogDrop("tools", "bad", "no inputSchema")
    explanation, lines = explained(State.READY, signs=Signs(drops=(drop,), dropped=1, noise=7, excerpt="hello"))
    _, many = explained(State.READY, signs=Signs(drops=(drop,), dropped=30))

    assert [{"kind": "tools", "entry": "bad", "why": "no inputSchema"}] == explanation["catalog_drops"]
    assert "it writes to stdout what is no message (7 lines, such as 'hello'), 1 entry of its lists is left out" in lines[0]
    assert "  tools bad: no inputSchema" in lines
    assert "30 entries of its lists are left out or repaired" in many[0]


def test_what_was_is_no_sign_of_what_is(explained):
    """Events of the past accuse nobody: a server that was mended is ready, and that is all."""
    drop = CatalogEntryDropped(at=NOW, server="s", kind="tools", entry="bad", why="no inputSchema")
    noise = StdoutNoise(at=NOW, server="s", excerpt="hello", count=7)
    level = LogLevelAsked(at=NOW, server="s", level="debug", why="not today")
    denied = AccessDenied(at=NOW, server="s", detail="HTTP 403", count=1)
    explanation, lines = explained(State.READY, drop, noise, level, denied)

    assert ["s is ready.", "You: nothing."] == [lines[0], lines[2]]
    assert ([], 0, "") == (explanation["catalog_drops"], explanation["stdout_noise"], explanation["cause"])


def test_a_message_that_was_refused_once_is_blamed_for_its_own_harm_alone(explained):
    """A session that ails for another reason is not advised to raise a limit."""
    refused = Signs(cause="refused_size")
    _, (_, _, of_list, *_) = explained(State.DEGRADED, signs=refused, reason="tools/list failed: the answer was refused: size")
    _, (_, _, of_push, *_) = explained(State.DEGRADED, signs=refused, reason="the push channel is down")

    assert ("raise max_message" in of_list, "raise max_message" in of_push) == (True, False)


def test_lengths_of_time_are_none_of_the_wall_clock(explained):
    """A clock that was set back an hour changes nothing of how long a server is in its state, or keeps ending."""
    signs = Signs(ends=8, ends_seconds=40.0)
    set_back = {"since": NOW + 3600, "state_seconds": 12.0}
    explanation, lines = explained(State.CRASH_LOOP, signs=signs, **set_back)
    _, (hangs, *_) = explained(State.NEGOTIATING, **set_back)

    assert lines[0].startswith("s keeps ending (8 ends in 40 s)")
    assert "  state      crash_loop since <4600> (12 s ago)" in lines
    assert "for 12 s now" in hangs
    assert 12.0 == explanation["state_seconds"]


def test_a_log_level_that_is_not_taken(explained):
    """The first line names the level and the reason."""
    _, lines = explained(State.READY, signs=Signs(log_level="debug (not today)"))

    assert "it does not take the log level debug (not today)" in lines[0]


def test_each_subscription_is_shown_with_its_reason(explained):
    """The URI stands letter by letter in quotes; how it stands, why, and when it is tried again follow."""

    def one(uri, state, reason="", next_retry=None, poll=None):
        return SubscriptionStatus(
            uri=uri, state=SubscriptionState(state), reason=reason, next_retry=next_retry, holders=("config",), poll=poll
        )

    explanation, lines = explained(
        State.DEGRADED,
        subscriptions=(
            one("MiXeD://Host/a b", "active"),
            one("x://lost\n", "failed", "the server knows no such resource: gone", NOW + 300),
            one("x://read", "polled", "no push channel: GET was answered 405", NOW + 60, 60.0),
        ),
        strangers=3,
        reason="1 of 3 subscriptions does not work, such as x://lost: the server knows no such resource: gone",
        subscriptions_wanted=3,
        subscriptions_active=2,
    )

    assert "look at the reasons of its subscriptions below" in lines[2]
    assert "  subscribed 2 of 3; 3 updates of what nobody wants" in lines
    begin = lines.index("subscriptions:")
    assert lines[begin + 1 : begin + 4] == [
        "  'MiXeD://Host/a b' active",
        "  'x://lost\\n' failed: the server knows no such resource: gone; next try at <1300>",
        "  'x://read' polled, read every 60 s: no push channel: GET was answered 405",
    ]
    assert {"uri": "MiXeD://Host/a b", "state": "active", "reason": "", "next_retry": None} | {
        "holders": ["config"],
        "holders_in_all": 1,
        "poll": None,
    } == explanation["subscriptions"][0]


@pytest.mark.parametrize(
    ("holders", "shown"),
    [
        (("config",), ""),
        (("session 1 of uid:0",), " for session 1 of uid:0"),
        (("session 1 of uid:0", "config", "stream 2 of anonymous"), " for session 1 of uid:0 and 1 more"),
        (tuple(f"stream {number} of anonymous" for number in range(500)), " for stream 0 of anonymous and 499 more"),
    ],
)
def test_for_whom_a_resource_is_watched(explained, holders, shown):
    """Clients are named, the first of them and how many more there are; that its entry wants it goes without saying."""
    active = SubscriptionState.ACTIVE
    one = SubscriptionStatus(uri="x://1", state=active, reason="", next_retry=None, holders=holders, poll=None)
    _, lines = explained(State.READY, subscriptions=(one,))

    assert f"  'x://1' active{shown}" in lines


def test_uris_that_two_servers_claim():
    """Of two servers with one URI the first in name order owns it, and both are told of the other."""
    shared, own = {"uri": "x://1"}, {"uri": "x://2"}
    offers = {"b": Offer(resources=(shared, own)), "a": Offer(resources=(shared,))}

    assert ["x://1 is also offered by a; on /mcp it is a's, at /mcp/b this server's own"] == uri_conflicts("b", offers)
    assert ["x://1 is also offered by b; on /mcp it is a's, at /mcp/a this server's own"] == uri_conflicts("a", offers)


def test_events_are_shown_with_what_they_say(explained):
    """An event is one line with its time, its kind and the fields that say something."""
    moved = ServerStateChanged(
        at=990, server="s", old=State.READY, new=State.BACKOFF, reason="gone", next_attempt=None
    )  # fmt: skip
    _, lines = explained(State.BACKOFF, moved)

    assert "  <990> server_state_changed old=ready new=backoff reason=gone" in lines


def test_limits_that_do_not_hold_are_among_the_facts(explained):
    """A server that runs without a limit of its entry says so, with the reason; one whose limits hold says nothing."""
    explanation, lines = explained(State.READY, limits_not_enforced="memory: this machine has version 1 only")
    _, held = explained(State.READY, limits_not_enforced="")

    assert "memory: this machine has version 1 only" == explanation["server"]["limits_not_enforced"]
    assert "  limits     not enforced: memory: this machine has version 1 only" in lines
    assert not any("limits" in line for line in held)


@pytest.mark.parametrize(
    ("generation", "wanted", "is_said"), [(7, False, True), (6, False, False), (7, True, False), (6, True, False)]
)
def test_an_exit_is_a_cause_only_of_its_own_generation(explained, generation, wanted, is_said):
    """An exit of a former process, or one that the daemon itself has brought about, is below with its pid, and no cause."""
    exit_shown = {"last_exit_generation": generation, "last_exit_pid": 41, "last_exit_wanted": wanted}
    _, [what, *rest] = explained(
        State.BACKOFF, reason="3 probes missed", last_exit="was killed by SIGKILL after 13.1 s", generation=7, **exit_shown
    )
    by_us = ", ended by the daemon" if wanted else ""

    assert is_said is ("; its last process was killed by SIGKILL after 13.1 s" in what)
    assert f"  last exit  was killed by SIGKILL after 13.1 s (generation {generation}, pid 41{by_us})" in rest


@pytest.mark.parametrize(
    ("due", "reason", "expected"),
    [
        (NOW + 30, "", "keeps the session that serves, and tries again to bring up the next one - at <1030>, in 30 s."),
        (None, "", "keeps the session that serves until the next one is up, and goes on with that."),
        (None, "not again (restart.prevent_codes)", "keeps the session that serves, and brings up no other one until an edit"),
    ],
)
def test_what_follows_while_another_session_is_to_take_over(explained, due, reason, expected):
    """The next try of a successor has its time."""
    _, [_, following, *_] = explained(State.DEGRADED, reason=reason, replacing=True, next_attempt=due)

    assert following.startswith(f"Next: the daemon {expected}")


def test_what_is_over_its_memory_says_so_before_it_is_replaced(explained):
    """A server that is over its ceiling and waits for its time is not merely ready."""
    over = "it uses 160 MiB, over the 100 MiB of restart.max_memory"
    _, [what, following, *_] = explained(State.READY, too_large=over, recycled_at=NOW + 20)

    assert f"s is ready, but {over}." == what
    assert following.startswith("Next: the daemon replaces it in good order if it still uses so much then")
    assert following.endswith("- at <1020>, in 20 s.")


@pytest.mark.parametrize(
    ("misses", "expected"), [(2, "probe_missed misses=2 allowed=3"), (0, "probe_missed (busy: it does not count)")]
)
def test_a_missed_probe_is_shown_with_what_it_counts(explained, misses, expected):
    """A probe that was not answered while calls were in flight is not shown as the zeroth of so many."""
    _, shown = explained(State.READY, ProbeMissed(at=NOW - 1, server="s", misses=misses, allowed=3))

    assert f"  <999> {expected}" in shown


def test_instances_for_one_client_are_counted(explained):
    """The explanation says how many there are beside the one it is about, and names one that fails."""
    _, lines = explained(State.READY, instances=2, instance_failing="s@3 of uid:7 is failed: no such program")

    assert "  instances  2 for one client each; s@3 of uid:7 is failed: no such program" in lines
