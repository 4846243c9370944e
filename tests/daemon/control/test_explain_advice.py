from __future__ import annotations

from pathlib import Path

import pytest

from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.control.evidence import Evidence, rejections_of
from mcpvisor.daemon.control.explain import explain
from mcpvisor.daemon.control.explain_text import as_text
from mcpvisor.daemon.local_time import iso_time
from mcpvisor.supervisor.events import ProbeMissed
from mcpvisor.supervisor.signs import Signs
from mcpvisor.supervisor.spec import HttpTarget, RestartPolicy, RestartRule, ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import State

NOW = 1000.0
STDIO = ServerSpec(name="s", target=StdioLaunch(command="true"))
HTTP = ServerSpec(name="s", target=HttpTarget(url="http://127.0.0.1:1/mcp"))


@pytest.fixture
def lines(puppet):
    """The lines of an explanation of a server in a given state; `other` are fields of its status."""

    def run(
        state, cause="", *, noise=0, excerpt="", spec=STDIO, missed=None, rejections=(), waiting=None, removal=None, **other
    ):
        status = puppet.a_status("s", state, **{"since": NOW - 12, "transport": spec.transport if spec else "", **other})
        evidence = Evidence(
            status=status,
            spec=spec,
            signs=Signs(cause=cause, noise=noise, excerpt=excerpt),
            missed=missed,
            rejections=rejections,
            waiting=waiting,
            removal=removal,
        )
        return as_text(explain(evidence, NOW), clock=lambda at: f"<{at:g}>").split("\n")

    return run


CAUSES = [
    "", "start_timeout", "no_answer", "connect_failed", "tls", "auth", "auth_unavailable", "protocol", "not_mcp", "not_found",
    "redirect", "http_refused", "server_error", "busy", "session_lost", "stream_failed", "probe", "process_exited",
    "refused_size", "occupied", "internal",
]  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("state", list(State))
def test_advice_for_a_server_elsewhere_speaks_of_no_process_here(lines, state, cause):
    """A server that is reached by HTTP has no stderr, command or arguments that an operator could look at."""
    _, _, remedy, *_ = lines(state, cause, spec=HTTP, next_attempt=NOW + 5, pid=None)

    assert [] == [word for word in ("stderr", "command", "`args`", "process", "None") if word in remedy]


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("spec", [STDIO, HTTP], ids=["stdio", "http"])
def test_no_advice_is_given_twice(lines, state, cause, spec):
    """Each command stands in the advice once."""
    _, _, remedy, *_ = lines(state, cause, spec=spec, next_attempt=NOW + 5)

    assert remedy.count("`mcpvisor restart") <= 1


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("no TLS with https://h:1: WRONG_VERSION_NUMBER", "write `http://` in `url`"),
        ("no TLS with https://h:1: SSLV3_ALERT_HANDSHAKE_FAILURE", "find no TLS in common"),
        ("the certificate of https://h is not trusted: expired (key tls.ca names a CA to trust)", "the server's certificate"),
        ("the server refused TLS: ALERT (keys tls.client_cert and tls.client_key)", "give it the certificate it asks for"),
        ("tls.ca: /x cannot be loaded: no such file", "correct the file that the reason names"),
    ],
)
def test_a_certificate_is_blamed_only_where_it_is_one(lines, reason, advice):
    """A port without TLS, a certificate that is asked of us and a file of ours are told from the server's certificate."""
    _, _, remedy, *_ = lines(State.FAILED, "tls", spec=HTTP, reason=reason, next_attempt=NOW + 300)

    assert advice in remedy
    assert ("server's certificate" in advice) == ("server's certificate" in remedy)


def test_a_login_page_is_called_a_web_page(lines):
    """What answers with HTML is named as a web page, not as a server that is down."""
    reason = "the server answered 200 OK, text/html: <h1>Sign in</h1>"
    what, _, remedy, *_ = lines(State.BACKOFF, "not_mcp", spec=HTTP, reason=reason, next_attempt=NOW + 1)

    assert what.startswith("s is down, it answered with a web page, not MCP: ")
    assert "no login page or proxy stands before it" in remedy


def test_a_server_that_asks_for_patience_is_given_it(lines):
    """Where `Retry-After` decides the next try, that is said, and nobody is told to try at once."""
    reason = "the server answered 503 Service Unavailable (Retry-After: 120 s)"
    _, following, remedy, *_ = lines(State.BACKOFF, "busy", spec=HTTP, reason=reason, next_attempt=NOW + 120)

    assert "its Retry-After" in following
    assert following.endswith("at <1120>, in 2 min.")
    assert "tries at once" not in remedy


