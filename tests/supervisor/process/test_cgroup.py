"""The control group of a generation: what is written for which limits, how a server enters it, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from mcpvisor.supervisor.process.cgroup import ServerGroup, Setting, enclose, settings_for
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.process.ending import end_process
from mcpvisor.supervisor.process.entering import through_shell
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.launch import ProcessExit, launch
from mcpvisor.supervisor.spec import ResourceLimits, StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.wire import OpenFailed

INSTANCE = f"test-{os.getpid()}"
"""Of this process alone: other tests of this module run beside it."""
MARK = Marker(INSTANCE, "files", 3)
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C"}
ALL = frozenset(("memory", "pids", "cpu"))
FULL = ResourceLimits(memory=512 * 1024**2, tasks=64, cpu=1.5, files=99)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def test_each_limit_is_one_setting_of_the_kernel():
    """Memory in bytes, and the group dies whole; tasks as a number; cpu as microseconds in each tenth of a second."""
    assert [
        Setting("memory", "memory", "memory.oom.group", "1"),
        Setting("memory", "memory", "memory.max", "536870912"),
        Setting("tasks", "pids", "pids.max", "64"),
        Setting("cpu", "cpu", "cpu.max", "150000 100000"),
    ] == settings_for(FULL)


def test_no_limit_writes_nothing_and_a_tiny_share_is_what_the_kernel_takes():
    """Without limits nothing is written, open files are no matter of groups, and no share is below the kernel's least."""
    assert [] == settings_for(ResourceLimits(files=99))
    assert "1000 100000" == settings_for(ResourceLimits(cpu=0.0001))[0].text


def test_limits_are_written_into_a_group_named_for_server_and_generation(tmp_path):
    """The group `SERVER-GENERATION` is made, and holds each limit whose controller is there."""
    enclosure = enclose(Subtree(path=tmp_path, controllers=ALL), MARK, FULL)

    assert ((), "") == (enclosure.lacking, enclosure.why)
    written = {file.name: file.read_text() for file in (tmp_path / "files-3").iterdir()}
    assert {
        "memory.oom.group": "1",
        "memory.max": "536870912",
        "pids.max": "64",
        "cpu.max": "150000 100000",
    } == written


def test_limits_without_a_place_are_named_with_the_reason():
    """Where there are no groups each limit that was asked for is named, and nothing where none was."""
    nowhere = Subtree(why_not="this machine has control groups of version 1 only")

    lacking = enclose(nowhere, MARK, FULL)
    assert (None, ("memory", "tasks", "cpu"), nowhere.why_not) == (lacking.group, lacking.lacking, lacking.why)
    assert () == enclose(nowhere, MARK, ResourceLimits(files=99)).lacking


def test_a_group_that_cannot_be_made_is_told(tmp_path):
    """A server whose group cannot be made has none, and its limits are named with the place."""
    enclosure = enclose(Subtree(path=tmp_path / "gone", controllers=ALL), MARK, ResourceLimits(tasks=5))

    assert (None, ("tasks",)) == (enclosure.group, enclosure.lacking)
    assert f"the control group {tmp_path}/gone/files-3 cannot be made: No such file or directory" == enclosure.why


@pytest.mark.parametrize(
    ("events", "memory", "why"),
    [
        ("low 0\noom 1\noom_kill 2\noom_group_kill 1\n", 512 * 1024**2, "over its memory limit of 512MiB"),
        ("oom 1\noom_kill 1\n", 1000, "over its memory limit of 1000 bytes"),
        ("oom 0\noom_kill 1\n", 1000, "memory was short around it, not by its own limit"),
        ("oom 3\noom_kill 0\n", 1000, ""),
        (None, 1000, ""),
    ],
)
def test_a_kill_for_want_of_memory_is_told_with_its_reason(tmp_path, events, memory, why):
    """The server's own limit is told apart from a shortage around it, and a group without counts from both."""
    if events is not None:
        (tmp_path / "memory.events").write_text(events)

    assert why == ServerGroup(tmp_path, ResourceLimits(memory=memory)).why_killed()


def test_the_reason_of_the_kernel_is_in_the_words_of_the_exit():
    """An end for want of memory reads as such, and not as a plain SIGKILL."""
    ended = ProcessExit(pid=1, exit_code=None, signal=9, seconds=3.21, why="over its memory limit of 512MiB")

    assert "was killed by the kernel after 3.2 s: over its memory limit of 512MiB" == str(ended)


