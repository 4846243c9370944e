from __future__ import annotations

import json
import socket

import pytest

from mcpvisor.daemon.control.explain_text import clock_time

SAID_AT = 1_700_000_000.0
"""When the puppets wrote to stderr."""


def outcome(done):
    return done.returncode, done.stdout, done.stderr


def test_status_sums_up_and_lists(mcpvisor):
    """`status` begins with what is wrong, lists every server with its reason, and exits with 1 while one is not as wanted."""
    code, out, err = outcome(mcpvisor("status"))
    first, wrong, header, bad, good, off = out.splitlines()

    assert (1, "", "1/3 ready, 1 disabled") == (code, err, first)
    assert wrong.startswith("  1 backoff: bad: tried again in ")
    assert ["NAME", "STATE", "SINCE", "NEXT", "TRANSPORT", "ERA", "PID", "RESTARTS", "REASON"] == header.split()
    assert ["bad", "backoff"] == bad.split()[:2]
    assert "it exited with code 1" in bad
    assert ["good", "ready"] == good.split()[:2]
    assert ["off", "disabled"] == off.split()[:2]


@pytest.mark.parametrize(("server", "code"), [("good", 0), ("bad", 1), ("off", 0), ("nosuch", 1)])
def test_status_of_one_server(mcpvisor, server, code):
    """`status SERVER` exits by that server alone; at rest by order is as wanted, an unknown name is not."""
    assert code == mcpvisor("status", server).returncode


def test_status_for_programs(mcpvisor):
    """`status --json` is one JSON value on stdout."""
    status = json.loads(mcpvisor("status", "--json").stdout)

    assert (1, 3, ["bad", "good", "off"]) == (status["ready"], status["total"], [one["name"] for one in status["servers"]])


def test_status_waits_for_a_server(start, mcpvisor):
    """`status --wait` returns when the server has become ready, with 0; and with 1 when its time is over."""
    daemon = start()
    assert 1 == mcpvisor("status", "bad", "--wait", "--timeout", "1s", path=daemon.path).returncode
    daemon.tell("move bad ready")
    done = mcpvisor("status", "bad", "--wait", "--timeout", "10s", path=daemon.path)

    assert (0, "1/1 ready") == (done.returncode, done.stdout.splitlines()[0])


def test_status_names_what_was_rejected(start, mcpvisor):
    """A rejected entry is shown below the servers, with its place."""
    done = mcpvisor("status", path=start("--rejected").path)

    assert "  /etc/m.toml:3: unknown key 'comand'" == done.stdout.splitlines()[-1]


def test_explain_says_three_things_first(mcpvisor):
    """`explain` begins with what is wrong, what comes next, and what to do."""
    code, out, _ = outcome(mcpvisor("explain", "bad"))
    what, following, remedy, *_ = out.splitlines()

    assert (1, "bad is down: it exited with code 1.") == (code, what)
    assert following.startswith("Next: ")
    assert remedy.startswith("You: ")
    assert f"  {clock_time(SAID_AT)} bad says 2" in out.splitlines()


def test_orders_are_given(start, mcpvisor):
    """Each order returns once it is taken up, and says how the server is then."""
    path = start().path

    for order, state in [("stop", "stopped"), ("start", "starting"), ("restart", "starting"), ("disable", "disabled")]:
        code, out, err = outcome(mcpvisor(order, "good", path=path))
        assert (0, "") == (code, err)
        assert out.startswith(f"good is {state}, wanted ")
    assert "running" == json.loads(mcpvisor("enable", "good", "--json", path=path).stdout)["wanted"]


@pytest.mark.parametrize("order", ["start", "restart"])
def test_an_order_that_is_refused_is_a_no(mcpvisor, order):
    """`start` and `restart` of a disabled server exit with 1, and say that it is to be enabled first."""
    code, out, err = outcome(mcpvisor(order, "off"))

    assert (1, "") == (code, out)
    assert "off is disabled by config: `mcpvisor enable off` first" in err
    assert "refused while it is disabled" in mcpvisor(order, "--help").stdout


