"""The shipped unit, installed as its operator would install it, under a real systemd."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conftest import SERVERS
from tests.e2e.running import entry
from tests.systemd.installation import PUPPETS, PYTHON, install
from tests.systemd.machine import Machine
from tests.systemd.service import CLI, UNIT, Service

pytestmark = pytest.mark.systemd

CANARY = "canary-2b8c61f04d"
SHORT_STOP = {"stdin": "300ms", "term": "300ms"}
QUICK_RESTART = "RestartSec=100ms"
SOON = 15.0
"""Seconds for what waits for nobody, on a machine that has other tests to run; who waits does so for good, or twice as long."""
HELD = 0.25
"""Seconds that nothing takes while journald hangs, which it does for longer than that."""

NOISY = """
import sys, threading, time
sys.path.insert(0, "/opt/puppets")
from lite import stdio
def flood():
    while True:
        sys.stderr.write("".join(f"a line that says nothing, {number}\\n" for number in range(200)))
        sys.stderr.flush()
        time.sleep(0.005)
threading.Thread(target=flood, daemon=True).start()
stdio()
"""

FILL_JOURNALD = """
import itertools, socket
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.setblocking(False)
        try:
            for sent in itertools.count():
                s.sendto(b"MESSAGE=x", "/run/systemd/journal/socket")
        except BlockingIOError:
            if sent == 0:  # not the sender's buffer is full, but journald's queue
                break
"""
"""Makes journald's socket take nothing more from anybody, until journald reads again."""