@pytest.mark.parametrize("name", ["npm_config_//registry/:_authToken", "with-dash", "PWD", "SHLVL", "IFS", "_"])
def test_a_variable_that_a_shell_would_change_keeps_the_shell_out(name):
    """A shell drops names that are none of its own and sets some itself: then the program is started without one."""
    entrance = Path("/g/cgroup.procs")

    assert through_shell(entrance, ["sleep"], ENVIRONMENT, None) is not None
    assert through_shell(entrance, ["sleep"], ENVIRONMENT | {name: "x"}, None) is None


@pytest.mark.parametrize("text", ["#!/no/such/interpreter\n", "echo no line for an interpreter\n", ""])
def test_a_program_that_will_not_start_keeps_the_shell_out(tmp_path, text):
    """What is wrong with a program is the kernel's to say, in the same words with and without control groups."""
    program = tmp_path / "program"
    program.write_text(text)
    program.chmod(0o755)

    assert through_shell(Path("/g"), [str(program)], ENVIRONMENT, None) is None
    assert through_shell(Path("/g"), ["no-such-program"], ENVIRONMENT, None) is None
    assert through_shell(Path("/g"), ["program"], {"PATH": ""}, str(tmp_path)) is None


# With real control groups

SHOW = """
import json, os, sys
sys.stdin.readline()
print(json.dumps([sys.argv, os.getcwd(), dict(os.environ), open('/proc/self/cgroup').read()]))
"""


def shown(process) -> list:
    """What the program shows of itself once it is told to, which is after it was put where it belongs."""
    os.write(process.stdin_fd, b"\n")
    os.set_blocking(process.stdout_fd, True)
    text = b""
    while part := os.read(process.stdout_fd, 65536):
        text += part
    return json.loads(text)


def members(folder: Path) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    return []


def ended(process) -> ProcessExit | None:
    async def end() -> ProcessExit | None:
        return await end_process(process, MARK, StopGraces(stdin=0, term=0))

    return anyio.run(end)


def eventually(is_so) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.cgroup
@pytest.mark.parametrize("variables", [{}, {"with-dash": "1", "PWD": "/mine"}], ids=["by the shell", "adopted"])
def test_a_server_is_in_its_group_and_otherwise_the_same(group, tmp_path, variables):
    """In its group a server has the arguments, the folder and exactly the environment that it has without one."""
    spec = StdioLaunch(command=sys.executable, args=("-I", "-c", SHOW, "a b", "$(x)", "", "'\""), cwd=str(tmp_path))
    plain = launch(spec, ENVIRONMENT | variables)
    expected = shown(plain)
    ended(plain)
    server_group = enclose(Subtree(path=group), MARK, ResourceLimits()).group
    inside = launch(spec, ENVIRONMENT | variables, server_group)
    found = shown(inside)
    ended(inside)

    assert expected[:3] == found[:3]
    assert found[3].splitlines()[-1].endswith(f"/{group.name}/files-3")
    assert not (group / "files-3").exists()


@pytest.mark.cgroup
@pytest.mark.anyio
@pytest.mark.parametrize("variables", [{}, {"with-dash": "1"}], ids=["by the shell", "adopted"])
async def test_a_child_that_has_wiped_its_traces_ends_with_its_server(group, variables):
    """A child in a session of its own with an empty environment, which no mark and no session can find, ends by its group."""
    server_group = enclose(Subtree(path=group), MARK, ResourceLimits()).group
    script = "setsid env -i sleep 61 & setsid env -i sh -c 'sleep 62 & sleep 63' & exec cat"
    with anyio.fail_after(20):
        process = launch(StdioLaunch(command="sh", args=("-c", script)), ENVIRONMENT | variables, server_group)
        eventually(lambda: len(members(group / "files-3")) == 5)
        pids = members(group / "files-3")
        await end_process(process, MARK, StopGraces(stdin=0, term=0))

    assert process.pid in pids
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids if not is_zombie(pid)))
    assert [] == [child.name for child in group.iterdir() if child.is_dir()]


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.cgroup
@pytest.mark.anyio
async def test_groups_that_a_server_has_made_go_with_it(group):
    """A server that makes groups of its own below its group, and puts processes there, leaves none behind."""
    server_group = enclose(Subtree(path=group), MARK, ResourceLimits()).group
    own = group / "files-3" / "deep" / "deeper"
    script = f"mkdir -p {own}; sleep 64 & echo $! > {own}/cgroup.procs; exec cat"
    with anyio.fail_after(20):
        process = launch(StdioLaunch(command="sh", args=("-c", script)), ENVIRONMENT, server_group)
        eventually(lambda: members(own))
        await end_process(process, MARK, StopGraces(stdin=0, term=0))

    assert [] == [child.name for child in group.iterdir() if child.is_dir()]