def test_a_time_that_passed_long_ago_is_not_now(lines):
    """A deadline that is over is called over, with since when; one that has just come is now."""
    _, late, *_ = lines(State.NEGOTIATING, deadline=NOW - 60)
    _, now, *_ = lines(State.NEGOTIATING, deadline=NOW - 0.5)

    assert late.endswith("it was due at <940>, 60 s ago.")
    assert now.endswith("at <999.5>, which is now.")


@pytest.mark.parametrize("state", [State.STARTING, State.NEGOTIATING, State.RESTORING, State.DRAINING])
def test_without_a_known_deadline_no_time_is_named(lines, state):
    """Where nobody knows how long it may last, no time is made up."""
    _, following, *_ = lines(state, deadline=None)

    assert " - " not in following


@pytest.mark.parametrize(
    ("state", "policy", "wanted"), [(State.FAILED, "never", "running"), (State.STOPPED, "on-failure", "stopped")]
)
def test_a_server_that_its_restart_policy_leaves_ended(lines, state, policy, wanted):
    """What comes next is nothing, by its restart policy, and the advice is to look why it ended and to start it."""
    spec = ServerSpec(name="s", target=StdioLaunch(command="true"), restart=RestartPolicy(policy=RestartRule(policy)))
    reason = f"the server exited with code 1; its restart policy is {policy}"
    what, following, remedy, *_ = lines(state, "process_exited", spec=spec, reason=reason, wanted=wanted)

    assert f"s has ended and is not started again: {reason}." == what
    assert f"Next: nothing by itself: its restart policy is {policy}." == following
    assert "look at why it ended" in remedy
    assert remedy.endswith("`mcpvisor start s`")


def test_a_deaf_server_is_told_from_one_that_answers(lines):
    """While probes are missed, that is said with how many of how many, who waits for it, and when it is replaced."""
    missed = ProbeMissed(at=NOW, server="s", misses=1, allowed=3)
    what, following, remedy, *_ = lines(State.DEGRADED, missed=missed, reason="probe 1/3 missed", in_flight=1)

    assert "s does not answer probes (1 of 3 missed in a row); 1 call waits for it." == what
    assert "replaces it after 3 missed probes in a row" in following
    assert "(pid 4242) is at work or was stopped" in remedy


def test_calls_that_wait_for_others_are_told(lines):
    """A server that is ready, and to which calls do not get through, says how many wait and what bounds them."""
    what, *_ = lines(State.READY, in_flight=16, queued=64)
    calm, *_ = lines(State.READY, in_flight=16)

    assert what == "s is ready; it works on 16 calls, and 64 more wait for a place (concurrency, queue)."
    assert calm == "s is ready."


def test_noise_on_stdout_is_shown_and_sent_to_stderr(lines):
    """A banner on stdout is shown in the first line and whole below, and the advice is to write it to stderr."""
    noise = {"noise": 1, "excerpt": "Welcome! " * 10}
    what, _, remedy, *rest = lines(State.READY, **noise)
    down, _, also, *_ = lines(State.BACKOFF, "protocol", next_attempt=NOW + 1, **noise)

    assert "it writes to stdout what is no message (1 line, such as 'Welcome! " in what
    assert "make it write to stderr what it writes to stdout" in remedy
    assert any(line.startswith("  stdout ") and "Welcome! " * 9 in line for line in rest)
    assert "it wrote to stdout what is no message" in down
    assert "make it write to stderr" in also


def test_a_rejected_edit_is_in_the_first_line(lines):
    """A server whose entry was edited and rejected is ready by its last good version, and says so with the place."""
    rejection = {"where": "/etc/m.toml:7:1", "error": "unknown key 'comand' {x}", "server": "s"}
    what, _, remedy, *_ = lines(State.READY, rejections=[rejection])

    assert "s is ready; its entry was edited and rejected: /etc/m.toml:7:1: unknown key 'comand' {x}." == what
    assert "You: correct /etc/m.toml:7:1, then `mcpvisor reload`" == remedy


