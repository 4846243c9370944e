"""Owns the worker process of one handler in Python: started like a server, watched, killed when stuck, and started again."""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc

from mcpvisor.daemon.handlers.answers import answer_of
from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerEvent, HandlerQuestion, JsonObject
from mcpvisor.daemon.handlers.log_handler import Emit
from mcpvisor.daemon.handlers.python_options import PythonOptions
from mcpvisor.daemon.handlers.worker_link import Method, WorkerLink
from mcpvisor.supervisor.backoff import delay_before
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.error_groups import end_tasks
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.process.cgroup import Enclosure, enclose
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree
from mcpvisor.supervisor.process.ending import end_process
from mcpvisor.supervisor.process.environment import Marker, child_environment, inherited_secrets
from mcpvisor.supervisor.process.launch import ServerProcess, launch
from mcpvisor.supervisor.process.stderr import StderrRing, StderrSink
from mcpvisor.supervisor.secret import Secret, all_in
from mcpvisor.supervisor.spec import RestartPolicy, StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.wire import OpenFailed

START_SECONDS: Final = 60.0
"""How long a worker may take to load its handler."""

STABLE_SECONDS: Final = 60.0
"""A worker that was up for so long is followed at once by the next; the ends before it are forgotten."""

RESTARTS: Final = RestartPolicy()
"""The delays between the others: a random part of 1 s, doubled up to 60 s, as for servers."""

STOP: Final = StopGraces()
"""What a worker that is not wanted any more gets to leave."""

_WORDS: Final = 500
"""Characters of why there is no worker, where it is shown."""

_MAIN: Final = str(Path(__file__).with_name("worker_main.py"))


@dataclass(frozen=True, slots=True)
class Starting:
    """A worker is being started: who comes now waits for it."""


@dataclass(frozen=True, slots=True)
class Up:
    """There is a worker that takes what comes."""

    link: WorkerLink


@dataclass(frozen=True, slots=True)
class Away:
    """There is no worker until `until`, by `anyio.current_time()`, because of `why`."""

    until: float
    why: str