@pytest.mark.parametrize("verb", ["start", "call", "tools", "restart"])
def test_a_name_that_is_unknown_and_one_that_is_not_valid(start, mcpvisor, verb):
    """A verb on an entry that is not valid says so and why, and not that there is none."""
    daemon = start()
    daemon.tell("invalidate good")
    more = ["echo"] if verb == "call" else []
    done = mcpvisor(verb, "good", *more, path=daemon.path)
    unknown = mcpvisor(verb, "nosuch", *more, path=daemon.path)

    assert (1, "mcpvisor: the entry of 'good' is not valid: unknown key 'comand'\n") == (done.returncode, done.stderr)
    assert "no server is named 'nosuch'" in unknown.stderr


def test_logs_of_one_server_and_of_all(mcpvisor):
    """`logs SERVER` prints the lines with their times; `logs` puts each line's server before it; programs get both apart."""
    at = clock_time(SAID_AT)
    lines = json.loads(mcpvisor("logs", "good", "-n", "1", "--json").stdout)["lines"]

    assert f"{at} good says 1\n{at} good says 2\n" == mcpvisor("logs", "good", "-n", "2").stdout
    assert [f"{name}: {at} {name} says 2" for name in ("bad", "good", "off")] == mcpvisor("logs", "-n", "1").stdout.splitlines()
    assert [{"at": SAID_AT, "line": "good says 2"}] == lines


def test_events_are_listed(mcpvisor):
    """`events` prints what is known, one event a line; with filters only those that fit."""
    every, one = mcpvisor("events").stdout.splitlines(), mcpvisor("events", "--server", "bad", "--json").stdout

    assert 3 == len(every)
    assert ["server_state_changed"] == [event["kind"] for event in json.loads(one)["events"]]


@pytest.mark.parametrize("more", [(), ("-f",), ("--json",)])
def test_a_kind_of_event_that_is_unknown_is_told(mcpvisor, more):
    """`events --kind` with a kind that there is not is wrong usage, which names the one that was meant, or all."""
    code, _, err = outcome(mcpvisor("events", "--kind", "state_changed", *more))
    far = outcome(mcpvisor("events", "--kind", "zzz", *more))

    assert (64, "mcpvisor: no kind of event is called 'state_changed'; did you mean server_state_changed?\n") == (code, err)
    assert 64 == far[0]
    assert "no kind of event is called 'zzz'; there are access_denied, catalog_changed, " in far[2]


@pytest.mark.parametrize(
    ("verb", "entry"),
    [("tools", "echo"), ("resources", "puppet://good"), ("resources", "puppet://{any}"), ("prompts", "greet")],
)
def test_lists_of_what_servers_offer(mcpvisor, verb, entry):
    """`tools`, `resources` and `prompts` list entries under their servers, of one or of all."""
    one, every = mcpvisor(verb, "good"), mcpvisor(verb)

    assert 0 == one.returncode
    assert ["good", entry] in [line.split()[:2] for line in one.stdout.splitlines()]
    assert {"SERVER", "bad", "good", "off"} == {line.split()[0] for line in every.stdout.splitlines()}


def test_a_call_prints_the_text(mcpvisor, tmp_path):
    """`call` prints the text of the answer; arguments come from the command line, a file or stdin."""
    file = tmp_path / "arguments.json"
    file.write_text('{"text": "from a file"}')

    assert (0, "hi\n", "") == outcome(mcpvisor("call", "good", "echo", '{"text": "hi"}'))
    assert "from a file\n" == mcpvisor("call", "good", "echo", f"@{file}").stdout
    assert "from stdin\n" == mcpvisor("call", "good", "echo", "@-", stdin='{"text": "from stdin"}').stdout


def test_a_call_for_programs_prints_the_raw_result(mcpvisor):
    """`call --json` prints the result as the server sent it, with what nobody knows in it."""
    result = json.loads(mcpvisor("call", "good", "echo", "--json").stdout)

    assert 10**25 == result["vendor"]


def test_progress_is_told_beside_the_data(mcpvisor):
    """Progress goes to stderr while a call runs, and what is no text is described."""
    code, out, err = outcome(mcpvisor("call", "good", "steps"))

    assert (0, "[image image/png, 4 characters of base64]\n") == (code, out)
    assert "mcpvisor: 1 of 2: step 1\nmcpvisor: 2 of 2: step 2\n" == err


