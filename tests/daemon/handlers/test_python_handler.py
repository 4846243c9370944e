"""Handlers in Python with real workers: what they are given, and everything they can do to themselves alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from tests.daemon.handlers.python_rig import LINES, QUESTION, Code, delivered, event, failing, running

from mcpvisor.daemon.handlers import python_handler, worker_link
from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import ResourceLimits

pytestmark = pytest.mark.anyio

DELIVER = """
class Handler:
    async def deliver(self, event):
"""
GOOD = f"{DELIVER}        note(repr(event))\n"


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path)


async def test_it_gets_the_event_as_it_is(code: Code) -> None:
    """The object is given an equal event, in a process of its own, with nothing of the daemon's environment."""
    code.write(GOOD + "        note(f'{os.getppid()} {os.getpid() == os.getsid(0)} {sorted(os.environ)}')")
    async with running(code.options(env=(("TEAM", Secret("blue")),))) as handler:
        await handler.deliver(event(uri="docs://ä", deep={"a": [1, None]}))
    told, process = code.notes()
    environment = {"MCPVISOR_INSTANCE", "MCPVISOR_SERVER", "TEAM"}

    assert repr(event(uri="docs://ä", deep={"a": [1, None]})) == told
    assert process.startswith(f"{os.getpid()} True ")
    assert environment == environment & set(eval(process.split(" ", 2)[2]))
    assert "PYTEST_CURRENT_TEST" not in process


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("class Made(H):\n  def __init__(self, word): note(word)", "Made", {"word": "made"}),
        ("made = H()", "made", {}),
        ("class Outer:\n  class Inner(H): pass", "Outer.Inner", {}),
        ("async def make(): return H()", "make", {}),
        ("class E:\n  async def __aenter__(self): return H()\n  async def __aexit__(self, *_): note('left')", "E", {}),
    ],
)
async def test_what_an_object_may_be(code: Code, text: str, name: str, arguments: dict[str, str]) -> None:
    """A class, a function that makes the object, or the object itself; one that can be entered is, and is left at the end."""
    code.write(f"class H:\n  async def deliver(self, event): note('delivered')\n{text}\n")
    async with running(code.options(object=f"hooks:{name}", arguments=arguments)) as handler:
        await handler.deliver(event())
    assert [*arguments.values(), "delivered", *["left"] * ("left" in text)] == code.notes()


async def test_an_entry_point(code: Code) -> None:
    """An installed package gives its handler a name in the group `mcpvisor.handlers`."""
    code.write(GOOD, "packaged")
    info = code.folder / "packaged-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[mcpvisor.handlers]\nnoter = packaged:Handler\n")
    words = {"object": None, "path": None, "env": (("PYTHONPATH", str(code.folder)),)}
    async with running(code.options(entry_point="noter", **words)) as handler:
        await handler.deliver(event())
    assert [repr(event())] == code.notes()
    async with running(code.options(entry_point="other", **words)) as handler:
        failed = await failing(handler)
    assert "no installed package has an entry point 'other' of mcpvisor.handlers; there is: noter" == str(failed)


async def test_its_failures_are_told(code: Code) -> None:
    """`DeliveryFailed` arrives as it was raised, any other error by its name and words; the worker goes on."""
    code.write(
        f"{DELIVER}"
        "        if event.id == 'ev-1': raise DeliveryFailed('later', retry_after=7)\n"
        "        if event.id == 'ev-2': raise DeliveryFailed('never', is_final=True)\n"
        "        if event.id == 'ev-3': raise KeyError('lost')\n"
        "        if event.id == 'ev-4': raise asyncio.CancelledError\n"
        "        note(event.id)\n"
    )
    async with running(code.options()) as handler:
        failures = [await failing(handler, event(number)) for number in (1, 2, 3, 4)]
        await handler.deliver(event(5))
        assert 1 == handler.generation

    told = [(str(one), one.retry_after, one.is_final) for one in failures]
    assert [
        ("later", 7.0, False),
        ("never", None, True),
        ("KeyError: 'lost'", None, False),
        ("the handler has cancelled it by itself", None, False),
    ] == told