def puppet(name: str, script: str = "lite.py", *args: str, **keys: Any) -> str:
    """The entry of a puppet server of the machine."""
    return entry(name, PYTHON, f"{PUPPETS}/{script}", *args, **{"stop": SHORT_STOP, **keys})


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the program installed, a member of its group and somebody else."""
    with Machine(tmp_path_factory.mktemp("machine")) as machine:
        install(machine, SERVERS)
        machine.run("systemd-sysusers", "--inline", "u member -", "m member mcpvisor", "u stranger -")
        yield machine


@pytest.fixture
def service(machine: Machine) -> Iterator[Callable[..., Service]]:
    """Gives the unit its servers, and a drop-in where a test needs one; what it logged is shown when the test fails."""
    made: list[Service] = []

    def make(servers: str, drop_in: str = "") -> Service:
        made.append(Service(machine, servers, drop_in))
        return made[-1]

    yield make
    for one in made:
        print("\n".join(str(record.get("MESSAGE")) for record in one.journal()))
        one.clear()


def test_a_start_waits_for_no_server(service: Callable[..., Service]) -> None:
    """`systemctl start` waits for no server, though one never answers; the status line counts, and follows within seconds."""
    unit = service(puppet("good") + puppet("mute", "lite.py", "--hang-init"))
    code, seconds = unit.systemctl("start")
    unit.until(lambda: unit.show("StatusText") == "1/2 servers ready", "the first count")
    unit.control.post("/v1/servers/good:stop")
    unit.until(lambda: "good" not in unit.server_pids(), "the stop")
    began = time.monotonic()
    unit.until(lambda: unit.show("StatusText") == "0/2 servers ready, 1 stopped", "the new count")
    changed = time.monotonic() - began

    assert (0, "active") == (code, unit.show("ActiveState"))
    assert seconds < SOON
    assert changed < 4


def test_a_reload_says_what_came_of_it(service: Callable[..., Service]) -> None:
    """`systemctl reload` succeeds with a good configuration and fails with a bad one; what runs runs on in either case."""
    unit = service(puppet("one"))
    unit.start()
    daemon, before = unit.pid, unit.server_pids()
    unit.configure(puppet("one") + puppet("two"))
    good = unit.systemctl("reload")[0]
    unit.until_ready()
    added = unit.server_pids()
    unit.configure(puppet("one") + puppet("two", colour="red"))
    bad = unit.systemctl("reload")[0]

    assert (0, 1) == (good, bad)
    assert "exit-code" == unit.show("ReloadResult")
    assert (daemon, "active") == (unit.pid, unit.show("ActiveState"))
    assert before == {"one": added["one"]}
    assert added == unit.server_pids()
    (wrong,) = unit.control.get("/v1/status")["config"]["rejected"]
    place = wrong["where"].rpartition(":")[0]
    assert unit.show("StatusText").startswith(f"2/2 servers ready; 1 configuration error at {place} since 20")


def test_a_reload_without_a_daemon_to_ask_fails_at_once(service: Callable[..., Service]) -> None:
    """Where the control socket is gone `systemctl reload` fails without waiting, and the daemon stays up."""
    unit = service(puppet("one"))
    unit.start()
    (unit.machine.root / "run/mcpvisor/control.sock").unlink()
    code, seconds = unit.systemctl("reload")

    assert (1, "active") == (code, unit.show("ActiveState"))
    assert seconds < SOON


def test_sighup_reloads_too(service: Callable[..., Service]) -> None:
    """SIGHUP to the daemon is a reload that nobody waits for."""
    unit = service(puppet("one"))
    unit.start()
    daemon = unit.pid
    unit.kill("HUP")
    unit.until(lambda: 'mcpvisor_config_reloads_total{outcome="applied",trigger="signal"} 1.0' in unit.metrics(), "the reload")
    unit.until(lambda: unit.show("ActiveState") == "active", "the end of the reload")

    assert daemon == unit.pid


def test_the_watchdog_replaces_a_daemon_that_is_stuck(service: Callable[..., Service]) -> None:
    """A daemon that turns no more is ended by the watchdog and comes back with every server, each of them once."""
    unit = service(puppet("one") + puppet("two"), f"WatchdogSec=4s\n{QUICK_RESTART}")
    unit.start()
    daemon, before = unit.pid, unit.processes()
    unit.kill("STOP")
    unit.until(lambda: unit.pid not in (0, daemon) and unit.show("ActiveState") == "active", "the restart", 40)
    unit.until_ready()
    servers = unit.server_pids()
    now = unit.processes()

    assert ["watchdog"] == [record["UNIT_RESULT"] for record in unit.journal(f"UNIT={UNIT}") if "UNIT_RESULT" in record]
    assert set() == before & now
    assert ["one", "two"] == list(servers)
    assert {unit.pid, *servers.values()} < now
    assert 4 == len(now), "the daemon, its guardian and two servers"


def test_a_killed_daemon_leaves_nothing_to_the_next(service: Callable[..., Service]) -> None:
    """After SIGKILL the daemon is restarted, and no process of its former run exists, in whatever session it was."""
    unit = service(puppet("lite") + puppet("holder", "stdio_sleeper.py", "--hold"), QUICK_RESTART)
    unit.start()
    daemon, before = unit.pid, unit.processes()
    unit.kill("KILL")
    unit.until(lambda: unit.pid not in (0, daemon) and unit.show("ActiveState") == "active", "the restart")
    unit.until_ready()

    assert 5 == len(before), "the daemon, its guardian, two servers and the process that one of them holds"
    assert "1" == unit.show("NRestarts")
    assert set() == before & unit.processes()
    assert [] == [record["MESSAGE"] for record in unit.journal() if "left-over" in record["MESSAGE"]]


def test_a_stop_may_take_longer_than_its_timeout(service: Callable[..., Service]) -> None:
    """Servers get the end of their input, SIGTERM, then SIGKILL, all from the daemon, beyond TimeoutStopSec= if need be."""
    stop = {"stdin": "1200ms", "term": "1200ms"}
    unit = service(puppet("stubborn", "stdio_ladder.py", "hints", stop=stop), "TimeoutStopSec=1s")
    unit.start()
    code, seconds = unit.systemctl("stop")
    [(first, eof_at), (second, term_at)] = hints(unit)
    ends = unit.journal("MCP_SERVER=stubborn", "MCP_EVENT=ProcessEnded")

    assert 0 == code
    assert ("eof", "SIGTERM") == (first, second)
    assert 1.2 <= term_at - eof_at < 5
    assert ["9"] == [record["MCP_SIGNAL"] for record in ends]
    assert seconds >= 2.4
    assert ("success", "0") == (unit.show("Result"), unit.show("ExecMainStatus"))


def test_systemd_hears_of_the_end_before_the_servers(service: Callable[..., Service]) -> None:
    """When somebody else ends the daemon, systemd knows that it is stopping before any server gets its first hint."""
    unit = service(puppet("stubborn", "stdio_ladder.py", "hints", stop={"stdin": "6s", "term": "300ms"}))
    unit.start()
    unit.kill("TERM")
    unit.until(lambda: unit.show("ActiveState") == "deactivating", "the news")
    told = unit.show("StatusText")
    unit.until(lambda: unit.show("ActiveState") == "inactive", "the end")

    assert "stopping: servers finish what they have begun" == told
    assert int(unit.show("ActiveExitTimestampMonotonic")) / 1e6 <= hints(unit)[0][1]
    assert "success" == unit.show("Result")


def hints(unit: Service) -> list[tuple[str, float]]:
    """The hints that the puppet got, and when, in monotonic seconds."""
    lines = [line.split() for line in unit.text("/var/lib/mcpvisor/hints").splitlines()]
    (unit.machine.root / "var/lib/mcpvisor/hints").unlink()
    return [(name, float(at)) for name, at in lines]


def test_a_credential_reaches_its_server_alone(service: Callable[..., Service], machine: Machine) -> None:
    """`${cred:NAME}` is in the server's environment, and in nothing that the daemon is, says or writes."""
    machine.write("/etc/mcpvisor/credentials/token", f"{CANARY}\n", mode=0o600)
    leaks = "import os, sys; print('token', os.environ['TOKEN'], file=sys.stderr, flush=True); sys.stdin.read()"
    secret = {"TOKEN": "${cred:token}"}
    servers = [
        puppet("holds", env=secret),
        puppet("leaks", "stdio_inline.py", leaks, env=secret),
        entry("missing", "/no/such/program", "${cred:token}"),
    ]
    unit = service("".join(servers), "LoadCredential=token:/etc/mcpvisor/credentials/token")
    unit.machine.run("systemctl", "start", UNIT)
    pid = unit.until(lambda: unit.server_pids()["holds"], "the server")
    unit.until(lambda: unit.journal("MCP_SERVER=leaks", "MCP_EVENT=StderrWritten"), "the line of its stderr")
    told = {
        "argv": unit.proc(unit.pid, "cmdline"),
        "environ": unit.proc(unit.pid, "environ"),
        "journal": json.dumps(unit.journal("_TRANSPORT=journal", "+", "_TRANSPORT=stdout", "+", "_TRANSPORT=syslog")),
        "metrics": unit.metrics(),
        "status": machine.run(CLI, "status", "--json", check=False),
        "logs": machine.run(CLI, "logs", "leaks"),
        **{f"explain {name}": machine.run(CLI, "explain", name, check=False) for name in ("holds", "leaks", "missing")},
    }

    assert f"TOKEN={CANARY}" in unit.proc(pid, "environ").split("\0")
    assert [] == [name for name, text in told.items() if CANARY in text]
    assert [] == [name for name, text in told.items() if not text]