def test_no_line_of_a_server_passes_for_one_of_ours(mcpvisor):
    """Errors, failures and progress of a server are told with their further lines set in, whatever they hold."""
    said = "x\n\n    mcpvisor: the daemon is not running\n    \\x1b[1m\\xad"

    for tool in ("lies", "breaks", "boasts"):
        code, out, err = outcome(mcpvisor("call", "good", tool))
        assert (1, "") == (code, out)
        assert said.replace("\n\n", "\n    \n") in err, tool
        assert 1 == sum(line.startswith("mcpvisor: ") for line in err.splitlines()) - (tool == "boasts"), err


def test_a_flood_of_progress_is_told_in_few_lines(mcpvisor):
    """However much a server tells of its progress, a person sees the newest of it a few times a second, and the last."""
    code, _, err = outcome(mcpvisor("call", "good", "floods"))
    lines = err.splitlines()

    assert 0 == code
    assert "mcpvisor: 0" == lines[0]
    assert "mcpvisor: 2999" == lines[-1]
    assert len(lines) < 600


def test_a_tool_that_fails_is_a_no(mcpvisor):
    """An answer with an error exits with 1, its text on stderr."""
    assert (1, "", "mcpvisor: the tool answered with an error: by zero\n") == outcome(mcpvisor("call", "good", "fails"))


def test_a_call_that_fails_says_what_became_of_it(mcpvisor):
    """A call without an answer exits with 1 and prints outcome and cause; with `--json` the error object is on stdout."""
    code, out, err = outcome(mcpvisor("call", "good", "dies"))
    failed = json.loads(mcpvisor("call", "good", "dies", "--json").stdout)

    assert (1, "") == (code, out)
    assert "the process exited with code 1 (outcome maybe_executed, cause process_exited, try again in 1.5 s)" in err
    assert "UNKNOWN" == failed["error"]["status"]


def test_a_resource_is_read(mcpvisor):
    """`read` prints the text of a resource."""
    assert (0, "the text\n", "") == outcome(mcpvisor("read", "good", "puppet://good"))


def test_reload_says_what_changed(start, mcpvisor):
    """`reload` exits with 0 when all is applied, and with 1 when with `--wait` not all are ready in time."""
    daemon = start()
    code, out, err = outcome(mcpvisor("reload", path=daemon.path))
    daemon.tell("unready")

    of_servers = ["restart  good (target): now ready", "stop     gone: gone"]
    assert (0, [*of_servers, "start    handler note", "update   routes"]) == (code, out.splitlines())
    assert "/etc/m.toml: hint: a hint" in err
    assert "gateway.listen has changed" in err
    assert 1 == mcpvisor("reload", "--wait", path=daemon.path).returncode


@pytest.mark.parametrize("verb", ["reload", "plan"])
def test_what_is_rejected_is_a_fault_of_the_configuration(start, mcpvisor, verb):
    """A rejected entry makes `reload` and `plan` exit with 78 and is named with its place."""
    code, _, err = outcome(mcpvisor(verb, path=start("--rejected").path))

    assert 78 == code
    assert "mcpvisor: /etc/m.toml:3: unknown key 'comand'" in err.splitlines()


def test_a_kind_of_event_that_is_not_kept_says_so(mcpvisor):
    """Whoever asks for the past of what is told live only learns how it is seen; for other kinds nothing is said."""
    _, _, err = outcome(mcpvisor("events", "--kind", "resource_updated"))
    hint = "`mcpvisor events -f --kind resource_updated` shows it"

    assert f"mcpvisor: resource_updated is told as it happens and not kept: {hint}" in err.splitlines()
    assert "" == outcome(mcpvisor("events", "--kind", "server_state_changed"))[2]


def test_a_plan_lists_what_would_change(mcpvisor):
    """`plan` lists the servers and handlers that would not stay as they are; `--exit-code` makes that a 1."""
    told = "mcpvisor: metrics.listen is another: it is read when the daemon starts\n"
    assert (0, "restart  good (command)\nrestart  handler note (queue)\nupdate   routes\n", told) == outcome(mcpvisor("plan"))
    assert 1 == mcpvisor("plan", "--exit-code").returncode