async def test_odd_failures_cost_their_event_alone(code: Code) -> None:
    """Whatever is odd about a failure, it is told as one that may be tried again, and the worker goes on."""
    code.write(
        f"{DELIVER}"
        "        if event.id == 'ev-1': raise DeliveryFailed('later', retry_after=float('nan'))\n"
        "        if event.id == 'ev-2': raise DeliveryFailed(ValueError('odd'), retry_after='soon', is_final='yes')\n"
        "        if event.id == 'ev-3': raise ValueError('file \\udcff')\n"
        "        if event.id == 'ev-4': raise BaseException('none of ours')\n"
        "        note(event.id)\n"
    )
    async with running(code.options()) as handler:
        failures = [await failing(handler, event(number)) for number in (1, 2, 3, 4)]
        await handler.deliver(event(5))
        assert 1 == handler.generation

    assert [
        ("later", None, False),
        ("odd", None, False),
        ("ValueError: file ?", None, False),
        ("BaseException: none of ours", None, False),
    ] == [(str(one), one.retry_after, one.is_final) for one in failures]


async def test_many_at_one_time(code: Code) -> None:
    """Events that are delivered at one time are with the object at one time, and each gets its own outcome."""
    code.write(
        "class Handler:\n"
        "    here = 0\n"
        "    async def deliver(self, event):\n"
        "        self.here += 1\n"
        "        while self.here < 20: await asyncio.sleep(0.001)\n"
        "        if event.data['n'] % 2: raise ValueError(event.id)\n"
    )
    outcomes: dict[int, str] = {}

    async def one(number: int) -> None:
        try:
            await handler.deliver(event(number, n=number))
            outcomes[number] = "handled"
        except DeliveryFailed as failed:
            outcomes[number] = str(failed)

    async with running(code.options()) as handler:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(one, number)
    assert {n: f"ValueError: ev-{n}" if n % 2 else "handled" for n in range(20)} == outcomes


async def test_what_it_prints_breaks_nothing(code: Code) -> None:
    """Whatever the code, or a program that it starts, prints and reads goes past the talk with the daemon."""
    code.write(
        "import subprocess\n"
        f"{DELIVER}"
        "        print('{\"done\": 1}')\n"
        "        os.write(1, b'{\"failed\": 1}\\n')\n"
        "        subprocess.run(['sh', '-c', 'cat; echo a child; echo {} >&2'], check=True)\n"
        "        note(repr(sys.stdin.read()))\n"
    )
    async with running(code.options()) as handler:
        for number in range(3):
            await handler.deliver(event(number))
        assert 1 == handler.generation
        printed = handler.tail()
    assert ["''"] * 3 == code.notes()
    assert 3 * ['{"done": 1}', '{"failed": 1}', "a child", "{}"] == printed


async def test_a_flood_of_output_holds_nobody_up(code: Code) -> None:
    """A worker that prints without end is read at a bounded pace; its deliveries are handled, and so are another's."""
    code.write(
        "import threading\n"
        "def flood():\n"
        "    while True: print('x' * 1000)\n"
        f"{DELIVER}"
        "        if event.id == 'ev-1': threading.Thread(target=flood, daemon=True).start()\n"
    )
    code.write(GOOD, "other")
    async with running(code.options()) as flooding, running(code.options(object="other:Handler"), "other") as other:
        with anyio.fail_after(20):
            for number in range(1, 10):
                await flooding.deliver(event(number))
                await other.deliver(event(number))
        assert len(flooding.tail()) <= 201
    assert 9 == len(code.notes())


async def test_one_that_cancels_in_time_stays(code: Code) -> None:
    """A delivery that is cancelled at its deadline is cancelled in the worker, which goes on; the next one waits for that."""
    code.write(
        f"{DELIVER}"
        "        if event.id != 'ev-1': return note('second')\n"
        "        note('began')\n"
        "        try: await asyncio.sleep(60)\n"
        "        except asyncio.CancelledError:\n"
        "            await asyncio.sleep(0.3)\n"
        "            note('let go')\n"
        "            raise\n"
    )
    async with running(code.options()) as handler:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handler.deliver, event(1))
            await code.noted("began")
            tasks.cancel_scope.cancel()
        await handler.deliver(event(2))
        assert 1 == handler.generation
    assert ["began", "let go", "second"] == code.notes()