@pytest.mark.parametrize(
    ("rejection", "said"),
    [
        ({"keeps_running": False, "server": "s"}, "another entry of its name is not used"),
        ({"needs": "/etc/ca.pem", "server": "s"}, "what its entry names cannot be used as it is now (/etc/ca.pem)"),
        ({"server": ""}, "the file of its entry was edited and rejected"),
        ({"server": "", "where": "/etc/m.toml"}, "the file of its entry cannot be used as it is now"),
    ],
)
def test_what_was_rejected_is_called_by_its_name(lines, rejection, said):
    """An edit of the entry, another entry of its name, its file, or a file that it names: each is said in its own words."""
    what, _, remedy, *_ = lines(State.READY, rejections=[{"where": "/etc/m.toml:7:1", "error": "bad", **rejection}])

    assert f"s is ready; {said}: " in what
    assert ("You: correct /etc/ca.pem, which is seen by itself." == remedy) == ("needs" in rejection)


def test_since_when_something_is_rejected_is_said_once(lines):
    """A text that names the time itself is left as it is."""
    one = {"where": "/etc/m.toml:7:1", "error": "bad", "server": "s", "since": 900.0}
    plain, *_ = lines(State.READY, rejections=[one])
    said, *_ = lines(State.READY, rejections=[{**one, "error": f"rolled back at {iso_time(900.0)}"}])

    assert plain.endswith(f": bad (since {iso_time(900.0)}).")
    assert 1 == said.count(iso_time(900.0))


WAITS = {
    "server": "s",
    "handler": "",
    "what": "",
    "where": "/etc/s.toml:1",
    "change": "update",
    "fields": ["queue"],
    "waits_for": "/etc/b.toml:5:1",
    "why": "bad",
    "since": 900.0,
    "told": "the edit of it (queue) is not applied",
}


def test_an_edit_that_waits_is_in_the_first_lines(lines):
    """What waits, since when, for what, and what to correct; a server that is new is not said to be wrong."""
    taken_back = {"where": "/etc/s.toml:1", "error": "rolled back", "server": "s", "needs": "/etc/ca.pem"}
    mended = lines(State.READY, waiting=WAITS, rejections=[taken_back])
    runs, new = lines(State.READY, waiting=WAITS), lines(State.FAILED, waiting=WAITS, spec=None, reason="it is new")

    waits = f"/etc/s.toml:1: the edit of it (queue) is not applied (since {iso_time(900.0)})."
    assert f"s is ready; an edit of its entry waits: {waits}" == runs[0]
    assert runs[1].endswith("; the edit of its entry is applied as soon as /etc/b.toml:5:1 is corrected.")
    assert f"s does not run yet: {waits}" == new[0]
    assert "Next: it is started as soon as /etc/b.toml:5:1 is corrected." == new[1]
    assert {"You: correct /etc/b.toml:5:1, then `mcpvisor reload`"} == {runs[2], new[2], mended[2]}


def test_a_removal_that_is_to_come_is_next(lines):
    """A server whose file is gone is not said to go on; whoever did not mean it is told what to do."""
    removal = {"server": "s", "file": "/etc/s.toml", "since": NOW - 1, "at": NOW + 4}
    what, following, remedy, *_ = lines(State.READY, removal=removal)

    assert f"its file /etc/s.toml is gone since {iso_time(NOW - 1)}, and it is removed at {iso_time(NOW + 4)}" in what
    assert following.startswith("Next: the daemon removes it, unless the file of its entry comes back before")
    assert following.endswith(f" - at <{NOW + 4:g}>, in 4 s.")
    assert "You: put /etc/s.toml back, if it is not to go." == remedy


def test_which_rejections_are_a_servers_own(puppet):
    """A server is concerned by what is wrong with its entry, and with its file where that keeps servers as they were."""
    main = Path("/etc/mcpvisor/mcpvisor.toml")
    entry = Problem(file=Path("/other.toml"), line=1, message="bad", server="s").rejection()
    file = Problem(file=main, line=9, message="no TOML", keeps_running=True, keeps_servers=True).rejection()
    setting = Problem(file=main, line=1, message="gateway.listen: bad", keeps_running=True).rejection()
    others = Problem(file=main, line=2, message="bad", server="t", keeps_running=True, keeps_servers=True).rejection()

    assert [entry, file] == rejections_of(puppet.a_status("s"), [entry, file, setting, others])


@pytest.mark.parametrize(
    ("on_trial", "wanted", "told"), [(True, "running", True), (False, "running", False), (True, "stopped", False)]
)
def test_a_trial_is_part_of_what_happens_next(puppet, on_trial, wanted, told):
    """What is on trial is not simply tried again; at rest by order nothing is taken back."""
    evidence = Evidence(status=puppet.a_status("s", State.NEGOTIATING, wanted=wanted), spec=STDIO, on_trial=on_trial)

    assert told is ("the former one runs again if it does not become ready in its time" in explain(evidence, NOW)["next"])
