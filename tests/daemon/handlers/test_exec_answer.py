"""Programs that answer questions: what they are given, and everything that is no answer."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerQuestion
from mcpvisor.daemon.handlers.exec_answer import AnsweringExec
from mcpvisor.daemon.handlers.program import Programs
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import StdioLaunch

pytestmark = pytest.mark.anyio

INSTANCE = secrets.token_hex(8)
"""Of this process alone: other tests of this module may run beside it, and what is swept is their own."""
QUESTION = HandlerQuestion(
    id="q-1", server="docs", mode="form", message="docs asks: $(rm -rf /)?", schema={"type": "object"}, tool="x; y"
)


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], AnsweringExec]:
    """A handler of a program in Python with that code."""

    def program(code: str) -> AnsweringExec:
        script = tmp_path / "program.py"
        script.write_text(f"import json, os, sys, time\nOUT = {str(tmp_path / 'out')!r}\n{code}\n")
        spec = StdioLaunch(command=sys.executable, args=(str(script),))
        environ = {"PATH": "/usr/bin:/bin"}
        return AnsweringExec(Programs("h", spec, instance=INSTANCE, environ=environ, stderr=lambda *_: None))

    return program


async def test_it_is_given_the_question(program: Callable[[str], AnsweringExec], tmp_path: Path) -> None:
    """The question is on stdin alone: no word of the server's is in the arguments or in the environment."""
    code = (
        "json.dump([json.load(sys.stdin), sys.argv[1:], dict(os.environ)], open(OUT, 'w'))\nprint('{\"action\": \"cancel\"}')"
    )
    assert HandlerAnswer(action="cancel") == await program(code).answer(QUESTION)
    given, arguments, environment = json.loads((tmp_path / "out").read_text())

    assert (QUESTION.as_json(), []) == (given, arguments)
    assert {"ID": "q-1", "SERVER": "docs", "MODE": "form"} == {
        name.removeprefix("MCPVISOR_QUESTION_"): value for name, value in environment.items() if "QUESTION" in name
    }
    assert [] == [value for value in environment.values() if "rm -rf" in value or "x; y" in value]


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            {"action": "accept", "content": {"sure": True, "n": 5}},
            HandlerAnswer(action="accept", content={"sure": True, "n": 5}),
        ),
        ({"action": "accept"}, HandlerAnswer(action="accept")),
        ({"action": "decline", "content": {"a": 1}}, HandlerAnswer(action="decline")),
    ],
)
async def test_what_it_prints_is_the_answer(
    program: Callable[[str], AnsweringExec], printed: dict[str, Any], expected: HandlerAnswer
) -> None:
    """One JSON object with action and content is the answer; what is on stderr is not."""
    code = f"print('words', file=sys.stderr)\nprint(json.dumps({printed!r}, indent=1))"
    assert expected == await program(code).answer(QUESTION)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('no', file=sys.stderr); sys.exit(3)", "the program exited with code 3 after "),
        ('print(\'{"action": "accept"}\'); sys.exit(1)', "the program exited with code 1 after "),
        ("os.kill(os.getpid(), 9)", "the program was killed by SIGKILL after "),
        ("pass", "the program gave no answer"),
        ("print('yes')", "the program gave an answer that is no JSON (syntax)"),
        ("print('[]')", "the program gave an answer that is no JSON object"),
        ("print('{\"action\": true}')", 'the program gave an answer without an "action" of accept, decline, cancel'),
        ('print(\'{"action": "accept", "content": 5}\')', 'the program gave an answer whose "content" is no object'),
        ("print('[' * 10_000)", "the program gave an answer that is no JSON (depth)"),
        ("print(' ' * 3_000_000)", "the program gave an answer of more than 262144 bytes"),
    ],
)
async def test_what_is_no_answer(program: Callable[[str], AnsweringExec], code: str, words: str) -> None:
    """An exit code, silence, and whatever is no answer fail with the reason, so that whoever asked declines."""
    with anyio.fail_after(20), pytest.raises(DeliveryFailed) as caught:
        await program(code).answer(QUESTION)
    assert str(caught.value).startswith(words)


async def test_one_that_thinks_for_too_long(program: Callable[[str], AnsweringExec]) -> None:
    """A question that is withdrawn ends its program."""
    with anyio.move_on_after(0.5) as deadline:
        await program("time.sleep(3600)").answer(QUESTION)
    assert (True, []) == (deadline.cancelled_caught, find_marked(INSTANCE))


async def test_no_secret_is_told(tmp_path: Path) -> None:
    """A program that prints the secrets of its entry has them masked, in the log and in the reason."""
    lines: list[str] = []
    code = "import os, sys; sys.exit(os.environ['KEY'] + ' ' + sys.argv[1])"
    spec = StdioLaunch(
        command=sys.executable, args=("-c", code, Secret("canary-argument")), env=(("KEY", Secret("canary-variable")),)
    )
    programs = Programs(
        "h", spec, instance=INSTANCE, environ={"PATH": "/usr/bin:/bin"}, stderr=lambda told, _: lines.extend(told)
    )
    with pytest.raises(DeliveryFailed) as caught:
        await AnsweringExec(programs).answer(QUESTION)
    assert (["*** ***"], "*** ***") == (lines, str(caught.value).rpartition("ends: ")[2])
