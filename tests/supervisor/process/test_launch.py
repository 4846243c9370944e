"""Starting a server's process, and the words for a start that failed."""

from __future__ import annotations

import os
import resource
import signal
import time

import anyio
import pytest

from mcpvisor.supervisor.process.ending import end_process
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.launch import ProcessExit, ServerProcess, launch
from mcpvisor.supervisor.spec import ResourceLimits, StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.wire import OpenFailed

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
MARK = Marker(f"test-{os.getpid()}", "x", 1)  # of this process alone: other tests of this module run beside it


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def failure(**spec) -> tuple[str, str]:
    with pytest.raises(OpenFailed) as caught:
        launch(StdioLaunch(**spec), ENVIRONMENT)
    return caught.value.end.cause, caught.value.end.detail


def script(folder, text: str, mode: int = 0o755) -> str:
    path = folder / "program"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_missing_program_names_path_and_key():
    """A program that is nowhere on PATH is named with the PATH that was searched and the key to edit."""
    cause, detail = failure(command="no-such-program")

    assert "no_such_program" == cause
    assert "no program 'no-such-program' on PATH=/usr/local/bin:/usr/bin:/bin" in detail
    assert "`command`" in detail


def test_missing_path_of_a_program_is_told():
    """A program given by a path that is not there is named without a PATH, which was not searched."""
    assert ("no_such_program", "no program '/no/such/program': install it, or edit the key `command`") == failure(
        command="/no/such/program"
    )


def test_missing_interpreter_is_told_apart(tmp_path):
    """A script that is there, but whose interpreter is not, names the interpreter."""
    cause, detail = failure(command=script(tmp_path, "#!/no/such/interpreter -x\n"))

    assert "no_such_program" == cause
    assert "needs the interpreter '/no/such/interpreter -x', which is missing" in detail


def test_program_without_format_is_told(tmp_path):
    """A text without a `#!` line is no program."""
    cause, detail = failure(command=script(tmp_path, "echo\n"))

    assert "no_such_program" == cause
    assert "no `#!` line" in detail


def test_program_that_may_not_be_run_is_told(tmp_path):
    """A file without the x bit is a matter of permission."""
    cause, detail = failure(command=script(tmp_path, "#!/bin/sh\n", 0o644))

    assert "permission" == cause
    assert "x bit" in detail


def test_path_through_a_file_is_told(tmp_path):
    """A path that leads through a file is a missing program."""
    assert "no_such_program" == failure(command=script(tmp_path, "#!/bin/sh\n") + "/deeper")[0]


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_bad_cwd_is_told_apart_from_a_missing_program(tmp_path, kind):
    """A cwd that is not there, or no folder, is named as such, with its own key."""
    cwd = script(tmp_path, "") if kind == "file" else str(tmp_path / "none")
    cause, detail = failure(command="sleep", args=("1",), cwd=cwd)

    assert "bad_cwd" == cause
    assert cwd in detail
    assert "`cwd`" in detail


def test_text_that_no_program_can_be_given_is_told():
    """A NUL in an argument is an error of the entry, not of the daemon."""
    assert "no_such_program" == failure(command="sleep", args=("a\0b",))[0]


def ended(process: ServerProcess) -> ProcessExit | None:
    async def end() -> ProcessExit | None:
        return await end_process(process, MARK, StopGraces(stdin=0, term=0))

    return anyio.run(end)


def test_limits_hold_for_the_child_only():
    """A limit of open files is set hard on the server; without one the soft limit is 1024; the daemon keeps its own."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = []
    for files in (77, None):
        process = launch(StdioLaunch(command="sleep", args=("60",), limits=ResourceLimits(files=files)), ENVIRONMENT)
        limits.append(resource.prlimit(process.pid, resource.RLIMIT_NOFILE))
        ended(process)

    assert (77, 77) == limits[0]
    assert limits[1] == (min(1024, before[1]), before[1])
    assert before == resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.mark.alone
def test_start_blocks_for_a_few_milliseconds_only():
    """The median start takes less than 10 ms of the loop's time."""
    seconds = []
    for _ in range(9):
        began = time.perf_counter()
        process = launch(StdioLaunch(command="sleep", args=("60",)), ENVIRONMENT)
        seconds.append(time.perf_counter() - began)
        ended(process)

    assert sorted(seconds)[4] < 0.01


def test_exit_is_told_in_words():
    """An exit reads as code or signal, with the life of the process."""
    texts = [
        str(ProcessExit(pid=1, exit_code=code, signal=number, seconds=1.23))
        for code, number in ((3, None), (None, signal.SIGKILL), (None, 40))
    ]

    assert [
        "exited with code 3 after 1.2 s",
        "was killed by SIGKILL after 1.2 s",
        "was killed by signal 40 after 1.2 s",
    ] == texts


@pytest.mark.anyio
async def test_number_stays_taken_until_reaped():
    """An ended process remains a zombie until it is reaped, so that its number cannot be a stranger's when it is signalled."""
    with anyio.fail_after(20):
        process = launch(StdioLaunch(command="true"), ENVIRONMENT)
        known = await process.wait()
        os.kill(process.pid, 0)
        await end_process(process, MARK, StopGraces())

    assert 0 == known.exit_code
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.anyio
async def test_several_may_wait_for_one_exit():
    """Each of several waiters learns of the exit."""
    exits = []
    with anyio.fail_after(20):
        process = launch(StdioLaunch(command="cat"), ENVIRONMENT)

        async def wait() -> None:
            exits.append((await process.wait()).exit_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            process.close_stdin()
        await end_process(process, MARK, StopGraces())

    assert [0, 0, 0] == exits


@pytest.mark.anyio
async def test_stolen_exit_status_is_an_end_all_the_same():
    """Where another part of the program has reaped the process, its end is known, and nothing is sent to its number."""
    with anyio.fail_after(20):
        process = launch(StdioLaunch(command="true"), ENVIRONMENT)
        os.waitpid(process.pid, 0)
        known = await process.wait()
        session = process.session
        await end_process(process, MARK, StopGraces())

    assert (None, None, None) == (known.exit_code, known.signal, session)
    assert "taken by another part" in str(known)