def test_the_journal_can_be_asked_for_a_server(service: Callable[..., Service]) -> None:
    """Records carry the server, the event with its id, and a priority; what a server writes on stderr too."""
    says = "import sys; print('a word', file=sys.stderr, flush=True); sys.stdin.read()"
    unit = service(puppet("good") + puppet("says", "stdio_inline.py", says) + entry("missing", "/no/such/program"))
    unit.machine.run("systemctl", "start", UNIT)
    [word] = unit.until(lambda: unit.journal("MCP_SERVER=says", "MCP_EVENT=StderrWritten"), "the line")
    [ready] = unit.until(lambda: unit.journal("MCP_SERVER=good", "MCP_EVENT=SessionOpened"), "the session")
    failed = unit.journal("MCP_SERVER=missing", "PRIORITY=3")

    assert "says: stderr: a word" == word["MESSAGE"]
    assert "6" == ready["PRIORITY"]
    assert [ready["MESSAGE"]] == [record["MESSAGE"] for record in unit.journal(f"MESSAGE_ID={ready['MESSAGE_ID']}")]
    assert any("/no/such/program" in record["MESSAGE"] for record in failed)


@pytest.mark.alone
def test_a_journald_that_hangs_stalls_nothing(service: Callable[..., Service], machine: Machine) -> None:
    """While journald takes nothing and a server floods its stderr, calls to another are answered and the loop turns on time."""
    unit = service(puppet("good") + puppet("noisy", "stdio_inline.py", NOISY))
    unit.start()
    journald = machine.run("systemctl", "show", "--value", "--property=MainPID", "systemd-journald").strip()
    took, lags = [], []
    machine.run("kill", "-STOP", journald)
    try:
        machine.run(PYTHON, "-c", FILL_JOURNALD)
        until = time.monotonic() + 2
        while time.monotonic() < until or len(lags) < 5:
            began = time.monotonic()
            unit.call("good", "echo", text="x")
            took.append(time.monotonic() - began)
            lags.append(sample(unit.metrics(), "mcpvisor_event_loop_lag_seconds"))
    finally:
        machine.run("kill", "-CONT", journald)
    unit.control.post("/v1/servers/good:restart")
    unit.until(lambda: unit.journal("MCP_SERVER=good", "MCP_EVENT=OperatorOrdered"), "a record after the stall")

    print(f"{len(lags)} calls; the slowest took {max(took):.3f} s, the largest lag was {max(lags):.3f} s")
    assert max(took) < HELD
    assert max(lags) < HELD