class PythonHandler:
    """Delivers to an object of somebody else's code in a process of its own. To be entered, and left in the same task.

    A loop that is blocked, a crash, a flood and a leak hurt this handler only.
    """

    def __init__(
        self,
        name: str,
        options: PythonOptions,
        *,
        instance: str,
        environ: Mapping[str, str],
        stderr: StderrSink,
        emit: Emit,
        subtree: Subtree = NOT_TAKEN,
        known_secrets: KnownSecrets | None = None,
    ) -> None:
        """`instance` is the mark by which its processes are swept, should this one be killed; `environ` is our own."""
        self._name = name
        self._options = options
        self._instance = instance
        self._environ = environ
        self._emit = emit
        self._subtree = subtree
        secrets = [*options.secrets, *(value for _, value in options.env if isinstance(value, Secret))]
        inherited = inherited_secrets(StdioLaunch(command="", inherit_env=options.inherit_env), environ)
        self._mask = Mask([*all_in(secrets), *inherited], known_secrets)
        self._ring = StderrRing(stderr, mask=self._mask)
        self._tasks: anyio.abc.TaskGroup
        self._state: Starting | Up | Away = Starting()
        self._moved = anyio.Event()
        self._why_away = ""
        """Why the last worker has ended, or could not be had."""
        self.generation = 0
        """How many workers were started."""

    @property
    def pid(self) -> int | None:
        """The process of the worker that takes what comes, None while there is none."""
        return self._state.link.pid if isinstance(self._state, Up) else None

    @property
    def trouble(self) -> str:
        """See `SaysTrouble`: why there is no worker, also while the next one is being started."""
        return "" if isinstance(self._state, Up) else self._why_away

    def tail(self) -> list[str]:
        """The newest lines that its workers have printed, oldest first."""
        return self._ring.tail()

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._supervise)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        await end_tasks(self._tasks, kind, value, tb)

    async def deliver(self, event: HandlerEvent) -> None:
        """See `EventHandler`: handled once the object's `deliver` has returned."""
        await self._ask("deliver", event.as_json(), f"event {event.id}")

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`: what the object's `answer` returns."""
        told = await self._ask("answer", question.as_json(), f"question {question.id}")
        return answer_of(told.get("answer"), self._options.named)

    async def _ask(self, method: Method, message: JsonObject, what: str) -> JsonObject:
        link = await self._worker()
        if method not in link.methods:
            raise DeliveryFailed(f"{self._options.named} has no `async def {method}`", is_final=True)
        return await link.ask(method, message, what)

    async def _worker(self) -> WorkerLink:
        """The worker that is up, once it surely listens. Raises DeliveryFailed while none is to be had."""
        while True:
            state, moved = self._state, self._moved
            if isinstance(state, Away):
                seconds = max(0.0, state.until - anyio.current_time())
                raise DeliveryFailed(state.why, retry_after=seconds, was_tried=False)
            if isinstance(state, Up) and await state.link.listens():
                return state.link
            if self._state is state:
                await moved.wait()

    def _move(self, state: Starting | Up | Away) -> None:
        self._state = state
        self._moved.set()
        self._moved = anyio.Event()

    async def _supervise(self) -> None:
        row = 0
        while True:
            self._move(Starting())
            began = anyio.current_time()
            why = await self._one_life()
            if anyio.current_time() - began >= STABLE_SECONDS:
                row = 0
            delay = delay_before(row, RESTARTS, random.random)
            row += 1
            self._why_away = clean_text(why, _WORDS)
            self._move(Away(anyio.current_time() + delay, why))
            told = f"handler {self._name}: {why}; started again in {delay:.1f} s"
            self._emit("warning", told, {"handler": self._name, "why": why})
            await anyio.sleep(delay)

    async def _one_life(self) -> str:
        """Start a worker, and have it for as long as it is good; why it is not any more, in one clause."""
        self.generation += 1
        marker = Marker(self._instance, f"handler__{self._name}", self.generation)
        enclosure = enclose(self._subtree, marker, self._options.limits)
        options = self._options
        start = StdioLaunch(
            command=sys.executable,
            args=("-P", _MAIN),
            env=options.env,
            inherit_env=options.inherit_env,
            cwd=options.cwd,
            limits=options.limits,
        )
        try:
            process = launch(start, child_environment(start, marker, self._environ), enclosure.group)
        except OpenFailed as failed:
            if enclosure.group is not None:
                enclosure.group.empty()
            return failed.end.detail
        self._limit(process, enclosure)
        link = WorkerLink(process, self._ring, self._mask.text)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(link.run)
                await self._have(link)
                tasks.cancel_scope.cancel()
        finally:
            if link.ended.is_set():
                process.signal_group(signal.SIGKILL)  # it is no good any more, and gets no time to leave
            link.end("the handler is being stopped")
            await end_process(process, marker, STOP, (link.discard, link.drain_stderr), link.drain_last_words)
        return link.why

    async def _have(self, link: WorkerLink) -> None:
        words = {"object": self._options.object, "entry_point": self._options.entry_point, "path": self._options.path}
        try:
            with anyio.fail_after(START_SECONDS):
                await link.load({**words, "arguments": json.loads(self._options.arguments.reveal())})
        except TimeoutError:
            link.end(f"{self._options.named} was not loaded within {START_SECONDS:g} s")
        except DeliveryFailed as failed:
            link.end(str(failed))
        if not link.ended.is_set():
            told = f"handler {self._name}: {self._options.named} is loaded"
            self._emit("info", told, {"handler": self._name, "pid": link.pid})
            self._move(Up(link))
            await link.ended.wait()

    def _limit(self, process: ServerProcess, enclosure: Enclosure) -> None:
        """Hold a worker to its memory where no control group does, and say which limits nobody holds it to."""
        memory = self._options.limits.memory
        if memory is not None and "memory" in enclosure.lacking:
            with suppress(ProcessLookupError, PermissionError):  # it ended already
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (memory, memory))
        lacking = [limit for limit in enclosure.lacking if limit != "memory"]
        if lacking and self.generation == 1:
            told = f"handler {self._name}: limits.{', limits.'.join(lacking)} cannot be enforced: {enclosure.why}"
            self._emit("warning", told, {"handler": self._name, "limits": lacking})