@pytest.mark.parametrize(
    "hang",
    [
        "time.sleep(3600)",
        "while True: pass",
        "while True:\n                try: await asyncio.sleep(60)\n                except asyncio.CancelledError: pass",
    ],
)
async def test_a_blocked_loop_costs_its_worker(code: Code, monkeypatch: pytest.MonkeyPatch, hang: str) -> None:
    """A worker that does not let go of what was cancelled is killed; what was with it too fails, and the next one delivers."""
    monkeypatch.setattr(worker_link, "CANCEL_SECONDS", 0.3)
    code.write(
        f"{DELIVER}"
        "        note(event.id)\n"
        "        if event.id == 'ev-1':\n"
        f"            {hang}\n"
        "        if event.id == 'ev-2': await asyncio.sleep(60)\n"
    )
    failed: list[str] = []

    async def beside() -> None:
        failed.append(str(await failing(handler, event(2))))

    async with running(code.options()) as handler:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beside)
            await code.noted("ev-2")
            async with anyio.create_task_group() as given_up:
                given_up.start_soon(handler.deliver, event(1))
                await code.noted("ev-1")
                given_up.cancel_scope.cancel()
        await delivered(handler, event(3))
        assert 2 == handler.generation
    assert ["ev-2", "ev-1", "ev-3"] == code.notes()
    assert ["the worker did not let go of event ev-1 within 0.3 s after it was cancelled"] == failed


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        ("os._exit(3)", "the worker exited with code 3 after "),
        ("os.kill(os.getpid(), 11)", "the worker was killed by SIGSEGV after "),
        ("sys.exit(4)", "the worker exited with code 4 after "),
        ("os.closerange(3, 100)", "the worker "),
    ],
)
async def test_a_crash_costs_its_worker(code: Code, crash: str, words: str) -> None:
    """A worker that ends fails what was with it, saying how it ended, and is followed by another."""
    code.write(f"{DELIVER}        if event.id == 'ev-1': {crash}\n        note(event.id)\n")
    async with running(code.options()) as handler:
        failed = await failing(handler)
        await delivered(handler, event(2))
        assert 2 == handler.generation

    assert str(failed).startswith(words)
    assert not failed.is_final
    assert "ev-2" == code.notes()[-1]


async def test_a_leak_costs_its_worker(code: Code) -> None:
    """Code that takes more memory than its limit meets the end of it, and nobody else does."""
    code.write(f"HELD = []\n{DELIVER}        while event.id == 'ev-1': HELD.append(bytearray(16 * 1024 * 1024))\n")
    async with running(code.options(limits=ResourceLimits(memory=256 * 1024 * 1024))) as handler:
        failed = await failing(handler)
        await failing(handler)  # it still holds what it has taken
        os.kill(handler.pid or 0, signal.SIGKILL)
        await failing(handler)
        await delivered(handler, event(2))
    assert "MemoryError: " == str(failed)


async def test_a_limit_that_nobody_enforces_is_told(code: Code) -> None:
    """Where there are no control groups the log says once which limits do not hold."""
    code.write(GOOD)
    LINES.clear()
    async with running(code.options(limits=ResourceLimits(tasks=5, cpu=0.5, memory=256 * 1024 * 1024))) as handler:
        await handler.deliver(event())
    told = [line for line in LINES if "enforced" in line]
    assert 1 == len(told)
    assert told[0].startswith("handler mine: limits.tasks, limits.cpu cannot be enforced: the program that runs the supervisor")


