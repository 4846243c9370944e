from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing

import anyio
import pytest

from mcpvisor.daemon.demo.setting import Ports, answers, choose_control, demo_loaded, demo_specs, loopback
from mcpvisor.daemon.demo.tour import Guide, change_line, command_line, tour
from mcpvisor.supervisor.events import ProcessEnded, ServerAdded, ServerStateChanged
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

ADDRESSES = {"gateway": ["http://127.0.0.1:7433"], "metrics": ["127.0.0.1:9433"]}


def test_the_tour_can_be_copied_line_by_line():
    """The tour has three lines: where the endpoint is, a call to try, and a process to kill, with full paths and pids."""
    endpoint, call, kill = tour("/venv/bin/mcpvisor", None, ADDRESSES, {"flaky": 4711}).split("\n")

    assert "http://127.0.0.1:7433/mcp" in endpoint
    assert "http://127.0.0.1:9433/metrics" in endpoint
    assert """/venv/bin/mcpvisor call slow count_down '{"seconds": 3}'""" in call
    assert "kill -9 4711 " in kill
    assert "/venv/bin/mcpvisor status --watch" in kill


def test_the_tour_names_a_socket_that_would_not_be_found(tmp_path):
    """Where verbs would reach another daemon, each command of the tour names the socket."""
    _, call, kill = tour("mcpvisor", tmp_path / "c.sock", ADDRESSES, {"flaky": 1}).split("\n")

    assert f"mcpvisor --socket {tmp_path}/c.sock call" in call
    assert f"mcpvisor --socket {tmp_path}/c.sock status" in kill


def test_the_command_is_named_with_its_full_path(tmp_path):
    """The installed command is named where it was called by it, else the module of this Python."""
    program = tmp_path / "mcpvisor"
    program.touch()

    assert str(program) == command_line(str(program), "/usr/bin/python3")
    assert "/usr/bin/python3 -m mcpvisor.daemon.cli.main" == command_line("/x/main.py", "/usr/bin/python3")


def test_changes_are_told_in_one_line():
    """An end and a wait are told with what matters of them; what is no change is not told."""
    died = ProcessEnded(
        at=0, server="flaky", pid=7, generation=1, exit_code=None, signal=9, seconds=12.0, wanted=False
    )  # fmt: skip
    waits = ServerStateChanged(at=0, server="flaky", old=State.READY, new=State.BACKOFF, reason="killed", next_attempt=4)

    assert change_line(died).endswith("flaky  pid 7 ended by signal 9 after 12 s")
    assert change_line(waits).endswith("flaky  ready -> backoff, next try in 4 s (killed)")
    assert None is change_line(ServerAdded(at=0, server="flaky", transport="stdio", required=False))


def test_a_busy_port_is_replaced_by_a_free_one():
    """A port that somebody listens on is replaced by whichever is free."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        port = busy.getsockname()[1]
        busy.listen()
        assert "127.0.0.1:0" == loopback(port)
    assert f"127.0.0.1:{port}" == loopback(port)


def test_two_demonstrations_that_start_at_one_time_take_no_port_twice():
    """A port that was found free, and is not listened on yet, is left to whoever found it first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with closing(Ports()) as one, closing(Ports()) as another:
        assert [f"127.0.0.1:{port}", "127.0.0.1:0"] == [one.take(port), another.take(port)]
    with closing(Ports()) as later:
        assert f"127.0.0.1:{port}" == later.take(port)


def test_the_users_own_socket_is_used_when_it_is_free(tmp_path):
    """The user's own control socket is used where no daemon answers on it, also when a stale one is left there."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    own = tmp_path / "mcpvisor" / "control.sock"
    own.parent.mkdir()

    assert own == choose_control(environ, 7, tmp_path / "private").path
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(own))
    assert own == choose_control(environ, 7, tmp_path / "private").path


def test_another_daemons_socket_is_left_alone(tmp_path):
    """Where another daemon answers, the demonstration has a socket of its own, which is to be named."""
    named = tmp_path / "named.sock"
    environ = {"MCPVISOR_SOCKET": str(named)}
    assert choose_control(environ, 7, tmp_path).is_found
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(named))
        one.listen()
        place = choose_control(environ, 7, tmp_path)

    assert (tmp_path / "control.sock", False) == (place.path, place.is_found)
    assert not answers(named)


def test_the_configuration_is_open_and_local(tmp_path):
    """The demonstration listens on 127.0.0.1 alone, without a token, and keeps its state in a private folder."""
    with closing(Ports()) as ports:
        settings = demo_loaded(tmp_path, tmp_path / "c.sock", ports).settings

    assert settings is not None
    assert "open" == settings.gateway.auth
    assert all(one.startswith("127.0.0.1:") for one in (*settings.gateway.listen, *settings.metrics.listen))
    assert tmp_path in settings.daemon.state_dir.parents


@pytest.mark.anyio
async def test_the_guide_shows_the_tour_once_all_is_ready():
    """The tour comes when all servers are ready, once, with their real pids; a kill and its mending are told after it."""
    said, ready_again = [], anyio.Event()

    def say(text):
        said.append(text)
        if [line for line in said if line.endswith("flaky  restoring -> ready")][1:]:
            ready_again.set()

    async with Supervisor() as supervisor:
        Guide("mcpvisor", None, say).begin(supervisor, ADDRESSES)
        with anyio.fail_after(20):
            await supervisor.apply(demo_specs().values())
            for name in demo_specs():
                await supervisor.wait_until(name, lambda status: status.state is State.READY)
            pid = supervisor.status("flaky").pid
            os.kill(pid, 9)
            await ready_again.wait()
    tours = [text for text in said if "kill -9" in text]

    assert 1 == len(tours)
    assert f"kill -9 {pid} " in tours[0]
    assert [line for line in said if f"flaky  pid {pid} ended by signal 9" in line]


def test_demo_is_a_verb():
    """`mcpvisor demo` is known to the command line."""
    done = subprocess.run(
        [sys.executable, "-m", "mcpvisor.daemon.cli.main", "demo", "--help"], capture_output=True, timeout=20
    )  # fmt: skip

    assert 0 == done.returncode