@pytest.mark.cgroup
def test_a_start_that_fails_says_the_same_as_without_a_group(group):
    """A missing program is told in the same words with a control group as without one."""
    spec = StdioLaunch(command="no-such-program")
    details = []
    for one in (None, enclose(Subtree(path=group), MARK, ResourceLimits()).group):
        with pytest.raises(OpenFailed) as caught:
            launch(spec, ENVIRONMENT, one)
        details.append(caught.value.end)

    assert details[0] == details[1]


@pytest.mark.cgroup
def test_limits_whose_controller_is_absent_are_named_and_the_group_stands(group):
    """A subtree without controllers gives a group all the same, and says which controllers the limits would need."""
    enclosure = enclose(Subtree(path=group, controllers=frozenset()), MARK, FULL)

    assert ("memory", "tasks", "cpu") == enclosure.lacking
    assert f"{group} has no memory, pids, cpu controller: " in enclosure.why
    assert (group / "files-3").is_dir()


@pytest.mark.cgroup
def test_a_group_of_the_same_name_that_was_left_is_emptied_first(group):
    """A process that a former server of the same name has left is not taken over into the new one's group."""
    first = enclose(Subtree(path=group), MARK, ResourceLimits()).group
    left = subprocess.Popen(["sleep", "60"])
    first.adopt(left.pid)
    enclose(Subtree(path=group), MARK, ResourceLimits())

    assert -9 == left.wait(timeout=20)
    assert [] == members(group / "files-3")


@pytest.mark.alone
@pytest.mark.cgroup
def test_the_way_into_the_group_blocks_for_a_few_milliseconds_only(group):
    """The median start into a group takes less than 10 ms of the loop's time: the child pays for its way in."""
    seconds = []
    for number in range(9):
        mark = Marker(INSTANCE, "files", number)
        began = time.perf_counter()
        server_group = enclose(Subtree(path=group), mark, ResourceLimits()).group
        process = launch(StdioLaunch(command="sleep", args=("60",)), ENVIRONMENT, server_group)
        seconds.append(time.perf_counter() - began)
        ended(process)

    assert sorted(seconds)[4] < 0.01


LIMITED = {
    "memory": (ResourceLimits(memory=64 * 1024**2), "bytearray(200 << 20)", None, signal.SIGKILL),
    "tasks": (
        ResourceLimits(tasks=4),
        "[threading.Thread(target=time.sleep, args=(9,), daemon=True).start() for _ in 'abcdef']",
        1,
        None,
    ),
    "cpu": (
        ResourceLimits(cpu=0.5),
        "[0 for _ in iter(lambda: time.perf_counter() - began < 1, False)]; exit(time.process_time() - used < 0.75)",
        1,
        None,
    ),
}


@pytest.mark.cgroup
@pytest.mark.anyio
@pytest.mark.parametrize("limit", LIMITED)
async def test_a_limit_holds_where_its_controller_is_and_is_named_where_it_is_not(group, limit):
    """Over its memory a server is killed and says why, over its tasks it can start no more, over its cpu it is slowed down."""
    for name in (group / "cgroup.controllers").read_text().split():
        (group / "cgroup.subtree_control").write_text(f"+{name}")
    controllers = frozenset((group / "cgroup.subtree_control").read_text().split())
    limits, code, exit_code, number = LIMITED[limit]
    enclosure = enclose(Subtree(path=group, controllers=controllers), MARK, limits)
    spec = StdioLaunch(
        command=sys.executable,
        args=("-c", f"import threading, time; began, used = time.perf_counter(), time.process_time(); {code}"),
    )
    with anyio.fail_after(20):
        process = launch(spec, ENVIRONMENT, enclosure.group)
        known = await process.wait()
        await end_process(process, MARK, StopGraces())

    if settings_for(limits)[0].controller in controllers:
        assert ((), exit_code, number) == (enclosure.lacking, known.exit_code, known.signal)
        assert ("over its memory limit of 64MiB" if limit == "memory" else "") == known.why
    else:
        assert ((limit,), "") == (enclosure.lacking, known.why)