def sample(page: str, name: str) -> float:
    """The value of a metric without labels."""
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))


def test_the_daemon_takes_the_files_it_may_have(service: Callable[..., Service]) -> None:
    """The daemon raises its soft limit of open files to the hard one; servers have the usual 1024."""
    unit = service(puppet("one"), "LimitNOFILE=1024:4096")
    unit.start()
    [server] = unit.server_pids().values()

    assert ["4096", "4096"] == limit(unit, unit.pid, "Max open files")
    assert ["1024", "4096"] == limit(unit, server, "Max open files")
    assert ["0", "0"] == limit(unit, server, "Max core file size")


def limit(unit: Service, pid: int, name: str) -> list[str]:
    """The soft and the hard limit of a process."""
    line = next(line for line in unit.proc(pid, "limits").splitlines() if line.startswith(name))
    return line.removeprefix(name).split()[:2]


def test_the_sockets_are_for_root_and_the_group(service: Callable[..., Service], machine: Machine) -> None:
    """Both sockets and the gateway's token are open to root and to members of the group, and to nobody else."""
    unit = service(puppet("one"))
    unit.start()
    modes = [
        machine.run("stat", "--format=%U:%G %a", f"/{path}").strip()
        for path in ("run/mcpvisor", "run/mcpvisor/control.sock", "run/mcpvisor/gateway.sock", "var/lib/mcpvisor/gateway.token")
    ]
    people = (None, "mcpvisor", "member", "stranger")
    status = [machine.try_run(CLI, "status", user=user).returncode for user in people]
    gateway = [asked(machine, user) for user in people]
    token = [machine.try_run("cat", "/var/lib/mcpvisor/gateway.token", user=user).returncode for user in people]

    assert ["mcpvisor:mcpvisor 750", *["mcpvisor:mcpvisor 660"] * 2, "mcpvisor:mcpvisor 640"] == modes
    assert [0, 0, 0, 77] == status
    assert ["200", "200", "200", "PermissionError"] == gateway
    assert [0, 0, 0, 1] == token