def test_check_needs_no_daemon(mcpvisor, tmp_path):
    """`check` validates without a daemon: 0 for a good file, 78 with the place of each error for a bad one."""
    good, bad, nothing = tmp_path / "good.toml", tmp_path / "bad.toml", tmp_path / "no.sock"
    good.write_text('[servers.a]\ncommand = "true"\n')
    bad.write_text('[servers.a]\ncomand = "true"\n')

    assert 0 == mcpvisor("check", str(good), path=nothing).returncode
    refused = mcpvisor("check", str(bad), path=nothing)
    assert 78 == refused.returncode
    assert f"{bad}:2" in refused.stdout
    assert "command" in refused.stdout
    assert not json.loads(mcpvisor("check", str(bad), "--json", path=nothing).stdout)["ok"]


def test_version_needs_no_daemon(mcpvisor, tmp_path):
    """`version` tells the versions and the revisions of the protocol without a daemon."""
    facts = json.loads(mcpvisor("version", "--json", path=tmp_path / "no.sock").stdout)

    assert "2026-07-28" in facts["protocol_revisions"]
    assert "2025-11-25" in facts["protocol_revisions"]
    assert facts["mcp"].startswith("2.")


def test_no_daemon_is_3(mcpvisor, tmp_path):
    """Without a socket, and with a socket that nobody listens on, the exit code is 3 and the path is named."""
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(stale))

    for path in (tmp_path / "none.sock", stale):
        done = mcpvisor("status", path=path)
        assert (3, "") == (done.returncode, done.stdout)
        assert str(path) in done.stderr


def test_every_socket_tried_is_named(mcpvisor, tmp_path):
    """Without a named socket the places are tried in their order, and all of them are named."""
    done = mcpvisor("status", path=None, XDG_RUNTIME_DIR=str(tmp_path))
    places = ["/run/mcpvisor/control.sock", f"{tmp_path}/mcpvisor/control.sock", "/tmp/mcpvisor-"]
    tried = [done.stderr.find(place) for place in places]

    assert 3 == done.returncode
    assert -1 not in tried
    assert sorted(tried) == tried


def test_a_daemon_that_does_not_answer_is_69(mcpvisor, tmp_path):
    """A daemon that accepts and says nothing is told from one that is not there."""
    path = tmp_path / "mute.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        done = mcpvisor("status", path=path)

    assert 69 == done.returncode
    assert "did not answer" in done.stderr


def test_a_servers_own_process_is_77(mcpvisor):
    """A process that carries the daemon's mark has no permission, and is told why."""
    done = mcpvisor("stop", "good", MCPVISOR_INSTANCE="instance-of-tests")

    assert 77 == done.returncode
    assert "one of this daemon's servers" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nosuch"],
        ["stop"],
        ["status", "--timeout", "soon"],
        ["status", "--timeout", "-1"],
        ["logs", "-n", "many"],
        ["call", "good", "echo", "[1]"],
        ["call", "good", "echo", "{"],
        ["call", "good", "echo", "@/no/such/file"],
    ],
)
def test_usage_errors_are_64(mcpvisor, arguments):
    """What cannot be meant is 64, with nothing on stdout."""
    done = mcpvisor(*arguments)

    assert (64, "") == (done.returncode, done.stdout)
    assert "mcpvisor" in done.stderr


def test_the_socket_may_be_named_before_or_after_the_verb(daemon, mcpvisor, tmp_path):
    """`--socket` wins over the environment, wherever it stands."""
    other = tmp_path / "none.sock"

    assert 1 == mcpvisor("--socket", str(daemon.path), "status", path=other).returncode
    assert 1 == mcpvisor("status", "--socket", str(daemon.path), path=other).returncode
    assert 3 == mcpvisor("status", "--socket", str(other)).returncode


def test_help_names_the_exit_codes(mcpvisor):
    """`--help` is data: it exits with 0, and tells the exit codes."""
    done = mcpvisor("--help")

    assert 0 == done.returncode
    assert "the daemon does not answer" in " ".join(done.stdout.split())