async def test_nonsense_on_the_pipe_costs_its_worker(code: Code) -> None:
    """Code that finds the pipe and writes into it gets its worker killed, not the daemon confused."""
    code.write(
        "def shout(data):\n"
        "    for fd in range(3, 64):\n"
        "        try:\n"
        "            if os.readlink(f'/proc/self/fd/{fd}').startswith('pipe:'): os.write(fd, data)\n"
        "        except OSError: pass\n"
        f"{DELIVER}"
        "        shout(event.data['text'].encode())\n"
        "        await asyncio.sleep(60)\n"
    )
    failures: list[str] = []
    async with running(code.options()) as handler:
        for text in ("{}\n", '{"done": 99}\n', "[1]\n", "x" * 2_000_000):
            with pytest.raises(DeliveryFailed) as caught:
                await delivered(handler, event(text=text))
            failures.append(str(caught.value))
        await delivered(handler, event(text='{"done": 1}\n'))  # in the name of the worker, which is nobody else's affair
        assert 5 == handler.generation
    assert ["the worker said what a worker does not say: "] * 4 == [one[:44] for one in failures]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module_x", "it cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_x'"),
        ("raise RuntimeError('at import')", "it cannot be loaded: RuntimeError: at import"),
        ("x = 1", "module hooks has no 'Handler'"),
        ("Handler = 5", "hooks:Handler is int, and no class, function or object with the methods of a handler"),
        ("class Handler: pass", "hooks:Handler has neither `async def deliver(event)` nor `async def answer(question)`"),
        ("class Handler:\n    def deliver(self, event): pass", "hooks:Handler has neither `async def deliver(event)`"),
        ("class Handler:\n    def __init__(self, key): pass", "it cannot be loaded: TypeError: "),
        ("os._exit(9)", "the worker exited with code 9 after "),
        ("sys.exit(5)", "the worker exited with code 5 after "),
    ],
)
async def test_what_is_no_handler(code: Code, text: str, words: str) -> None:
    """Code that gives no handler says why with each delivery; once it is mended the next try takes it."""
    file = code.write(text)
    async with running(code.options()) as handler:
        failed = await failing(handler)
        assert (True, False) == (words in str(failed), failed.is_final), failed
        assert failed.retry_after is not None
        file.write_text(GOOD.replace("note(repr(event))", "pass"))
        os.utime(file, (1, 1))
        await delivered(handler)


