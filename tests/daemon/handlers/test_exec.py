"""Programs that take events: what they are given, what they may not do, and that nothing of them is left."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerEvent
from mcpvisor.daemon.handlers.exec_handler import ExecHandler
from mcpvisor.daemon.handlers.program import MOST_OUTPUT, Programs
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import StdioLaunch

pytestmark = pytest.mark.anyio

INSTANCE = secrets.token_hex(8)
"""Of this process alone: other tests of this module may run beside it."""
EVENT = HandlerEvent(
    id="1d", kind="resource_updated", server="docs", at=12.5, data={"uri": "x://a;rm -rf $HOME", "reason": "notified"}
)

Rig = Callable[..., Any]


@pytest.fixture
def anyio_backend() -> str:
    """Real processes, on the loop of the daemon."""
    return "asyncio"


class Under:
    """A program in Python, run by a handler."""

    def __init__(self, folder: Path, code: str, environ: dict[str, str], **keys: Any) -> None:
        self.out = folder / "out"
        script = folder / "program.py"
        script.write_text(f"import json, os, signal, subprocess, sys, time\nOUT = {str(self.out)!r}\n{code}\n")
        self.stderr: list[str] = []
        spec = StdioLaunch(command=sys.executable, args=(str(script),), **keys)
        self.programs = Programs(
            "h",
            spec,
            instance=INSTANCE,
            environ={"PATH": "/usr/bin:/bin", **environ},
            stderr=lambda lines, _: self._took(lines),
        )
        self.handler = ExecHandler(self.programs)

    def _took(self, lines: tuple[str, ...]) -> None:
        self.stderr += lines

    def left(self) -> Any:
        return json.loads(self.out.read_text())


@pytest.fixture
def program(tmp_path: Path) -> Rig:
    """A handler of a program with that code."""
    return lambda code, environ=None, **keys: Under(tmp_path, code, environ or {}, **keys)


async def test_a_program_is_given_the_event(program: Rig) -> None:
    """It has the event as JSON on stdin and in its environment, and not a letter of the server's in its arguments."""
    under = program("json.dump([json.load(sys.stdin), sys.argv[1:], dict(os.environ)], open(OUT, 'w'))")
    await under.handler.deliver(EVENT)
    given, arguments, environment = under.left()

    assert (EVENT.as_json(), []) == (given, arguments)
    assert {
        "MCPVISOR_EVENT_ID": "1d",
        "MCPVISOR_EVENT_KIND": "resource_updated",
        "MCPVISOR_EVENT_SERVER": "docs",
        "MCPVISOR_EVENT_AT": "12.5",
        "MCPVISOR_EVENT_COALESCED": "1",
        "MCPVISOR_EVENT_URI": "x://a;rm -rf $HOME",
        "MCPVISOR_EVENT_REASON": "notified",
    } == {name: value for name, value in environment.items() if name.startswith("MCPVISOR_EVENT_")}


async def test_its_environment_is_an_allow_list(program: Rig) -> None:
    """It inherits what servers do, and what its entry says; nothing else of the daemon's reaches it."""
    under = program(
        "json.dump(dict(os.environ), open(OUT, 'w'))",
        {"SECRET": "s", "EDITOR": "vi", "LANG": "C", "NOTIFY_SOCKET": "/run/x", "CREDENTIALS_DIRECTORY": "/run/c"},
        env=(("KEY", Secret("k")),),
        inherit_env=("EDITOR",),
    )
    await under.handler.deliver(EVENT)
    names = set(under.left())

    assert {"KEY", "EDITOR", "LANG", "PATH"} <= names
    assert not {"SECRET", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY"} & names


async def test_its_secrets_are_not_told(program: Rig) -> None:
    """What its entry has put into its environment is masked in its stderr, and in the reason of a failure."""
    under = program("sys.exit('cannot log in with ' + os.environ['KEY'])", env=(("KEY", Secret("s3cret-of-mine")),))
    with pytest.raises(DeliveryFailed) as failure:
        await under.handler.deliver(EVENT)

    assert ["cannot log in with ***"] == under.stderr
    assert str(failure.value).endswith("cannot log in with ***")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.exit(3)", "the program exited with code 3 after"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the program was killed by SIGSEGV after"),
        ("sys.exit('\\x1b[31mwhat a day')", "its stderr ends: what a day"),
    ],
)
async def test_any_other_end_is_a_failure(program: Rig, code: str, why: str) -> None:
    """An exit code that is not 0, and a signal, are failures that say so, with the last words of the program."""
    under = program(code)
    with pytest.raises(DeliveryFailed) as failure:
        await under.handler.deliver(EVENT)

    assert why in str(failure.value)


async def test_a_program_that_is_not_there(program: Rig) -> None:
    """What cannot be started is a failure that names the program."""
    programs = Programs("h", StdioLaunch(command="/nowhere/x"), instance=INSTANCE, environ={}, stderr=lambda _, __: None)
    with pytest.raises(DeliveryFailed) as failure:
        await ExecHandler(programs).deliver(EVENT)

    assert "/nowhere/x" in str(failure.value)


async def test_a_program_need_not_read(program: Rig) -> None:
    """A program that closes its stdin, or never looks at it, has handled an event of any size when it says so."""
    large = HandlerEvent(id="1", kind="log_message", server="s", at=1.0, data={"data": "x" * 1_000_000})
    for code in ("os.close(0)", "pass"):
        await program(code).handler.deliver(large)


async def test_output_is_drained_and_capped(program: Rig) -> None:
    """Megabytes on both pipes hold nobody up; of stdout so much is kept, and stderr goes on in clean lines."""
    under = program("sys.stdout.write('o' * 5_000_000); sys.stderr.write('e\\x07\\n' * 100_000); sys.stderr.write('last\\n')")
    with anyio.fail_after(60):
        finished = await under.programs.run(b"", {})

    assert (MOST_OUTPUT, True) == (len(finished.output), finished.is_cut)
    assert under.stderr
    assert {"e"} >= set(under.stderr) - {"last"}


async def test_at_its_deadline_all_of_it_is_ended(program: Rig) -> None:
    """A program that ignores SIGTERM is killed when its time is over, and so are its children, whatever session they are in."""
    under = program(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for new in (False, True):\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=new)\n"
        "json.dump(os.getpid(), open(OUT + '.new', 'w')); os.rename(OUT + '.new', OUT)\n"
        "time.sleep(600)"
    )
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(under.handler.deliver, EVENT)
            while not under.out.exists():
                await anyio.sleep(0.01)
            running = len(find_marked(INSTANCE))
            tasks.cancel_scope.cancel()

    assert 3 == running
    assert [] == find_marked(INSTANCE)


async def test_what_it_leaves_in_its_group_ends_with_it(program: Rig) -> None:
    """A child in the background does not outlive a program that has ended, and does not hold up its end."""
    under = program("subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])")
    with anyio.fail_after(30):
        await under.handler.deliver(EVENT)
        while find_marked(INSTANCE):
            await anyio.sleep(0.01)