def test_the_state_is_kept_and_is_its_owners(service: Callable[..., Service], machine: Machine) -> None:
    """Under the unit's sandbox a `disable` outlives a restart; only root and the daemon's user see, or copy, the state."""
    unit = service(puppet("one"))
    unit.start()
    unit.control.post("/v1/servers/one:disable")
    assert 0 == unit.systemctl("restart")[0]
    status = unit.control.get("/v1/status")
    people = (None, "mcpvisor", "member", "stranger")
    copies = [machine.try_run(CLI, "backup", f"/tmp/{user}.db", user=user).returncode for user in people]
    left = machine.run("find", "/tmp", "-name", "*.db", "-printf", "%f %u %m\n").split("\n")
    reads = [machine.try_run("test", "-r", "/var/lib/mcpvisor/state.db", user=user).returncode for user in people]
    state = machine.run("find", "/var/lib/mcpvisor", "-name", "state.*", "-printf", "%U:%m\n").split()

    assert (True, "disabled") == (status["state_store"]["up"], status["servers"][0]["state"])
    assert [0, 0, 77, 77] == copies
    assert ["", "None.db root 600", "mcpvisor.db mcpvisor 600"] == sorted(left)
    assert [0, 0, 1, 1] == reads
    assert 1 == len(set(state))
    assert {"600"} == {one.partition(":")[2] for one in state}


def test_a_server_gives_no_orders(service: Callable[..., Service]) -> None:
    """A server of the daemon is refused on the control socket, though it runs as the daemon's own user."""
    asks = (
        f"import subprocess, sys; done = subprocess.run(['{CLI}', 'status'], capture_output=True, text=True, env={{}});"
        "print(done.returncode, done.stderr.strip(), file=sys.stderr, flush=True); sys.stdin.read()"
    )
    unit = service(puppet("asks", "stdio_inline.py", asks))
    unit.machine.run("systemctl", "start", UNIT)
    [told] = unit.until(lambda: unit.journal("MCP_SERVER=asks", "MCP_EVENT=StderrWritten"), "the refusal")

    assert told["MESSAGE"].startswith("asks: stderr: 77 mcpvisor: this peer may not control the daemon")


ASK = """
import socket
with socket.socket(socket.AF_UNIX) as s:
    try:
        s.connect("/run/mcpvisor/gateway.sock")
        body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        body += b'"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}'
        head = "POST /mcp HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
        head += f"Accept: application/json, text/event-stream\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
        s.sendall(head.encode() + body)
        print(s.recv(4096).split()[1].decode())
    except OSError as error:
        print(type(error).__name__)
"""


def asked(machine: Machine, user: str | None) -> str:
    """The HTTP status of a session that a user opens at the gateway, or the name of the error."""
    return machine.run(PYTHON, "-c", ASK, user=user).strip()


def test_a_server_has_a_control_group_of_its_own(service: Callable[..., Service]) -> None:
    """Under the unit's user each server runs in its own group, and at its end a child that has wiped its traces ends too."""
    hide = f"setsid env -i sleep 4321 & exec {PYTHON} {PUPPETS}/lite.py"
    unit = service(entry("hider", "sh", "-c", hide, stop=SHORT_STOP, limits={"tasks": 64}))
    unit.start()
    group = f"/sys/fs/cgroup/system.slice/{UNIT}"
    pid = unit.server_pids()["hider"]
    held = "pids" in unit.machine.run("cat", f"{group}/cgroup.subtree_control").split()
    [server] = unit.control.get("/v1/status")["servers"]
    groups = [unit.proc(one, "cgroup").splitlines()[-1].rpartition("/")[2] for one in (unit.pid, pid)]
    hidden = unit.until(lambda: unit.machine.run("pgrep", "-f", "sleep 4321").split(), "the child in hiding")
    unit.control.post("/v1/servers/hider:stop")
    unit.until(lambda: "hider" not in unit.server_pids(), "the stop")
    left = unit.until(lambda: unit.machine.run("ls", "-1", "-p", group).split("\n"), "the groups")

    assert ["supervisor", "hider-1"] == groups
    assert held is (server["limits_not_enforced"] == "")
    assert hidden
    assert "" == unit.machine.run("pgrep", "-f", "sleep 4321", check=False)
    assert ["supervisor/"] == [name for name in left if name.endswith("/")]