async def test_one_that_never_loads(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose import hangs is ended when its time is over."""
    monkeypatch.setattr(python_handler, "START_SECONDS", 0.5)
    code.write("time.sleep(3600)")
    async with running(code.options()) as handler:
        assert "hooks:Handler was not loaded within 0.5 s" == str(await failing(handler))


async def test_no_secret_is_told(code: Code) -> None:
    """Secret arguments and variables are masked in what the worker prints and says, and not in its command line."""
    code.write(
        "class Handler:\n"
        "    def __init__(self, token): self.token = token\n"
        "    async def deliver(self, event):\n"
        "        print(self.token, os.environ['KEY'])\n"
        "        note(open(f'/proc/{os.getpid()}/cmdline').read())\n"
        "        raise ValueError(self.token + os.environ['KEY'])\n"
    )
    secret = Secret("c4nary-argument")
    options = code.options(arguments={"token": secret.reveal()}, secrets=(secret,), env=(("KEY", Secret("c4nary-variable")),))
    LINES.clear()
    async with running(options) as handler:
        failed = await failing(handler)
        shown = [str(failed), *handler.tail(), repr(options), *code.notes()]
    shown += LINES
    assert "ValueError: ******" == str(failed)
    assert "*** ***" in LINES
    assert [] == [text for text in shown if "c4nary" in text]


async def test_answers(code: Code) -> None:
    """`answer` gets the question as it is, and what it returns is the answer; whatever else it does is a failure."""
    code.write(
        "class Handler:\n"
        "    async def answer(self, question):\n"
        "        note(repr(question))\n"
        "        if question.id == 'q-1': return HandlerAnswer(action='accept', content={'sure': True})\n"
        "        if question.id == 'q-2': return {'action': 'accept'}\n"
        "        if question.id == 'q-3': return HandlerAnswer(action='perhaps')\n"
        "        if question.id == 'q-4': return HandlerAnswer(action='accept', content={'x': object()})\n"
        "        if question.id == 'q-5': return HandlerAnswer(action='accept', content={'x': 'y' * 3_000_000})\n"
    )
    async with running(code.options()) as handler:
        assert HandlerAnswer(action="accept", content={"sure": True}) == await handler.answer(QUESTION)
        assert "hooks:Handler has no `async def deliver`" == str(await failing(handler))
        told = []
        for number in (2, 3, 4, 5):
            with pytest.raises(DeliveryFailed) as caught:
                await handler.answer(type(QUESTION)(id=f"q-{number}", server="docs", mode="url", message="?", url="https://x"))
            told.append(str(caught.value))
    assert repr(QUESTION) == code.notes()[0]
    assert [
        "TypeError: answer() has to return a HandlerAnswer, and returned dict",
        'hooks:Handler gave an answer without an "action" of accept, decline, cancel',
        "its answer is no JSON: Object of type object is not JSON serializable",
    ] == told[:3]
    assert "the worker said what a worker does not say: a line of more than 524288 bytes" == told[3]


@pytest.mark.parametrize("mode", ["file", "folder", "beside", "parent"])
async def test_code_that_others_may_write_is_not_run(code: Code, mode: str) -> None:
    """A module is refused, unrun, while others may write its file, a file or folder beside it, or a folder above it."""
    file = code.write("note('run')\n" + GOOD)
    inner = code.folder / "inner"
    inner.mkdir()
    culprit = {"file": file, "folder": code.folder, "beside": inner, "parent": code.folder.parent}[mode]
    before = culprit.stat().st_mode & 0o777
    culprit.chmod(before | 0o002)
    async with running(code.options()) as handler:
        failed = await failing(handler)
        assert f"not used: everybody may write {culprit}; run: chmod o-w {culprit}" == str(failed)
        assert [] == code.notes()
        culprit.chmod(before)
        await delivered(handler)
        assert "run" == code.notes()[0]


async def test_a_module_is_taken_from_its_folder_alone(code: Code, tmp_path: Path) -> None:
    """With `path` a module of that folder is meant: neither one of Python, nor one that lies in the folder of the daemon."""
    code.write(GOOD)
    async with running(code.options(object="json:Handler")) as handler:
        told = str(await failing(handler))
    async with running(code.options(object="elsewhere:Handler")) as handler:
        missing = str(await failing(handler))
    async with running(code.options(path=str(tmp_path / "none"))) as handler:
        gone = str(await failing(handler))

    assert told.startswith(f"no module 'json' below {code.folder}: that name is ")
    assert f"no module 'elsewhere' below {code.folder}: edit the key `path`" == missing
    assert f"path {tmp_path / 'none'} is no folder: make it, or edit the key `path`" == gone


async def test_no_worker_can_be_started(code: Code) -> None:
    """Where no process can be started deliveries fail with the reason, and are tried again."""
    code.write(GOOD)
    async with running(code.options(cwd="/no/such/folder")) as handler:
        failed = await failing(handler)
        trouble = handler.trouble
    assert str(failed) == trouble
    assert "cwd '/no/such/folder' is no folder that can be entered: edit the key `cwd`" == str(failed)
    assert failed.retry_after is not None
    assert not failed.was_tried


async def test_the_end_is_in_good_order(code: Code) -> None:
    """A handler that is left cancels what is under way, leaves its object, and has nothing running."""
    code.write(
        "import subprocess\n"
        "class Handler:\n"
        "    async def __aenter__(self):\n"
        "        subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        "        return self\n"
        "    async def __aexit__(self, *_): note('left')\n"
        "    async def deliver(self, event):\n"
        "        note('began')\n"
        "        try: await asyncio.sleep(60)\n"
        "        finally: note('cancelled')\n"
    )
    failures: list[str] = []

    async def deliver(handler: python_handler.PythonHandler) -> None:
        failures.append(str(await failing(handler)))

    async with anyio.create_task_group() as tasks, running(code.options()) as handler:
        tasks.start_soon(deliver, handler)
        await code.noted("began")
    assert (["began", "cancelled", "left"], ["the handler is being stopped"]) == (code.notes(), failures)
